// Rows of a packed batch that go on behind others, and what attention gives for them.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace mempo {

// What attention gives: the mixed values, and for the backward pass the log-sum-exp of each query's scores.
struct Attended {
  at::Tensor mixed;     // [T, heads · head_dim]
  at::Tensor log_sums;  // [heads, T] float32; undefined where no backward pass needs it
};

// The rows of a packed batch as a tree: row r has the tokens [offsets[r], offsets[r+1]) of its own, behind the first
// starts[r] tokens of the row parents[r] (an earlier one; −1: behind nothing, and starts[r] is 0).
struct Tree {
  std::vector<int64_t> offsets, parents, starts;
  int64_t rows() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

}  // namespace mempo
