// Operations as formulas say them, in float64.
#pragma once

#include <ATen/ATen.h>

#include <cmath>

// Softmax attention written out, in float64: token t of a row sees the past and the new up to t.
inline at::Tensor written_out(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values, int64_t past) {
  const int64_t n = q.size(0), heads = q.size(1), d = q.size(2), group = heads / keys.size(0);
  const at::Tensor k = keys.to(at::kDouble).repeat_interleave(group, 0), v = values.to(at::kDouble).repeat_interleave(group, 0);
  at::Tensor scores = at::matmul(q.to(at::kDouble).transpose(0, 1), k.transpose(1, 2)) / std::sqrt(static_cast<double>(d));
  const at::Tensor hidden = at::ones({n, past + n}, at::kBool).tril(past).logical_not();
  scores = scores.masked_fill(hidden, -1e30).softmax(-1);
  return at::matmul(scores, v).transpose(0, 1).reshape({n, heads * d});
}
