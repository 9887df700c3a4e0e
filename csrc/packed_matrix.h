// Weights in the layout that few rows are multiplied by fastest.
#pragma once

#include <ATen/ATen.h>

namespace mempo {

// A linear map for decoding on a CPU: a product of a dozen rows with a weight as it is stored runs at less than half the rate
// of oneDNN's small products with blocks that each lie in one stretch. Holds a copy, in float32.
class PackedMatrix {
 public:
  // Whether this processor and the libtorch that is loaded have such products.
  static bool available();

  // weight [n, k], n ≥ 0, and bias [n], which may be undefined.
  PackedMatrix(const at::Tensor& weight, const at::Tensor& bias);

  // Sets out [m, n] to x · weightᵀ + bias, or adds that to it; x is [m, k]. Runs on the calling thread.
  void multiply(const at::Tensor& x, const at::Tensor& out, bool add) const;

 private:
  int64_t n_, k_;
  at::Tensor packed_, bias_;
};

}  // namespace mempo
