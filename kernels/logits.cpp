// CPU forms over rows of logits: few passes, since a row of a large vocabulary leaves the cache.
#include <ATen/Parallel.h>

#include <cmath>
#include <limits>

#include "cuda_logits.h"
#include "kernels.h"
#include "rows.h"
#include "vector.h"

namespace mempo::kernels {

MEMPO_VECTORIZED float largest(const float* x, int64_t n) {
  float best = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : best)
  for (int64_t j = 0; j < n; ++j) best = x[j] > best ? x[j] : best;
  return best;
}

MEMPO_VECTORIZED float sum_exp(const float* x, int64_t n, float shift, float factor) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += exponential((x[j] - shift) * factor);
  return sum;
}

namespace {

MEMPO_VECTORIZED void sum_exp_and_product(const float* x, int64_t n, float shift, float* sum, float* product) {
  float s = 0, p = 0;
#pragma omp simd reduction(+ : s, p)
  for (int64_t j = 0; j < n; ++j) {
    const float d = x[j] - shift, e = exponential(d);
    s += e;
    p += e * d;
  }
  *sum = s;
  *product = p;
}

MEMPO_VECTORIZED void softmax_times(float* x, int64_t n, float normalizer, float factor) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) x[j] = factor * exponential(x[j] - normalizer);
}

struct RowStats {
  float normalizer, entropy;
};

RowStats row_stats(const float* x, int64_t n, bool with_entropy) {
  const float shift = largest(x, n);
  double sum = 0, product = 0;
  for (int64_t j = 0; j < n; j += kSumBlock) {
    const int64_t length = std::min(kSumBlock, n - j);
    if (with_entropy) {
      float s, p;
      sum_exp_and_product(x + j, length, shift, &s, &p);
      sum += s;
      product += p;
    } else {
      sum += sum_exp(x + j, length, shift, 1.0F);
    }
  }
  // With d = x − max: H = log Σ exp(d) − Σ exp(d)·d / Σ exp(d).
  const double log_sum = std::log(sum);
  return {static_cast<float>(shift + log_sum), static_cast<float>(log_sum - product / sum)};
}

}  // namespace

LogitStats logit_stats(const at::Tensor& logits, const at::Tensor& targets, bool with_entropy) {
  if (const auto* on = cuda::kernels_for(logits)) return cuda::logit_stats(*on, logits, targets, with_entropy);
  if (!on_cpu(logits)) return plain::logit_stats(logits, targets, with_entropy);
  const int64_t rows = logits.size(0), n = logits.size(1);
  LogitStats stats{at::empty({rows}, logits.options()), at::empty({rows}, logits.options()), {}};
  if (with_entropy) stats.entropies = at::empty({rows}, logits.options());
  const float* x = logits.const_data_ptr<float>();
  const int64_t* target = targets.const_data_ptr<int64_t>();
  float *log_prob = stats.log_probs.mutable_data_ptr<float>(), *normalizer = stats.normalizers.mutable_data_ptr<float>();
  float* entropy = with_entropy ? stats.entropies.mutable_data_ptr<float>() : nullptr;
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const RowStats s = row_stats(x + r * n, n, with_entropy);
      normalizer[r] = s.normalizer;
      log_prob[r] = x[r * n + target[r]] - s.normalizer;
      if (with_entropy) entropy[r] = s.entropy;
    }
  });
  return stats;
}

at::Tensor logits_to_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& normalizers,
                              const at::Tensor& gradient, at::ScalarType dtype) {
  if (const auto* on = cuda::kernels_for(logits)) return cuda::logits_to_gradient(*on, logits, targets, normalizers, gradient, dtype);
  if (!on_cpu(logits)) return plain::logits_to_gradient(logits, targets, normalizers, gradient, dtype);
  const int64_t n = logits.size(1);
  float* x = logits.mutable_data_ptr<float>();
  const int64_t* target = targets.const_data_ptr<int64_t>();
  const float *normalizer = normalizers.const_data_ptr<float>(), *g = gradient.const_data_ptr<float>();
  at::parallel_for(0, logits.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      softmax_times(x + r * n, n, normalizer[r], -g[r]);
      x[r * n + target[r]] += g[r];
    }
  });
  return logits.to(dtype);
}

}  // namespace mempo::kernels
