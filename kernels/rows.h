// Passes over one row of logits that several CPU forms share.
#pragma once

#include <cstdint>

namespace mempo::kernels {

// Elements summed in float32 before the sum goes on in double: keeps the error of long rows small.
constexpr int64_t kSumBlock = 4096;

float largest(const float* x, int64_t n);

// Σ exp((x[j] − shift) · factor)
float sum_exp(const float* x, int64_t n, float shift, float factor);

}  // namespace mempo::kernels
