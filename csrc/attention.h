// How queries meet keys and values.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "flash_attention.h"
#include "tree.h"

namespace mempo {

// Of the T tokens of a packed batch.
class Attention {
 public:
  virtual ~Attention() = default;
  // Rotates queries and keys by the positions of the tokens: qkv [T, heads + 2 · kv_heads, head_dim], queries, keys and values,
  // in place; cos and sin as in kernels.h. Where there is a cache, it takes in the keys and values that stay.
  virtual void rotate_(int64_t layer, const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin);
  // q [T, heads, head_dim], k and v [T, kv_heads, head_dim], rotated.
  virtual Attended attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) = 0;
};

// Each row of a tree attends to its ancestors and, causally, to itself, as if it were whole: an ancestor's keys and values
// are computed once, and their gradient is the sum over all rows that look at them.
class TreeAttention final : public Attention {
 public:
  explicit TreeAttention(Tree tree);
  Attended attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;
  // Sets dq, dk and dv (shapes of q, k and v) from the gradient of `attended.mixed`.
  void backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const Attended& attended, at::Tensor dq, at::Tensor dk, at::Tensor dv) const;

 private:
  // Queries [queries, queries + query_count) of the batch look at the keys [keys, keys + key_count).
  struct Span {
    int64_t queries, query_count, keys, key_count;
  };
  void add_ancestors(int64_t row);

  Tree tree_;
  std::vector<Span> own_;        // each row at itself
  std::vector<Span> ancestors_;  // rows that follow each other and look at the same keys are one
  std::optional<FlashAttention> flash_;  // where it suits, from the first layer on
};

// The same as one differentiable chain of plain operations: for devices without the other form, and for tests.
at::Tensor plain_tree_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Tree& tree);

// Each row of a packed batch attends to all of itself, in both directions: [T, heads · head_dim].
at::Tensor bidirectional_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::vector<int64_t>& offsets);

// Attention of rows of the given lengths, one after the other in q, over the past they have in common (keys and values
// [m, kv_heads, head_dim], or undefined) and, causally, over themselves.
at::Tensor continued_attention(const at::Tensor& q, const at::Tensor& past_keys, const at::Tensor& past_values,
                               const at::Tensor& k, const at::Tensor& v, const std::vector<int64_t>& lengths);

}  // namespace mempo
