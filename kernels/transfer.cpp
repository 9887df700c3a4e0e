#include "transfer.h"

namespace mempo::kernels {

at::Tensor to_device(const at::Tensor& host, at::Device device) {
  return device.is_cpu() ? host : host.pin_memory().to(device, host.scalar_type(), /*non_blocking=*/true);
}

at::Tensor to_host(const at::Tensor& x) {
  if (x.is_cpu()) return x;
  return at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(true)).copy_(x);
}

void Staging::allocate(at::Device device) {
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  host_ = at::zeros({bytes_}, bytes.pinned_memory(!device.is_cpu()));
  device_ = at::zeros({bytes_}, bytes.device(device));
}

}  // namespace mempo::kernels
