// CPU forms of the norm, the rotary embedding and the gated activation.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "kernels.h"
#include "vector.h"

namespace mempo::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

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

MEMPO_VECTORIZED float norm_row(const float* x, const float* weight, float* y, int64_t n, double eps) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < n; ++j) sum += x[j] * x[j];
  const float scale = 1.0F / std::sqrt(sum / static_cast<float>(n) + static_cast<float>(eps));
#pragma omp simd
  for (int64_t j = 0; j < n; ++j) y[j] = x[j] * scale * weight[j];
  return scale;
}

// y = x·r·w with r = rsqrt(mean(x²) + eps): dx = r·(g·w) − x·r³/n·Σ(g·w·x); dw += g·x·r.
MEMPO_VECTORIZED void norm_row_backward(const float* x, const float* weight, const float* g, float r, float* dx,
                                        float* dw, int64_t n) {
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

struct RMSNorm : Function<RMSNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given, const at::Tensor& weight, double eps) {
    const at::Tensor x = contiguous_rows(given);
    const at::Tensor y = at::empty(x.sizes(), x.options());
    const Rows rows(x);
    const at::Tensor scales = at::empty({rows.count}, x.options());
    float *out = y.mutable_data_ptr<float>(), *scale = scales.mutable_data_ptr<float>();
    const float* w = weight.const_data_ptr<float>();
    at::parallel_for(0, rows.count, rows_per_task(rows.length), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) scale[r] = norm_row(rows.at(r), w, out + r * rows.length, rows.length, eps);
    });
    context->save_for_backward({x, weight, scales});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor g = gradients[0].contiguous(), dx = at::empty(x.sizes(), x.options());
    const Rows rows(x);
    const int64_t n = rows.length;
    // Each thread sums its own rows; the sums are added in a fixed order.
    const int64_t tasks = at::get_num_threads(), step = (rows.count + tasks - 1) / tasks;
    const at::Tensor partial = at::zeros({tasks, n}, x.options());
    const float *gradient = g.const_data_ptr<float>(), *w = weight.const_data_ptr<float>(), *scale = saved[2].const_data_ptr<float>();
    float *out = dx.mutable_data_ptr<float>(), *sums = partial.mutable_data_ptr<float>();
    at::parallel_for(0, tasks, 1, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) {
        for (int64_t r = task * step; r < std::min(rows.count, (task + 1) * step); ++r) {
          norm_row_backward(rows.at(r), w, gradient + r * n, scale[r], out + r * n, sums + task * n, n);
        }
      }
    });
    return {dx, partial.sum(0), at::Tensor()};
  }
};

// Turns pairs of one head by an angle; sign −1 turns back, which is the gradient.
MEMPO_VECTORIZED void rotate_head(const float* x, const float* cos, const float* sin, float* y, int64_t half, float sign) {
#pragma omp simd
  for (int64_t j = 0; j < half; ++j) {
    const float a = x[j], b = x[j + half], c = cos[j], s = sign * sin[j];
    y[j] = a * c - b * s;
    y[j + half] = b * c + a * s;
  }
}

at::Tensor rotated(const at::Tensor& given, const at::Tensor& cos, const at::Tensor& sin, float sign) {
  const at::Tensor x = contiguous_rows(given);
  const at::Tensor y = at::empty(x.sizes(), x.options());
  const Rows rows(x);
  const int64_t half = rows.length / 2;
  const float *c = cos.const_data_ptr<float>(), *s = sin.const_data_ptr<float>();
  float* out = y.mutable_data_ptr<float>();
  at::parallel_for(0, rows.count, rows_per_task(rows.length), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t token = r / rows.inner;
      rotate_head(rows.at(r), c + token * half, s + token * half, out + r * rows.length, half, sign);
    }
  });
  return y;
}

struct Rotate : Function<Rotate> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotated(x, cos, sin, 1);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

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

struct SwiGLU : Function<SwiGLU> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given) {
    const at::Tensor x = given.contiguous();
    const int64_t rows = x.size(0), n = x.size(1) / 2;
    const at::Tensor y = at::empty({rows, n}, x.options());
    const float* in = x.const_data_ptr<float>();
    float* out = y.mutable_data_ptr<float>();
    at::parallel_for(0, rows, rows_per_task(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) swiglu_row(in + r * 2 * n, in + r * 2 * n + n, out + r * n, n);
    });
    context->save_for_backward({x});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0], g = gradients[0].contiguous();
    const int64_t rows = x.size(0), n = x.size(1) / 2;
    const at::Tensor dx = at::empty(x.sizes(), x.options());
    const float *in = x.const_data_ptr<float>(), *gradient = g.const_data_ptr<float>();
    float* out = dx.mutable_data_ptr<float>();
    at::parallel_for(0, rows, rows_per_task(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t wide = r * 2 * n;
        swiglu_row_backward(in + wide, in + wide + n, gradient + r * n, out + wide, out + wide + n, n);
      }
    });
    return {dx};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return on_cpu(x) ? RMSNorm::apply(x, weight, eps) : plain::rms_norm(x, weight, eps);
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  return on_cpu(x) ? Rotate::apply(x, cos, sin) : plain::rotate(x, cos, sin);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  return on_cpu(gate_up) ? SwiGLU::apply(gate_up) : plain::swiglu(gate_up);
}

}  // namespace mempo::kernels
