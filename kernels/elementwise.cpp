// CPU forms of the norm and the gated activation.
#include <ATen/Parallel.h>

#include <cmath>

#include "cuda_forms.h"
#include "kernels.h"
#include "vector.h"

namespace mempo::kernels {

namespace {

constexpr int64_t kGrain = 16384;  // elements a thread takes at least

int64_t rows_per_task(int64_t row_length) { return std::max<int64_t>(1, kGrain / row_length); }

// A tensor [a, b, n] or [a, n] as rows of n elements.
struct Rows {
  const float* data;
  int64_t inner, outer_stride, inner_stride, count, length;

  explicit Rows(const at::Tensor& x) : data(x.const_data_ptr<float>()), length(x.size(-1)) {
    TORCH_CHECK(x.dim() == 2 || x.dim() == 3, "rows of a tensor of 2 or 3 dimensions are needed");
    TORCH_CHECK(x.stride(-1) == 1, "the last dimension must be contiguous");
    inner = x.dim() == 3 ? x.size(1) : 1;
    outer_stride = x.stride(0);
    inner_stride = x.dim() == 3 ? x.stride(1) : 0;
    count = x.size(0) * inner;
  }
  const float* at(int64_t row) const { return data + row / inner * outer_stride + row % inner * inner_stride; }
};

at::Tensor contiguous_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

inline __attribute__((always_inline)) float norm_scale(const float* x, int64_t n, float eps) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += x[j] * x[j];
  return 1.0F / std::sqrt(sum / static_cast<float>(n) + eps);
}

MEMPO_VECTORIZED void norm_row(const float* x, const float* weight, float* y, int64_t n, float eps) {
  const float scale = norm_scale(x, n, eps);
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) y[j] = x[j] * scale * weight[j];
}

// y = x·r·w with r = rsqrt(mean(x²) + eps): dx = r·(g·w) − x·r³/n·Σ(g·w·x); dw += g·x·r.
MEMPO_VECTORIZED void norm_row_backward(const float* x, const float* weight, const float* g, float* dx, float* dw, int64_t n, float eps) {
  const float r = norm_scale(x, n, eps);
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t j = 0; j < n; ++j) dot += g[j] * weight[j] * x[j];
  const float back = dot * r * r * r / static_cast<float>(n);
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    dx[j] = r * g[j] * weight[j] - x[j] * back;
    dw[j] += g[j] * x[j] * r;
  }
}

MEMPO_VECTORIZED void swiglu_row(const float* gate, const float* up, float* y, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) y[j] = gate[j] / (1.0F + exponential(-gate[j])) * up[j];
}

// With s = sigmoid(a): d silu(a)/da = s·(1 + a·(1 − s)).
MEMPO_VECTORIZED void swiglu_row_backward(const float* gate, const float* up, const float* g, float* d_gate, float* d_up, int64_t n) {
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) {
    const float a = gate[j], s = 1.0F / (1.0F + exponential(-a));
    d_gate[j] = g[j] * up[j] * s * (1.0F + a * (1.0F - s));
    d_up[j] = g[j] * a * s;
  }
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& given, const at::Tensor& weight, double eps) {
  if (const auto* on = cuda::kernels_for(given)) return cuda::rms_norm(*on, given, weight, eps);
  if (!on_cpu(given)) return plain::rms_norm(given, weight, eps);
  const at::Tensor x = contiguous_rows(given), y = at::empty(x.sizes(), x.options());
  const Rows rows(x);
  const float* w = weight.const_data_ptr<float>();
  float* out = y.mutable_data_ptr<float>();
  at::parallel_for(0, rows.count, rows_per_task(rows.length), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) norm_row(rows.at(r), w, out + r * rows.length, rows.length, static_cast<float>(eps));
  });
  return y;
}

at::Tensor rms_norm_backward(const at::Tensor& given, const at::Tensor& weight, double eps, const at::Tensor& gradient,
                             at::Tensor& weight_gradient) {
  if (const auto* on = cuda::kernels_for(given)) return cuda::rms_norm_backward(*on, given, weight, eps, gradient, weight_gradient);
  if (!on_cpu(given)) return plain::rms_norm_backward(given, weight, eps, gradient, weight_gradient);
  const at::Tensor x = contiguous_rows(given), g = contiguous_rows(gradient), dx = at::empty(x.sizes(), x.options());
  const Rows rows(x), upstream(g);
  const int64_t n = rows.length;
  // Each task sums its own rows; the sums are added in a fixed order.
  const int64_t tasks = at::get_num_threads(), step = (rows.count + tasks - 1) / tasks;
  const at::Tensor partial = at::zeros({tasks, n}, x.options());
  const float* w = weight.const_data_ptr<float>();
  float *out = dx.mutable_data_ptr<float>(), *sums = partial.mutable_data_ptr<float>();
  at::parallel_for(0, tasks, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      for (int64_t r = task * step; r < std::min(rows.count, (task + 1) * step); ++r) {
        norm_row_backward(rows.at(r), w, upstream.at(r), out + r * n, sums + task * n, n, static_cast<float>(eps));
      }
    }
  });
  if (weight_gradient.defined()) weight_gradient.add_(tasks == 1 ? partial[0] : partial.sum(0));
  return dx;
}

at::Tensor swiglu(const at::Tensor& given) {
  if (const auto* on = cuda::kernels_for(given)) return cuda::swiglu(*on, given);
  if (!on_cpu(given)) return plain::swiglu(given);
  const at::Tensor x = given.contiguous();
  const int64_t rows = x.size(0), n = x.size(1) / 2;
  const at::Tensor y = at::empty({rows, n}, x.options());
  const float* in = x.const_data_ptr<float>();
  float* out = y.mutable_data_ptr<float>();
  at::parallel_for(0, rows, rows_per_task(n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) swiglu_row(in + r * 2 * n, in + r * 2 * n + n, out + r * n, n);
  });
  return y;
}

at::Tensor swiglu_backward(const at::Tensor& given, const at::Tensor& gradient) {
  if (const auto* on = cuda::kernels_for(given)) return cuda::swiglu_backward(*on, given, gradient);
  if (!on_cpu(given)) return plain::swiglu_backward(given, gradient);
  const at::Tensor x = given.contiguous(), g = gradient.contiguous(), dx = at::empty(x.sizes(), x.options());
  const int64_t rows = x.size(0), n = x.size(1) / 2;
  const float *in = x.const_data_ptr<float>(), *upstream = g.const_data_ptr<float>();
  float* out = dx.mutable_data_ptr<float>();
  at::parallel_for(0, rows, rows_per_task(n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t wide = r * 2 * n;
      swiglu_row_backward(in + wide, in + wide + n, upstream + r * n, out + wide, out + wide + n, n);
    }
  });
  return dx;
}

}  // namespace mempo::kernels
