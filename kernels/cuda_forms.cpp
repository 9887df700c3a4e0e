// What all CUDA forms share.
#include "cuda_forms.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>

namespace mempo::kernels::cuda {

namespace {

const Kernels* installed = nullptr;
c10::DeviceType served = c10::DeviceType::CUDA;

}  // namespace

void install(const Kernels* table, c10::DeviceType device) {
  TORCH_CHECK(table == nullptr || std::strcmp(table->interface, MEMPO_CUDA_INTERFACE) == 0,
              "libmempo_cuda.so is of another version of this program; `make cuda` builds it anew");
  installed = table;
  served = device;
}

const Kernels* kernels_for(const at::Tensor& x) {
  const bool fits = x.device().type() == served && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
  return fits ? installed : nullptr;
}

Elements elements_of(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? Elements::bfloat16 : Elements::float32;
}

void* stream_of(const at::Tensor& x) {
  if (x.is_cpu()) return nullptr;
  return c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()).native_handle();
}

void check(Error error) { TORCH_CHECK(error == nullptr, "a CUDA kernel could not be started: ", error); }

RowLayout layout_of(const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 2 || x.dim() == 3, "rows of a tensor of 2 or 3 dimensions are needed");
  TORCH_CHECK(x.stride(-1) == 1, "the last dimension must be contiguous");
  const int64_t inner = x.dim() == 3 ? x.size(1) : 1;
  return {x.size(0) * inner, x.size(-1), inner, x.stride(0), x.dim() == 3 ? x.stride(1) : 0};
}

Strides strides_of(const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 3 && x.stride(2) == 1, "heads must be contiguous");
  return {x.stride(0), x.stride(1)};
}

const void* beside(const at::Tensor& x, const at::Tensor& other, int64_t numel) {
  TORCH_CHECK(other.scalar_type() == x.scalar_type() && other.device() == x.device(), "tensors of one dtype and device are needed");
  TORCH_CHECK(other.is_contiguous() && other.numel() == numel, "a contiguous tensor of ", numel, " elements is needed");
  return other.const_data_ptr();
}

}  // namespace mempo::kernels::cuda
