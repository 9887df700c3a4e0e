// Weights in the layout that MKL multiplies few rows by fastest.
#pragma once

#include <ATen/ATen.h>

namespace mempo {

// A linear map for decoding on a CPU: a product of a dozen rows with a weight as it is stored runs at half the rate of one
// with a weight that MKL has packed for that number of rows. Holds a copy, in float32.
class PackedMatrix {
 public:
  // The number of rows that weights are packed for: what is multiplied must have as many.
  static constexpr int64_t kRows = 16;

  // Whether the libtorch that is loaded has MKL's packed products.
  static bool available();

  // weight [n, k], n ≥ 0, and bias [n], which may be undefined.
  PackedMatrix(const at::Tensor& weight, const at::Tensor& bias);

  // Sets out [kRows, n] to x · weightᵀ + bias, or adds that to it; x is [kRows, k]. Runs on the calling thread where that is
  // one of a team.
  void multiply(const at::Tensor& x, const at::Tensor& out, bool add) const;

 private:
  int64_t n_, k_;
  at::Tensor packed_, bias_;
};

}  // namespace mempo
