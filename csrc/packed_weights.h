// Weights in the layout that MKL multiplies few rows by fastest.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "weights.h"

namespace mempo {

// For decoding on a CPU: a product of a dozen rows with a weight as it is stored runs at half the rate of one with a weight
// that MKL has packed for that number of rows. Holds a copy of each weight, good for as long as the weights do not change.
class PackedWeights {
 public:
  // The number of rows that weights are packed for; fewer are filled up.
  static constexpr int64_t kRows = 16;

  // Whether the libtorch that is loaded has MKL's packed products.
  static bool available();

  void add(const Parameter& p);
  // Whether a product of so many rows is faster here.
  bool suits(const Parameter& p, int64_t rows) const;
  // x · weightᵀ for at most kRows rows, float32.
  at::Tensor product(const Parameter& p, const at::Tensor& x) const;

 private:
  std::vector<at::Tensor> packed_;  // by the parameter's index; undefined for those not added
};

}  // namespace mempo
