// Attention of rows behind other rows by one call of ATen's flash kernel on CUDA: the keys of each row, its ancestors' and its
// own, are gathered behind one another, and the kernel's causal mask lets the last query of a row see all of the row's keys.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "tree.h"

namespace mempo {

// The keys that rows look at, as places in a packed batch: row r (from the first on) has [offsets[r], offsets[r + 1]) of them.
struct KeyPlan {
  std::vector<int64_t> keys, offsets;
  int64_t most_queries = 0, most_keys = 0;  // of one row

  // Of the rows of a tree from `first` on; the rows before only are looked at.
  explicit KeyPlan(const Tree& tree, int64_t first = 0);
  // Whether the rows look at just the batch, in its order.
  bool is_batch(int64_t tokens) const;
};

class FlashAttention {
 public:
  // Whether the kernel takes such queries.
  static bool suits(const at::Tensor& q);

  // For the rows of a tree from `first` on.
  FlashAttention(const Tree& tree, at::Device device, int64_t first = 0);

  // q [T, heads, head_dim] of those rows; k and v [tokens of the tree, kv_heads, head_dim]. `mixed` is [T, heads · head_dim].
  Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;
  // Sets dq, dk and dv; the same bits every time.
  void backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const Attended& attended, at::Tensor dq, at::Tensor dk, at::Tensor dv) const;

 private:
  at::Tensor gathered(const at::Tensor& x) const;
  // Adds up what each token's copies have: `sum` [tokens, kv_heads, head_dim].
  void add_up(const at::Tensor& copies, at::Tensor sum) const;

  int64_t most_queries_, most_keys_;
  at::Tensor keys_;                            // [K] int64; undefined where the keys are the batch itself
  at::Tensor query_offsets_, key_offsets_;     // int32
  at::Tensor random_state_, unused_;           // what the kernel wants beside, without dropout
};

}  // namespace mempo
