// CPU form of attention over paged key/value caches: one pass over the packed batch for all rows.
#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels.h"
#include "vector.h"

// The helpers are inlined everywhere, so how a vector would be passed to them does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace mempo::kernels {

namespace {

// Sixteen lanes; the compiler splits them for narrower units. Loads need no alignment.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t kLanes = 16;

inline __attribute__((always_inline)) Lanes lanes(const float* x) { return *reinterpret_cast<const Lanes*>(x); }

// The sums of four vectors' lanes: each step adds pairs of lanes of two vectors and leaves half of them to go.
typedef float Quad __attribute__((vector_size(16)));
inline __attribute__((always_inline)) Quad sums(const Lanes& a, const Lanes& b, const Lanes& c, const Lanes& d) {
  typedef int Order __attribute__((vector_size(64)));
  constexpr Order even{0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30}, odd{1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31};
  constexpr Order low{0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29}, high{2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31};
  const Lanes ab = __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd), cd = __builtin_shuffle(c, d, even) + __builtin_shuffle(c, d, odd);
  const Lanes all = __builtin_shuffle(ab, cd, low) + __builtin_shuffle(ab, cd, high);
  Quad part[4];
  std::memcpy(part, &all, sizeof(part));
  return (part[0] + part[1]) + (part[2] + part[3]);
}

// Queries of G heads that share their keys and values.
constexpr int64_t kMaxGroup = 4;

// Keys or values of consecutive tokens, `stride` elements apart, and where those lie that are read next.
struct Stretch {
  const float* data;
  int64_t stride, count;
  const float* next;
};

// Asks for what `length` tokens from m on have in the stretch that is read next: pages lie apart, and memory is slow to find
// out where reading goes on.
inline __attribute__((always_inline)) void fetch_next(const Stretch& s, int64_t m, int64_t length, int64_t d) {
  for (int64_t j = m * d; j < (m + length) * d; j += kLanes) __builtin_prefetch(s.next + j);
}

// scores[g][m] = q[g]·k[m] for four keys at a time, whose sums over lanes are taken together.
constexpr int64_t kKeys = 4;
template <int64_t G>
inline __attribute__((always_inline)) void four_keys(const float* const* q, const float* key, int64_t stride, int64_t d, float scale, float* const* scores, int64_t m) {
  Lanes products[G][kKeys] = {};
  int64_t j = 0;
  for (; j + kLanes <= d; j += kLanes) {
#pragma GCC unroll 4
    for (int64_t g = 0; g < G; ++g) {
      const Lanes query = lanes(q[g] + j);
#pragma GCC unroll 4
      for (int64_t n = 0; n < kKeys; ++n) products[g][n] += query * lanes(key + n * stride + j);
    }
  }
#pragma GCC unroll 4
  for (int64_t g = 0; g < G; ++g) {
    Quad dots = sums(products[g][0], products[g][1], products[g][2], products[g][3]);
    for (int64_t r = j; r < d; ++r) dots += q[g][r] * Quad{key[r], key[stride + r], key[2 * stride + r], key[3 * stride + r]};
    dots *= scale;
    std::memcpy(scores[g] + m, &dots, sizeof(dots));
  }
}

template <int64_t G>
inline __attribute__((always_inline)) void score_group(const float* const* q, const Stretch& keys, int64_t d, float scale, float* const* scores) {
  int64_t m = 0;
  for (; m + kKeys <= keys.count; m += kKeys) {
    fetch_next(keys, m, kKeys, d);
    four_keys<G>(q, keys.data + m * keys.stride, keys.stride, d, scale, scores, m);
  }
  for (; m < keys.count; ++m) {
    for (int64_t g = 0; g < G; ++g) {
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t j = 0; j < d; ++j) dot += q[g][j] * keys.data[m * keys.stride + j];
      scores[g][m] = dot * scale;
    }
  }
}

// out[g] += Σ weights[g][m] · v[m], two vectors of columns at a time.
template <int64_t G>
inline __attribute__((always_inline)) void mix_group(float* const* weights, const Stretch& values, int64_t d, float* const* out) {
  int64_t j = 0;
  for (; j + 2 * kLanes <= d; j += 2 * kLanes) {
    Lanes sums[2][G];
#pragma GCC unroll 4
    for (int64_t g = 0; g < G; ++g) {
      sums[0][g] = lanes(out[g] + j);
      sums[1][g] = lanes(out[g] + j + kLanes);
    }
    for (int64_t m = 0; m < values.count; ++m) {
      if (j == 0) fetch_next(values, m, 1, d);
      const Lanes a = lanes(values.data + m * values.stride + j), b = lanes(values.data + m * values.stride + j + kLanes);
#pragma GCC unroll 4
      for (int64_t g = 0; g < G; ++g) {
        sums[0][g] += weights[g][m] * a;
        sums[1][g] += weights[g][m] * b;
      }
    }
#pragma GCC unroll 4
    for (int64_t g = 0; g < G; ++g) {
      *reinterpret_cast<Lanes*>(out[g] + j) = sums[0][g];
      *reinterpret_cast<Lanes*>(out[g] + j + kLanes) = sums[1][g];
    }
  }
  for (int64_t g = 0; j < d && g < G; ++g) {
    for (int64_t m = 0; m < values.count; ++m) {
      for (int64_t c = j; c < d; ++c) out[g][c] += weights[g][m] * values.data[m * values.stride + c];
    }
  }
}

MEMPO_VECTORIZED void softmax(float* scores, int64_t length) {
  float best = -std::numeric_limits<float>::infinity(), total = 0;
#pragma omp simd reduction(max : best)
  for (int64_t m = 0; m < length; ++m) best = scores[m] > best ? scores[m] : best;
#pragma omp simd reduction(+ : total)
  for (int64_t m = 0; m < length; ++m) {
    scores[m] = exponential(scores[m] - best);
    total += scores[m];
  }
  const float factor = 1.0F / total;
#pragma omp simd
  for (int64_t m = 0; m < length; ++m) scores[m] *= factor;
}

MEMPO_VECTORIZED void score_heads(int64_t group, const float* const* q, const Stretch& keys, int64_t d, float scale, float* const* scores) {
  switch (group) {
    case 1: return score_group<1>(q, keys, d, scale, scores);
    case 2: return score_group<2>(q, keys, d, scale, scores);
    case 3: return score_group<3>(q, keys, d, scale, scores);
    default: return score_group<4>(q, keys, d, scale, scores);
  }
}

MEMPO_VECTORIZED void mix_heads(int64_t group, float* const* weights, const Stretch& values, int64_t d, float* const* out) {
  switch (group) {
    case 1: return mix_group<1>(weights, values, d, out);
    case 2: return mix_group<2>(weights, values, d, out);
    case 3: return mix_group<3>(weights, values, d, out);
    default: return mix_group<4>(weights, values, d, out);
  }
}

// What the heads of one call share.
struct Shape {
  int64_t heads, kv_heads, d, page_tokens, layer;

  int64_t head_elements() const { return page_tokens * d; }
  // Where a page holds the keys (0) or values (1) of a head.
  int64_t place(int64_t keys_or_values, int64_t head) const { return ((layer * 2 + keys_or_values) * kv_heads + head) * head_elements(); }
};

float* page_of(const PagedRow& row, int64_t n) { return static_cast<float*>(row.pages[static_cast<size_t>(n)]); }

// The keys or values of a row at a head: one stretch for each page of its past, then one of its own; tokens of the row see
// all of the former and, of the latter, those up to themselves.
class Stretches {
 public:
  // `then` is what is read behind them.
  Stretches(const PagedRow& row, int64_t keys_or_values, const at::Tensor& own, int64_t head, const Shape& s, const float* then) {
    for (int64_t done = 0; done < row.past; done += s.page_tokens) {
      all_.push_back({page_of(row, done / s.page_tokens) + s.place(keys_or_values, head), s.d, std::min(s.page_tokens, row.past - done), then});
    }
    for (size_t n = 1; n < all_.size(); ++n) all_[n - 1].next = all_[n].data;
    const float* const data = own.const_data_ptr<float>() + row.begin * own.stride(0) + head * own.stride(1);
    all_.push_back({data, own.stride(0), 0, data});
  }

  // Calls visit(stretch, offset of its first token, token): each page for all tokens while it is in the cache.
  template <typename Visit>
  void each(const PagedRow& row, const Visit& visit) const {
    int64_t offset = 0;
    for (const Stretch& stretch : all_) {
      const bool own = &stretch == &all_.back();
      for (int64_t t = 0; t < row.tokens; ++t) visit(own ? Stretch{stretch.data, stretch.stride, t + 1, stretch.next} : stretch, offset, t);
      offset += stretch.count;
    }
  }

 private:
  std::vector<Stretch> all_;
};

// Where reading the keys or values of a row begins; null for a row without a past.
const float* first_page(const PagedRow& row, int64_t keys_or_values, int64_t head, const Shape& s) {
  return row.past > 0 ? page_of(row, 0) + s.place(keys_or_values, head) : nullptr;
}

// The queries of `group` heads, from `first` on, that share one key/value head, for all tokens of a row.
void attend(const PagedRow& row, const at::Tensor& q, const Stretches& keys, const Stretches& values, int64_t first, int64_t group, const Shape& s, float* out, std::vector<float>& scratch) {
  const int64_t longest = row.past + row.tokens;
  scratch.resize(static_cast<size_t>(row.tokens * group * longest));
  const auto scores_of = [&](int64_t t, int64_t offset, float** scores) {
    for (int64_t g = 0; g < group; ++g) scores[g] = scratch.data() + (t * group + g) * longest + offset;
  };
  float *scores[kMaxGroup], *mixed[kMaxGroup];
  const float* queries[kMaxGroup];
  const float scale = 1.0F / std::sqrt(static_cast<float>(s.d));
  keys.each(row, [&](const Stretch& stretch, int64_t offset, int64_t t) {
    scores_of(t, offset, scores);
    for (int64_t g = 0; g < group; ++g) queries[g] = q.const_data_ptr<float>() + (row.begin + t) * q.stride(0) + (first + g) * q.stride(1);
    score_heads(group, queries, stretch, s.d, scale, scores);
  });
  for (int64_t t = 0; t < row.tokens; ++t) {
    scores_of(t, 0, scores);
    for (int64_t g = 0; g < group; ++g) {
      softmax(scores[g], row.past + t + 1);
      std::memset(out + ((row.begin + t) * s.heads + first + g) * s.d, 0, static_cast<size_t>(s.d) * sizeof(float));
    }
  }
  values.each(row, [&](const Stretch& stretch, int64_t offset, int64_t t) {
    scores_of(t, offset, scores);
    for (int64_t g = 0; g < group; ++g) mixed[g] = out + ((row.begin + t) * s.heads + first + g) * s.d;
    mix_heads(group, scores, stretch, s.d, mixed);
  });
}

}  // namespace

void paged_attention_pairs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PagedRows& paged, int64_t layer,
                           int64_t begin, int64_t end, const at::Tensor& out) {
  const Shape shape{q.size(1), k.size(1), q.size(2), paged.page_tokens, layer};
  const int64_t group = shape.heads / shape.kv_heads;
  float* mixed = out.mutable_data_ptr<float>();
  std::vector<float> scratch;
  for (int64_t n = begin; n < end; ++n) {
    const PagedRow& row = paged.rows[static_cast<size_t>(n / shape.kv_heads)];
    const int64_t head = n % shape.kv_heads;
    const int64_t after = std::min(n + 1, end - 1);
    const float* const then = first_page(paged.rows[static_cast<size_t>(after / shape.kv_heads)], 0, after % shape.kv_heads, shape);
    const Stretches keys(row, 0, k, head, shape, first_page(row, 1, head, shape)), values(row, 1, v, head, shape, then);
    for (int64_t g = 0; g < group; g += kMaxGroup) {
      attend(row, q, keys, values, head * group + g, std::min(kMaxGroup, group - g), shape, mixed, scratch);
    }
  }
}

void paged_attention_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PagedRows& paged, int64_t layer,
                         const at::Tensor& out) {
  at::parallel_for(0, static_cast<int64_t>(paged.rows.size()) * k.size(1), 1, [&](int64_t begin, int64_t end) {
    paged_attention_pairs(q, k, v, paged, layer, begin, end, out);
  });
}

}  // namespace mempo::kernels
