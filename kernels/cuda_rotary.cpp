// CUDA forms of the rotary position embedding: checks and launches.
#include "cuda_forms.h"

namespace mempo::kernels::cuda {

void rotate_(const Kernels& kernels, const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, float sign) {
  if (x.numel() == 0) return;
  const int64_t angles = x.size(0) * (x.size(-1) / 2);
  check(kernels.rotary.rotate(elements_of(x), x.mutable_data_ptr(), layout_of(x), beside(x, cos, angles), beside(x, sin, angles), sign,
                              stream_of(x)));
}

void rotate_and_append_(const Kernels& kernels, const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin,
                        const PagedTable& table) {
  if (qkv.numel() == 0) return;
  const int64_t tokens = qkv.size(0), d = qkv.size(2), angles = tokens * (d / 2);
  check(kernels.rotary.rotate_and_append(elements_of(qkv),
                                         {qkv.mutable_data_ptr(), strides_of(qkv), beside(qkv, cos, angles), beside(qkv, sin, angles),
                                          static_cast<int32_t>(tokens), static_cast<int32_t>(qkv.size(1) - 2 * kv_heads),
                                          static_cast<int32_t>(kv_heads), static_cast<int32_t>(d), table},
                                         stream_of(qkv)));
}

}  // namespace mempo::kernels::cuda
