// CPU form of attention over key/value caches: one pass over the packed batch for all rows.
#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels.h"
#include "vector.h"

namespace mempo::kernels {

namespace {

// scores[m] = scale · q·k[m] for m < length; returns the largest.
MEMPO_VECTORIZED float query_keys(const float* q, const float* keys, int64_t length, int64_t d, float scale, float* scores) {
  float best = -std::numeric_limits<float>::infinity();
  for (int64_t m = 0; m < length; ++m) {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t j = 0; j < d; ++j) dot += q[j] * keys[m * d + j];
    scores[m] = dot * scale;
    best = scores[m] > best ? scores[m] : best;
  }
  return best;
}

MEMPO_VECTORIZED float exponentials(float* scores, int64_t length, float shift) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t m = 0; m < length; ++m) {
    scores[m] = std::exp(scores[m] - shift);
    sum += scores[m];
  }
  return sum;
}

MEMPO_VECTORIZED void weighted_values(const float* weights, const float* values, int64_t length, int64_t d, float factor, float* out) {
  for (int64_t j = 0; j < d; ++j) out[j] = 0;
  for (int64_t m = 0; m < length; ++m) {
    const float w = weights[m] * factor;
#pragma omp simd
    for (int64_t j = 0; j < d; ++j) out[j] += w * values[m * d + j];
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
void attend(const CacheSlot& slot, const at::Tensor& q, int64_t kv_head, const Shape& shape, float* out, std::vector<float>& scores) {
  const int64_t group = shape.heads / shape.kv_heads, d = shape.d;
  const float* keys = slot.keys + kv_head * slot.capacity * d;
  const float* values = slot.values + kv_head * slot.capacity * d;
  const float scale = 1.0F / std::sqrt(static_cast<float>(d));
  scores.resize(slot.length + slot.tokens);
  for (int64_t t = 0; t < slot.tokens; ++t) {
    const int64_t visible = slot.length + t + 1;
    for (int64_t g = 0; g < group; ++g) {
      const int64_t head = kv_head * group + g;
      const float* query = q.const_data_ptr<float>() + (slot.begin + t) * q.stride(0) + head * q.stride(1);
      const float best = query_keys(query, keys, visible, d, scale, scores.data());
      const float sum = exponentials(scores.data(), visible, best);
      weighted_values(scores.data(), values, visible, d, 1.0F / sum, out + ((slot.begin + t) * shape.heads + head) * d);
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
