#include "flash_attention.h"

#include <ATen/Context.h>

#include <algorithm>

#include "kernels.h"
#include "transfer.h"

namespace mempo {

namespace {

// The flash kernel's backward pass adds in no order unless it is told to.
class Deterministic {
 public:
  Deterministic() {
    context_.setDeterministicAlgorithms(true, /*warn_only=*/false);
    context_.setDeterministicFillUninitializedMemory(false);
  }
  ~Deterministic() {
    context_.setDeterministicAlgorithms(was_, warned_);
    context_.setDeterministicFillUninitializedMemory(filled_);
  }
  Deterministic(const Deterministic&) = delete;
  Deterministic& operator=(const Deterministic&) = delete;

 private:
  at::Context& context_ = at::globalContext();
  bool was_ = context_.deterministicAlgorithms(), warned_ = context_.deterministicAlgorithmsWarnOnly();
  bool filled_ = context_.deterministicFillUninitializedMemory();
};

at::Tensor on_device(const std::vector<int64_t>& numbers, at::ScalarType dtype, at::Device device) {
  return kernels::to_device(at::tensor(numbers, at::kLong).to(dtype), device);
}

}  // namespace

KeyPlan::KeyPlan(const Tree& tree, int64_t first) {
  offsets.push_back(0);
  for (int64_t r = first; r < tree.rows(); ++r) {
    std::vector<std::pair<int64_t, int64_t>> spans{{tree.offsets[r], tree.offsets[r + 1]}};  // from the row up to its root
    int64_t end = tree.starts[r];
    for (int64_t a = tree.parents[r]; a >= 0; end = tree.starts[a], a = tree.parents[a]) {
      spans.emplace_back(tree.offsets[a], tree.offsets[a] + end - tree.starts[a]);
    }
    for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
      for (int64_t t = span->first; t < span->second; ++t) keys.push_back(t);
    }
    most_queries = std::max(most_queries, tree.offsets[r + 1] - tree.offsets[r]);
    most_keys = std::max(most_keys, static_cast<int64_t>(keys.size()) - offsets.back());
    offsets.push_back(static_cast<int64_t>(keys.size()));
  }
}

bool KeyPlan::is_batch(int64_t tokens) const {
  if (static_cast<int64_t>(keys.size()) != tokens) return false;
  for (int64_t t = 0; t < tokens; ++t) {
    if (keys[t] != t) return false;
  }
  return true;
}

bool FlashAttention::suits(const at::Tensor& q) {
  return q.is_cuda() && q.scalar_type() == at::kBFloat16 && q.size(2) % 8 == 0 && q.size(2) <= 256;
}

FlashAttention::FlashAttention(const Tree& tree, at::Device device, int64_t first) {
  const KeyPlan plan(tree, first);
  std::vector<int64_t> queries;
  for (int64_t r = first; r <= tree.rows(); ++r) queries.push_back(tree.offsets[r] - tree.offsets[first]);
  most_queries_ = plan.most_queries;
  most_keys_ = plan.most_keys;
  if (!plan.is_batch(tree.offsets.back())) keys_ = on_device(plan.keys, at::kLong, device);
  query_offsets_ = on_device(queries, at::kInt, device);
  key_offsets_ = on_device(plan.offsets, at::kInt, device);
  const auto numbers = at::TensorOptions().dtype(at::kUInt64).device(device);
  random_state_ = at::empty({2}, numbers);
  unused_ = at::empty({}, numbers);
}

at::Tensor FlashAttention::gathered(const at::Tensor& x) const { return keys_.defined() ? x.index_select(0, keys_) : x; }

Attended FlashAttention::attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
  const auto result = at::_flash_attention_forward(q, gathered(k), gathered(v), query_offsets_, key_offsets_, most_queries_, most_keys_,
                                                   /*dropout_p=*/0.0, /*is_causal=*/true, /*return_debug_mask=*/false);
  return {std::get<0>(result).flatten(1), std::get<1>(result)};
}

void FlashAttention::backward(const at::Tensor& gradient, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const Attended& attended, at::Tensor dq, at::Tensor dk, at::Tensor dv) const {
  const Deterministic same_bits;
  const auto [for_q, for_k, for_v] = at::_flash_attention_backward(
      gradient.view(q.sizes()), q, gathered(k), gathered(v), attended.mixed.view(q.sizes()), attended.log_sums, query_offsets_, key_offsets_,
      most_queries_, most_keys_, /*dropout_p=*/0.0, /*is_causal=*/true, random_state_, unused_);
  dq.copy_(for_q);
  add_up(for_k, dk);
  add_up(for_v, dv);
}

void FlashAttention::add_up(const at::Tensor& copies, at::Tensor sum) const {
  if (!keys_.defined()) {
    sum.copy_(copies);
    return;
  }
  // In float32, since a prompt has as many copies as rows behind it.
  const at::Tensor whole = at::zeros(sum.sizes(), sum.options().dtype(at::kFloat));
  kernels::add_rows_(whole.flatten(1), keys_, copies.flatten(1));
  sum.copy_(whole);
}

}  // namespace mempo
