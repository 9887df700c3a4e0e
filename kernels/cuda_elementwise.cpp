// CUDA forms of the norm and the gated activation: checks, memory for results, launches.
#include <algorithm>

#include "cuda_forms.h"

namespace mempo::kernels::cuda {

namespace {

at::Tensor contiguous_rows(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

// Into how many parts the rows of a sum are cut: a function of their number, so that sums repeat.
int64_t parts_of(int64_t rows) {
  constexpr int64_t kRows = 64, kMost = 128;
  return std::clamp<int64_t>(rows / kRows, 1, kMost);
}

}  // namespace

at::Tensor rms_norm(const Kernels& kernels, const at::Tensor& given, const at::Tensor& weight, double eps) {
  const at::Tensor x = contiguous_rows(given), y = at::empty(x.sizes(), x.options());
  if (x.numel() == 0) return y;
  check(kernels.elementwise.rms_norm(elements_of(x), x.const_data_ptr(), layout_of(x), beside(x, weight, x.size(-1)),
                                     static_cast<float>(eps), y.mutable_data_ptr(), stream_of(x)));
  return y;
}

at::Tensor rms_norm_backward(const Kernels& kernels, const at::Tensor& given, const at::Tensor& weight, double eps, const at::Tensor& gradient,
                             const at::Tensor& weight_gradient) {
  const at::Tensor x = contiguous_rows(given), g = contiguous_rows(gradient), dx = at::empty(x.sizes(), x.options());
  if (x.numel() == 0) return dx;
  TORCH_CHECK(g.sizes() == x.sizes() && g.scalar_type() == x.scalar_type(), "the gradient must be like x");
  const RowLayout layout = layout_of(x), upstream = layout_of(g);
  const auto floats = x.options().dtype(at::kFloat);
  const at::Tensor scales = weight_gradient.defined() ? at::empty({layout.rows}, floats) : at::Tensor();
  check(kernels.elementwise.rms_norm_backward(elements_of(x), x.const_data_ptr(), layout, beside(x, weight, layout.n), static_cast<float>(eps),
                                              g.const_data_ptr(), upstream, dx.mutable_data_ptr(),
                                              scales.defined() ? scales.mutable_data_ptr<float>() : nullptr, stream_of(x)));
  if (!weight_gradient.defined()) return dx;
  TORCH_CHECK(weight_gradient.is_contiguous() && weight_gradient.numel() == layout.n, "the gradient of the weight must be like it");
  const int64_t parts = parts_of(layout.rows);
  const at::Tensor partial = at::empty({parts, layout.n}, floats);
  check(kernels.elementwise.rms_norm_weight_gradient(elements_of(x), x.const_data_ptr(), layout, scales.const_data_ptr<float>(), g.const_data_ptr(),
                                                     upstream, partial.mutable_data_ptr<float>(), parts,
                                                     weight_gradient.mutable_data_ptr<float>(), stream_of(x)));
  return dx;
}

at::Tensor swiglu(const Kernels& kernels, const at::Tensor& given) {
  const at::Tensor x = given.contiguous();
  const int64_t rows = x.size(0), n = x.size(1) / 2;
  const at::Tensor y = at::empty({rows, n}, x.options());
  if (y.numel() > 0) check(kernels.elementwise.swiglu(elements_of(x), x.const_data_ptr(), rows, n, y.mutable_data_ptr(), stream_of(x)));
  return y;
}

at::Tensor swiglu_backward(const Kernels& kernels, const at::Tensor& given, const at::Tensor& gradient) {
  const at::Tensor x = given.contiguous(), g = gradient.contiguous(), dx = at::empty(x.sizes(), x.options());
  const int64_t rows = x.size(0), n = x.size(1) / 2;
  if (g.numel() == 0) return dx;
  check(kernels.elementwise.swiglu_backward(elements_of(x), x.const_data_ptr(), beside(x, g, rows * n), rows, n, dx.mutable_data_ptr(), stream_of(x)));
  return dx;
}

}  // namespace mempo::kernels::cuda
