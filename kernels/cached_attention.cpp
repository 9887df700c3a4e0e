// CPU form of attention over key/value caches: one pass over the packed batch for all rows.
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

inline __attribute__((always_inline)) float sum(const Lanes& x) {
  typedef float Quad __attribute__((vector_size(16)));
  Quad part[4];
  std::memcpy(part, &x, sizeof(part));
  const Quad q = (part[0] + part[1]) + (part[2] + part[3]);
  return (q[0] + q[1]) + (q[2] + q[3]);
}

// Queries of G heads that share their keys and values.
constexpr int64_t kMaxGroup = 4;

// scores[g][m] = q[g]·k[m] for two keys at a time: six or more independent sums keep the unit busy.
template <int64_t G>
inline __attribute__((always_inline)) void two_keys(const float* const* q, const float* key, int64_t d, float scale, float* const* scores, int64_t m) {
  Lanes sums[2][G] = {};
  int64_t j = 0;
  for (; j + kLanes <= d; j += kLanes) {
    const Lanes a = lanes(key + j), b = lanes(key + d + j);
#pragma GCC unroll 4
    for (int64_t g = 0; g < G; ++g) {
      sums[0][g] += lanes(q[g] + j) * a;
      sums[1][g] += lanes(q[g] + j) * b;
    }
  }
#pragma GCC unroll 4
  for (int64_t g = 0; g < G; ++g) {
    float first = sum(sums[0][g]), second = sum(sums[1][g]);
    for (int64_t r = j; r < d; ++r) {
      first += q[g][r] * key[r];
      second += q[g][r] * key[d + r];
    }
    scores[g][m] = first * scale;
    scores[g][m + 1] = second * scale;
  }
}

// out[g] = Σ weights[g][m] · v[m], two vectors of columns at a time.
template <int64_t G>
inline __attribute__((always_inline)) void two_columns(float* const* weights, const float* values, int64_t length, int64_t d, float* const* out) {
  Lanes sums[2][G] = {};
  for (int64_t m = 0; m < length; ++m) {
    const Lanes a = lanes(values + m * d), b = lanes(values + m * d + kLanes);
#pragma GCC unroll 4
    for (int64_t g = 0; g < G; ++g) {
      sums[0][g] += weights[g][m] * a;
      sums[1][g] += weights[g][m] * b;
    }
  }
#pragma GCC unroll 4
  for (int64_t g = 0; g < G; ++g) {
    *reinterpret_cast<Lanes*>(out[g]) = sums[0][g];
    *reinterpret_cast<Lanes*>(out[g] + kLanes) = sums[1][g];
  }
}

inline __attribute__((always_inline)) void softmax(float* scores, int64_t length) {
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

template <int64_t G>
inline __attribute__((always_inline)) void attend_group(const float* const* q, const float* keys, const float* values, int64_t length, int64_t d, float scale, float* const* scores, float* const* out) {
  int64_t m = 0;
  for (; m + 2 <= length; m += 2) two_keys<G>(q, keys + m * d, d, scale, scores, m);
  for (int64_t g = 0; g < G; ++g) {
    if (m < length) {
      float dot = 0;
#pragma omp simd reduction(+ : dot)
      for (int64_t j = 0; j < d; ++j) dot += q[g][j] * keys[m * d + j];
      scores[g][m] = dot * scale;
    }
    softmax(scores[g], length);
  }
  int64_t j = 0;
  for (; j + 2 * kLanes <= d; j += 2 * kLanes) {
    float* columns[G];
    for (int64_t g = 0; g < G; ++g) columns[g] = out[g] + j;
    two_columns<G>(scores, values + j, length, d, columns);
  }
  for (int64_t g = 0; j < d && g < G; ++g) {
    for (int64_t c = j; c < d; ++c) out[g][c] = 0;
    for (int64_t n = 0; n < length; ++n) {
      for (int64_t c = j; c < d; ++c) out[g][c] += scores[g][n] * values[n * d + c];
    }
  }
}

// The attention of `group` query heads over one key/value head.
MEMPO_VECTORIZED void attend_heads(int64_t group, const float* const* q, const float* keys, const float* values, int64_t length, int64_t d, float scale, float* const* scores, float* const* out) {
  switch (group) {
    case 1: return attend_group<1>(q, keys, values, length, d, scale, scores, out);
    case 2: return attend_group<2>(q, keys, values, length, d, scale, scores, out);
    case 3: return attend_group<3>(q, keys, values, length, d, scale, scores, out);
    default: return attend_group<4>(q, keys, values, length, d, scale, scores, out);
  }
}

struct Shape {
  int64_t heads, kv_heads, d;
};

// Appends one key/value head of a row to its cache.
void append(const CacheSlot& slot, const at::Tensor& k, const at::Tensor& v, int64_t head, int64_t d) {
  const float *key = k.const_data_ptr<float>() + head * k.stride(1), *value = v.const_data_ptr<float>() + head * v.stride(1);
  for (int64_t t = 0; t < slot.tokens; ++t) {
    const int64_t to = (head * slot.capacity + slot.length + t) * d;
    std::memcpy(slot.keys + to, key + (slot.begin + t) * k.stride(0), d * sizeof(float));
    std::memcpy(slot.values + to, value + (slot.begin + t) * v.stride(0), d * sizeof(float));
  }
}

// All queries of a row that share one key/value head.
void attend(const CacheSlot& slot, const at::Tensor& q, int64_t kv_head, const Shape& shape, float* out, std::vector<float>& scratch) {
  const int64_t group = shape.heads / shape.kv_heads, d = shape.d, longest = slot.length + slot.tokens;
  const float* keys = slot.keys + kv_head * slot.capacity * d;
  const float* values = slot.values + kv_head * slot.capacity * d;
  scratch.resize(kMaxGroup * longest);
  const float* queries[kMaxGroup];
  float *scores[kMaxGroup], *mixed[kMaxGroup];
  for (int64_t t = slot.begin; t < slot.begin + slot.tokens; ++t) {
    for (int64_t first = 0; first < group; first += kMaxGroup) {
      const int64_t heads = std::min(kMaxGroup, group - first);
      for (int64_t g = 0; g < heads; ++g) {
        const int64_t head = kv_head * group + first + g;
        queries[g] = q.const_data_ptr<float>() + t * q.stride(0) + head * q.stride(1);
        scores[g] = scratch.data() + g * longest;
        mixed[g] = out + (t * shape.heads + head) * d;
      }
      attend_heads(heads, queries, keys, values, slot.length + t - slot.begin + 1, d, 1.0F / std::sqrt(static_cast<float>(d)), scores, mixed);
    }
  }
}

}  // namespace

void cached_attention_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const std::vector<CacheSlot>& slots, at::Tensor& out) {
  const Shape shape{q.size(1), k.size(1), q.size(2)};
  float* mixed = out.mutable_data_ptr<float>();
  at::parallel_for(0, static_cast<int64_t>(slots.size()) * shape.kv_heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scores;
    for (int64_t n = begin; n < end; ++n) {
      const CacheSlot& slot = slots[n / shape.kv_heads];
      append(slot, k, v, n % shape.kv_heads, shape.d);
      attend(slot, q, n % shape.kv_heads, shape, mixed, scores);
    }
  });
}

}  // namespace mempo::kernels
