// The CUDA forms of the fused operations over tensors. They exist once a table of kernels is installed.
#pragma once

#include <ATen/ATen.h>

#include "cuda.h"
#include "kernels.h"

namespace mempo::kernels::cuda {

// Takes the kernels of a table for tensors of a kind of device from here on: CUDA, or in tests the CPU with kernels that
// run there; null takes them away. Throws where the table is of another interface.
void install(const Kernels* table, c10::DeviceType device);

// The kernels that serve a tensor by its device and dtype, or null.
const Kernels* kernels_for(const at::Tensor& x);

// For the forms: the elements of a tensor that kernels_for serves, the stream on which its device works now, and an
// exception for what a launcher returned.
Elements elements_of(const at::Tensor& x);
void* stream_of(const at::Tensor& x);
void check(Error error);
// A tensor [outer, inner, n] or [rows, n] with contiguous rows.
RowLayout layout_of(const at::Tensor& x);
// The strides of a tensor [tokens, heads, d] with contiguous heads.
Strides strides_of(const at::Tensor& x);
// A tensor that goes with x: of its dtype, on its device, contiguous, of so many elements.
const void* beside(const at::Tensor& x, const at::Tensor& other, int64_t numel);

// See kernels.h.
at::Tensor rms_norm(const Kernels& kernels, const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor rms_norm_backward(const Kernels& kernels, const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& gradient,
                             const at::Tensor& weight_gradient);
void rotate_(const Kernels& kernels, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, float sign);
// The keys and values go where the table says.
void rotate_and_append_(const Kernels& kernels, const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin,
                        const PagedTable& table);
at::Tensor swiglu(const Kernels& kernels, const at::Tensor& gate_up);
at::Tensor swiglu_backward(const Kernels& kernels, const at::Tensor& gate_up, const at::Tensor& gradient);
void adamw_(const Kernels& kernels, const std::vector<AdamwParameter>& parameters, const AdamwOptions& options);
void add_rows_(const Kernels& kernels, const at::Tensor& sums, const at::Tensor& ids, const at::Tensor& rows);

}  // namespace mempo::kernels::cuda
