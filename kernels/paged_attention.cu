// Attention over paged key/value caches on CUDA, for few new tokens in a row: decoding, and short stretches. A block takes one
// new token, the heads that share a key/value head, and a share of the keys, so that each key is read once; a second kernel
// merges the shares (Dao et al., "Flash-Decoding for long-context inference", 2023). How many shares there are does not depend
// on lengths, which lie in device memory.
#include "device.cuh"

namespace mempo::kernels::cuda {

namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kMostHeads = 8;  // of one block

// Keys that a block holds at a time: about 34 KB of them.
template <typename T, int D>
constexpr int kTile = D * sizeof(T) > 512 ? 32 : 64;

// Where a new token stands.
struct Place {
  int32_t row, past, begin, length;  // length: keys that it sees

  __device__ __forceinline__ Place(const PagedTable& table, int token)
      : row(table.row[token]), past(table.past[row]), begin(table.begin[row]), length(past + token - begin + 1) {}
};

// Keys of one share, whole tiles of them.
__device__ __forceinline__ int share_of(int length, int shares, int tile) {
  return ((length + shares - 1) / shares + tile - 1) / tile * tile;
}

// Where the keys or values of one row and one key/value head lie: those of the past in pages, and behind them the new ones.
template <typename T>
struct Source {
  const int64_t* pages;
  int64_t within;  // elements from a page's begin to the head's first token
  int32_t page_tokens, past, d;
  const T* own;
  int64_t own_stride;

  __device__ __forceinline__ const T* at(int token) const { return token < past ? in_page(token) : own + (token - past) * own_stride; }
  __device__ __forceinline__ T* in_page(int token) const {
    return reinterpret_cast<T*>(pages[token / page_tokens]) + within + static_cast<int64_t>(token % page_tokens) * d;
  }
};

template <typename T>
__device__ __forceinline__ Source<T> source(const AttentionArguments& a, const Place& place, int head, bool values) {
  const PagedTable& t = a.table;
  const Strides& s = values ? a.v_strides : a.k_strides;
  const T* own = static_cast<const T*>(values ? a.v : a.k) + place.begin * s.token + head * s.head;
  return {t.pages + t.first_page[place.row], t.layer + (values ? t.values : 0) + static_cast<int64_t>(head) * t.page_tokens * a.d, t.page_tokens, place.past, a.d, own, s.token};
}

// Part `c` of a row of d elements, zeros behind its end.
template <typename T>
__device__ __forceinline__ Piece<T, kWide<T>> part_of(const T* row, int c, int d, bool wide) {
  constexpr int kCount = kWide<T>;
  if (wide && (c + 1) * kCount <= d) return *reinterpret_cast<const Piece<T, kCount>*>(row + c * kCount);
  Piece<T, kCount> piece;
#pragma unroll
  for (int k = 0; k < kCount; ++k) piece.at[k] = c * kCount + k < d ? row[c * kCount + k] : narrow<T>(0);
  return piece;
}

template <typename T, int D>
struct Shared {
  static constexpr int kParts = D / kWide<T>;
  Piece<T, kWide<T>> keys[kTile<T, D>][kParts + 1];  // one more: neighbours' rows lie in other banks
  float queries[kMostHeads][D];
  float scores[kMostHeads][kTile<T, D>];
  float factors[kMostHeads], totals[kMostHeads], largest[kMostHeads];
  float sums[kThreads * kWide<T>];
};

// Queries of `count` heads, with zeros for those that are missing up to G and behind d.
template <typename T, int D, int G>
__device__ __forceinline__ void load_queries(const AttentionArguments& a, int token, int first, int count, Shared<T, D>& shared) {
  for (int n = threadIdx.x; n < G * D; n += kThreads) {
    const int g = n / D, j = n % D;
    const T* q = static_cast<const T*>(a.q) + token * a.q_strides.token + (first + g) * a.q_strides.head;
    shared.queries[g][j] = g < count && j < a.d ? widen(q[j]) : 0;
  }
}

template <typename T, int D>
__device__ __forceinline__ void load_keys(const Source<T>& keys, int begin, int end, bool wide, Shared<T, D>& shared) {
  constexpr int kParts = Shared<T, D>::kParts;
  for (int n = threadIdx.x; n < kTile<T, D> * kParts; n += kThreads) {
    const int token = begin + n / kParts;
    if (token < end) shared.keys[n / kParts][n % kParts] = part_of(keys.at(token), n % kParts, keys.d, wide);
  }
}

// A thread takes one key and every kShare-th head.
template <typename T, int D, int G>
__device__ __forceinline__ void score(float scale, int begin, int end, Shared<T, D>& shared) {
  constexpr int kShare = kThreads / kTile<T, D>, kOwn = (G + kShare - 1) / kShare, kCount = kWide<T>;
  const int key = static_cast<int>(threadIdx.x) % kTile<T, D>, share = static_cast<int>(threadIdx.x) / kTile<T, D>;
  float dots[kOwn] = {};
  if (begin + key < end) {
#pragma unroll 2
    for (int c = 0; c < Shared<T, D>::kParts; ++c) {
      const Floats<kCount> k = load<kCount>(shared.keys[key][c].at);
#pragma unroll
      for (int own = 0; own < kOwn; ++own) {
        const int g = own * kShare + share;
        if (g >= G) break;
#pragma unroll
        for (int j = 0; j < kCount; j += 4) {
          const Floats<4> q = load<4>(&shared.queries[g][c * kCount + j]);
#pragma unroll
          for (int i = 0; i < 4; ++i) dots[own] += q.at[i] * k.at[j + i];
        }
      }
    }
  }
#pragma unroll
  for (int own = 0; own < kOwn; ++own) {
    const int g = own * kShare + share;
    if (g < G) shared.scores[g][key] = begin + key < end ? dots[own] * scale : -INFINITY;
  }
}

// The softmax so far of the heads that a warp takes, every kWarps-th: the same numbers in all of its lanes.
template <int G>
struct Softmax {
  static constexpr int kOwn = (G + kWarps - 1) / kWarps;
  float largest[kOwn], totals[kOwn];
};

// Turns scores into weights against the largest score so far, and says what earlier weights are worth against it.
template <typename T, int D, int G>
__device__ __forceinline__ void weigh(Softmax<G>& softmax, Shared<T, D>& shared) {
  constexpr int kEach = kTile<T, D> / static_cast<int>(kWarp);
  const int warp = static_cast<int>(threadIdx.x / kWarp), lane = static_cast<int>(threadIdx.x % kWarp);
#pragma unroll
  for (int own = 0; own < Softmax<G>::kOwn; ++own) {
    const int g = own * kWarps + warp;
    if (g >= G) break;
    float x[kEach], largest = softmax.largest[own], sum = 0;
#pragma unroll
    for (int n = 0; n < kEach; ++n) x[n] = shared.scores[g][lane + n * 32];
#pragma unroll
    for (int n = 0; n < kEach; ++n) largest = fmaxf(largest, x[n]);
    largest = warp_max(largest);
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      x[n] = expf(x[n] - largest);
      shared.scores[g][lane + n * 32] = x[n];
      sum += x[n];
    }
    const float factor = expf(softmax.largest[own] - largest);
    softmax.totals[own] = softmax.totals[own] * factor + warp_sum(sum);
    softmax.largest[own] = largest;
    if (lane == 0) shared.factors[g] = factor;
  }
}

// A thread sums the weighted values of every kRows-th token in a few columns.
template <typename T, int D, int G>
__device__ __forceinline__ void mix(const Source<T>& values, int begin, int end, bool wide, const Shared<T, D>& shared, float (&mixed)[G][kWide<T>]) {
  constexpr int kParts = Shared<T, D>::kParts, kRows = kThreads / kParts, kCount = kWide<T>;
  const int part = static_cast<int>(threadIdx.x) % kParts, first = static_cast<int>(threadIdx.x) / kParts;
#pragma unroll
  for (int g = 0; g < G; ++g) {
    const float factor = shared.factors[g];
#pragma unroll
    for (int j = 0; j < kCount; ++j) mixed[g][j] *= factor;
  }
#pragma unroll 2
  for (int n = first; n < kTile<T, D>; n += kRows) {
    if (begin + n >= end) break;
    const Piece<T, kCount> v = part_of(values.at(begin + n), part, values.d, wide);
#pragma unroll
    for (int g = 0; g < G; ++g) {
      const float weight = shared.scores[g][n];
#pragma unroll
      for (int j = 0; j < kCount; ++j) mixed[g][j] += weight * widen(v.at[j]);
    }
  }
}

// Where a share of one head's result goes.
__device__ __forceinline__ int64_t share_index(const AttentionArguments& a, int64_t token, int head, int share) {
  return (token * a.heads + head) * a.shares + share;
}

// Adds up the threads' sums of each head and writes them.
template <typename T, int D, int G>
__device__ __forceinline__ void finish(const AttentionArguments& a, int token, int first, int count, float (&mixed)[G][kWide<T>], Shared<T, D>& shared) {
  constexpr int kRows = kThreads / Shared<T, D>::kParts, kCount = kWide<T>;
#pragma unroll
  for (int g = 0; g < G; ++g) {
    if (g >= count) break;
    __syncthreads();  // the head before, and the totals
#pragma unroll
    for (int j = 0; j < kCount; ++j) shared.sums[threadIdx.x * kCount + j] = mixed[g][j];
    __syncthreads();
    const int64_t to = share_index(a, token, first + g, static_cast<int>(blockIdx.z));
    for (int j = threadIdx.x; j < a.d; j += kThreads) {
      float sum = 0;
      for (int r = 0; r < kRows; ++r) sum += shared.sums[r * D + j];
      if (a.shares == 1) {
        static_cast<T*>(a.out)[to * a.d + j] = narrow<T>(sum / shared.totals[g]);
      } else {
        a.partial[to * a.d + j] = sum;
      }
    }
    if (a.shares > 1 && threadIdx.x == 0) {
      a.sums[2 * to] = shared.largest[g];
      a.sums[2 * to + 1] = shared.totals[g];
    }
  }
}

template <typename T, int D, int G>
__global__ void __launch_bounds__(kThreads, 4) attend_share(AttentionArguments a) {
  const int token = static_cast<int>(blockIdx.x);
  if (a.table.row[token] < 0) return;
  __shared__ Shared<T, D> shared;
  const int kv_head = static_cast<int>(blockIdx.y) % a.kv_heads, group = a.heads / a.kv_heads;
  const int skipped = static_cast<int>(blockIdx.y) / a.kv_heads * G, first = kv_head * group + skipped, count = min(G, group - skipped);
  const Place place(a.table, token);
  const int keys_of_share = share_of(place.length, a.shares, kTile<T, D>);
  const int from = static_cast<int>(blockIdx.z) * keys_of_share, end = min(place.length, from + keys_of_share);
  if (from >= end) return;
  const Source<T> keys = source<T>(a, place, kv_head, false), values = source<T>(a, place, kv_head, true);
  load_queries<T, D, G>(a, token, first, count, shared);
  Softmax<G> softmax;
  for (int own = 0; own < Softmax<G>::kOwn; ++own) {
    softmax.largest[own] = -INFINITY;
    softmax.totals[own] = 0;
  }
  float mixed[G][kWide<T>] = {};
  for (int begin = from; begin < end; begin += kTile<T, D>) {
    load_keys<T, D>(keys, begin, end, a.wide, shared);
    __syncthreads();
    score<T, D, G>(a.scale, begin, end, shared);
    __syncthreads();
    weigh<T, D, G>(softmax, shared);
    __syncthreads();
    mix<T, D, G>(values, begin, end, a.wide, shared, mixed);
  }
#pragma unroll
  for (int own = 0; own < Softmax<G>::kOwn; ++own) {
    const int g = own * kWarps + static_cast<int>(threadIdx.x / kWarp);
    if (g >= G || threadIdx.x % kWarp != 0) break;
    shared.largest[g] = softmax.largest[own];
    shared.totals[g] = softmax.totals[own];
  }
  finish<T, D, G>(a, token, first, count, mixed, shared);
}

// A block for each token and head: a share weighs what its scores sum to.
template <typename T>
__global__ void merge_shares(AttentionArguments a, int tile) {
  const int token = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  if (a.table.row[token] < 0) return;
  const int length = Place(a.table, token).length, keys = share_of(length, a.shares, tile), shares = (length + keys - 1) / keys;
  const int64_t from = share_index(a, token, head, 0);
  float largest = -INFINITY, total = 0;
  for (int s = 0; s < shares; ++s) largest = fmaxf(largest, a.sums[2 * (from + s)]);
  for (int s = 0; s < shares; ++s) total += expf(a.sums[2 * (from + s)] - largest) * a.sums[2 * (from + s) + 1];
  for (int j = threadIdx.x; j < a.d; j += blockDim.x) {
    float sum = 0;
    for (int s = 0; s < shares; ++s) sum += expf(a.sums[2 * (from + s)] - largest) * a.partial[(from + s) * a.d + j];
    static_cast<T*>(a.out)[(static_cast<int64_t>(token) * a.heads + head) * a.d + j] = narrow<T>(sum / total);
  }
}

template <typename T, int D, int G>
Error attend_heads(const AttentionArguments& a, int64_t tokens, void* stream) {
  const int group = a.heads / a.kv_heads, blocks = a.kv_heads * ((group + G - 1) / G);
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(blocks), static_cast<unsigned>(a.shares));
  const Error error = launch(attend_share<T, D, G>, grid, kThreads, 0, stream, a);
  if (error != nullptr || a.shares == 1) return error;
  const dim3 all(static_cast<unsigned>(tokens), static_cast<unsigned>(a.heads));
  return launch(merge_shares<T>, all, threads_for(a.d, 256), 0, stream, a, kTile<T, D>);
}

template <typename T, int D>
Error attend_width(const AttentionArguments& a, int64_t tokens, void* stream) {
  const int group = a.heads / a.kv_heads;
  return group <= 2 ? attend_heads<T, D, 2>(a, tokens, stream) : group <= 4 ? attend_heads<T, D, 4>(a, tokens, stream) : attend_heads<T, D, kMostHeads>(a, tokens, stream);
}

Error paged_attention(Elements elements, AttentionArguments a, int64_t tokens, void* stream) {
  if (a.d > 256) return "heads wider than 256 have no kernel";
  return by_type(elements, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    a.wide = wide_addresses<T>({a.k, a.v}) && wide_strides<T>({a.d, a.k_strides.token, a.k_strides.head, a.v_strides.token, a.v_strides.head});
    return a.d <= 64 ? attend_width<T, 64>(a, tokens, stream) : a.d <= 128 ? attend_width<T, 128>(a, tokens, stream) : attend_width<T, 256>(a, tokens, stream);
  });
}

}  // namespace

AttentionKernels attention_kernels() { return {paged_attention}; }

}  // namespace mempo::kernels::cuda
