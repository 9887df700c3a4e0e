// Runs the CUDA forms on the CPU: their kernels are compiled for a GPU in software (emulation/).
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "check.h"
#include "cuda_forms.h"
#include "emulation/emulation.h"

namespace emulated {

// While one lives, tensors on the CPU are served by the CUDA forms.
struct GPU {
  GPU() { mempo::kernels::cuda::install(mempo_cuda_kernels(), c10::DeviceType::CPU); }
  ~GPU() { mempo::kernels::cuda::install(nullptr, c10::DeviceType::CUDA); }
  GPU(const GPU&) = delete;
  GPU& operator=(const GPU&) = delete;
};

// Whether two tensors hold the same bits.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& x) { return x.contiguous().view(at::kByte); };
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && (a.numel() == 0 || at::equal(bytes(a), bytes(b)));
}

// What `compute` gives on the emulated GPU. It runs with threads and blocks in several orders and must give the same bits in
// each; it must not change what it is given.
inline std::vector<at::Tensor> in_every_order(const std::function<std::vector<at::Tensor>()>& compute) {
  const GPU gpu;
  std::vector<at::Tensor> first;
  for (const auto order : {emulation::Order::ascending, emulation::Order::descending, emulation::Order::shuffled}) {
    emulation::set_order(order);
    const std::vector<at::Tensor> found = compute();
    if (first.empty()) first = found;
    for (size_t k = 0; k < found.size(); ++k) EXPECT(same_bits(found[k], first[k]));
  }
  emulation::set_order(emulation::Order::ascending);
  return first;
}

// The largest distance of two tensors in units of `absolute + relative · |wanted|`: at most 1 is near. Infinities and NaN are
// near to themselves only.
inline double distance(const at::Tensor& found, const at::Tensor& wanted, double absolute, double relative) {
  if (found.numel() == 0) return 0;
  const at::Tensor a = found.to(at::kDouble), b = wanted.to(at::kDouble);
  const at::Tensor alike = a.eq(b).logical_or(a.isnan().logical_and(b.isnan()));
  const at::Tensor units = (a - b).abs().div(b.abs().mul(relative).add(absolute)).masked_fill(alike, 0);
  return units.nan_to_num(INFINITY).max().item<double>();
}

// What rounding to a dtype does to a number of some operations, relative to it.
inline double rounding(at::ScalarType dtype) { return dtype == at::kBFloat16 ? 0x1p-7 : 2e-6; }

}  // namespace emulated
