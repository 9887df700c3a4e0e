// Attention of packed rows by ATen's flash kernel, in parts whose results are merged: no work on padding, no mask.
#include "attention.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "kernels.h"

namespace mempo {

namespace {

// Tokens [begin, begin + count) of [T, heads, d] as [1, heads, count, d].
at::Tensor heads_first(const at::Tensor& x, int64_t begin, int64_t count) {
  return x.narrow(0, begin, count).transpose(0, 1).unsqueeze(0);
}

// A result of some queries: [n, heads, d] and [heads, n].
struct Part {
  at::Tensor mixed, log_sums;
};

Part flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  const auto [mixed, log_sums] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal);
  return {mixed.squeeze(0).transpose(0, 1), log_sums.squeeze(0)};
}

// Merges the attention over further keys into `part`, in place: each side weighs what its scores sum to.
void merge(Part part, const Part& further) {
  const at::Tensor whole = at::logaddexp(part.log_sums, further.log_sums);
  const auto weight = [&](const at::Tensor& log_sums) { return log_sums.sub(whole).exp_().t().unsqueeze(-1).to(part.mixed.scalar_type()); };
  part.mixed.mul_(weight(part.log_sums)).addcmul_(further.mixed, weight(further.log_sums));
  part.log_sums.copy_(whole);
}

// Scaled dot-product attention of n queries over m ≥ n keys, the last n of which are their own.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const int64_t n = q.size(0), m = k.size(0), group = q.size(1) / k.size(1);
  std::optional<at::Tensor> mask;
  if (m > n && n > 1) mask = at::ones({n, m}, q.options().dtype(at::kBool).requires_grad(false)).tril(m - n);
  // The kernels of CUDA that take a mask take no groups of heads: keys and values are repeated for them.
  const bool repeat = mask.has_value() && group > 1;
  const auto all = [&](const at::Tensor& x) { return heads_first(repeat ? x.repeat_interleave(group, 1) : x, 0, m); };
  const at::Tensor mixed = at::scaled_dot_product_attention(heads_first(q, 0, n), all(k), all(v), mask, 0.0, /*is_causal=*/m == n && n > 1,
                                                            std::nullopt, /*enable_gqa=*/group > 1 && !repeat);
  return mixed.squeeze(0).transpose(0, 1).reshape({n, -1});
}

// Rows without a past of their own, behind `past` tokens that come before theirs among keys and values.
at::Tensor attend_behind(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values, const Tree& rows, int64_t past) {
  Tree behind{{0}, {-1}, {0}};
  for (const int64_t offset : rows.offsets) behind.offsets.push_back(past + offset);
  behind.parents.resize(behind.offsets.size() - 1, 0);
  behind.starts.resize(behind.offsets.size() - 1, past);
  return FlashAttention(behind, q.device(), /*first=*/1).attend(q, keys, values).mixed;
}

}  // namespace

void Attention::rotate_(int64_t, const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin) {
  kernels::rotate_(qkv.narrow(1, 0, qkv.size(1) - kv_heads), cos, sin, 1);
}

TreeAttention::TreeAttention(Tree tree) : tree_(std::move(tree)) {
  for (int64_t r = 0; r < tree_.rows(); ++r) {
    const int64_t begin = tree_.offsets[r], length = tree_.offsets[r + 1] - begin;
    own_.push_back({begin, length, begin, length});
    add_ancestors(r);
  }
}

void TreeAttention::add_ancestors(int64_t row) {
  const int64_t begin = tree_.offsets[row], length = tree_.offsets[row + 1] - begin;
  int64_t end = tree_.starts[row];
  for (int64_t a = tree_.parents[row]; a >= 0; end = tree_.starts[a], a = tree_.parents[a]) {
    const int64_t keys = tree_.offsets[a], count = end - tree_.starts[a];
    const auto continues = [&](const Span& s) { return s.keys == keys && s.key_count == count && s.queries + s.query_count == begin; };
    const auto found = std::find_if(ancestors_.rbegin(), ancestors_.rend(), continues);
    if (found != ancestors_.rend()) {
      found->query_count += length;
    } else {
      ancestors_.push_back({begin, length, keys, count});
    }
  }
}

Attended TreeAttention::attend(int64_t, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (FlashAttention::suits(q)) {
    if (!flash_) flash_.emplace(tree_, q.device());
    return flash_->attend(q, k, v);
  }
  if (!q.is_cpu()) return {plain_tree_attention(q, k, v, tree_), {}};
  const int64_t tokens = q.size(0), heads = q.size(1);
  const at::Tensor mixed = at::empty({tokens, heads, q.size(2)}, q.options());
  const at::Tensor log_sums = at::empty({heads, tokens}, q.options().dtype(at::kFloat));
  const auto part = [&](const Span& s) { return Part{mixed.narrow(0, s.queries, s.query_count), log_sums.narrow(1, s.queries, s.query_count)}; };
  const auto run = [&](const Span& s, bool causal) {
    return flash(heads_first(q, s.queries, s.query_count), heads_first(k, s.keys, s.key_count), heads_first(v, s.keys, s.key_count), causal);
  };
  for (const Span& s : own_) {
    const Part result = run(s, /*causal=*/true);
    part(s).mixed.copy_(result.mixed);
    part(s).log_sums.copy_(result.log_sums);
  }
  for (const Span& s : ancestors_) merge(part(s), run(s, /*causal=*/false));
  return {mixed.view({tokens, -1}), log_sums};
}

// With the log-sum-exp over all keys of a query, the flash kernel's gradient of each part is that part of the whole one.
void TreeAttention::backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const Attended& attended, at::Tensor dq, at::Tensor dk, at::Tensor dv) const {
  if (flash_) return flash_->backward(gradient, q, k, v, attended, dq, dk, dv);
  if (!q.is_cpu()) {
    at::AutoGradMode with_grad(true);
    const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(true); };
    const at::Tensor leaf_q = leaf(q), leaf_k = leaf(k), leaf_v = leaf(v);
    torch::autograd::backward({plain_tree_attention(leaf_q, leaf_k, leaf_v, tree_)}, {gradient});
    at::NoGradGuard no_grad;
    dq.copy_(leaf_q.grad());
    dk.copy_(leaf_k.grad());
    dv.copy_(leaf_v.grad());
    return;
  }
  const at::Tensor upstream = gradient.view(q.sizes()), mixed = attended.mixed.view(q.sizes());
  const auto run = [&](const Span& s, bool causal) {
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_first(upstream, s.queries, s.query_count), heads_first(q, s.queries, s.query_count),
        heads_first(k, s.keys, s.key_count), heads_first(v, s.keys, s.key_count), heads_first(mixed, s.queries, s.query_count),
        attended.log_sums.narrow(1, s.queries, s.query_count).unsqueeze(0), 0.0, causal);
  };
  for (const Span& s : own_) {
    const auto [for_q, for_k, for_v] = run(s, /*causal=*/true);
    heads_first(dq, s.queries, s.query_count).copy_(for_q);
    heads_first(dk, s.keys, s.key_count).copy_(for_k);
    heads_first(dv, s.keys, s.key_count).copy_(for_v);
  }
  for (const Span& s : ancestors_) {
    const auto [for_q, for_k, for_v] = run(s, /*causal=*/false);
    heads_first(dq, s.queries, s.query_count).add_(for_q);
    heads_first(dk, s.keys, s.key_count).add_(for_k);
    heads_first(dv, s.keys, s.key_count).add_(for_v);
  }
}

at::Tensor plain_tree_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Tree& tree) {
  std::vector<at::Tensor> rows;
  for (int64_t r = 0; r < tree.rows(); ++r) {
    const int64_t begin = tree.offsets[r], length = tree.offsets[r + 1] - begin;
    std::vector<at::Tensor> keys{k.narrow(0, begin, length)}, values{v.narrow(0, begin, length)};
    int64_t end = tree.starts[r];
    for (int64_t a = tree.parents[r]; a >= 0; end = tree.starts[a], a = tree.parents[a]) {
      keys.insert(keys.begin(), k.narrow(0, tree.offsets[a], end - tree.starts[a]));
      values.insert(values.begin(), v.narrow(0, tree.offsets[a], end - tree.starts[a]));
    }
    rows.push_back(plain_attention(q.narrow(0, begin, length), at::cat(keys), at::cat(values)));
  }
  return at::cat(rows);
}

at::Tensor bidirectional_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::vector<int64_t>& offsets) {
  const size_t rows = offsets.size() - 1;
  const at::Tensor mixed = at::empty(q.sizes(), q.options());
  for (size_t r = 0, next; r < rows; r = next) {
    const int64_t begin = offsets[r], length = offsets[r + 1] - begin;
    for (next = r + 1; next < rows && offsets[next + 1] - offsets[next] == length;) ++next;
    // Rows of one length that follow each other are one call: [rows, heads, length, head_dim].
    const auto same = [&](const at::Tensor& x) {
      return x.narrow(0, begin, offsets[next] - begin).unflatten(0, {-1, length}).transpose(1, 2);
    };
    same(mixed).copy_(at::scaled_dot_product_attention(same(q), same(k), same(v)));
  }
  return mixed.flatten(1);
}

at::Tensor continued_attention(const at::Tensor& q, const at::Tensor& past_keys, const at::Tensor& past_values,
                               const at::Tensor& k, const at::Tensor& v, const std::vector<int64_t>& lengths) {
  Tree rows{{0}, {}, {}};  // those that have no past are a tree without branches
  for (const int64_t length : lengths) {
    rows.offsets.push_back(rows.offsets.back() + length);
    rows.parents.push_back(-1);
    rows.starts.push_back(0);
  }
  if (!past_keys.defined()) return TreeAttention(rows).attend(0, q, k, v).mixed;
  if (FlashAttention::suits(q)) return attend_behind(q, at::cat({past_keys, k}), at::cat({past_values, v}), rows, past_keys.size(0));
  if (!q.is_cpu()) {
    std::vector<at::Tensor> mixed;
    for (size_t r = 0; r < lengths.size(); ++r) {
      const auto own = [&](const at::Tensor& x) { return x.narrow(0, rows.offsets[r], lengths[r]); };
      mixed.push_back(plain_attention(own(q), at::cat({past_keys, own(k)}), at::cat({past_values, own(v)})));
    }
    return at::cat(mixed);
  }
  const int64_t n = q.size(0), past = past_keys.size(0);
  const Attended own = TreeAttention(rows).attend(0, q, k, v);
  merge({own.mixed.view(q.sizes()), own.log_sums}, flash(heads_first(q, 0, n), heads_first(past_keys, 0, past), heads_first(past_values, 0, past), /*causal=*/false));
  return own.mixed;
}

}  // namespace mempo
