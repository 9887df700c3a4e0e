// Causal attention of packed rows, each row on its own: no work on padding.
#include "transformer.h"

namespace mempo {

at::Tensor row_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                         const at::Tensor& mask) {
  const bool grouped = q.size(1) != k.size(1);
  const auto heads_first = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0); };
  const at::Tensor mixed = at::scaled_dot_product_attention(
      heads_first(q), heads_first(k), heads_first(v),
      mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt, 0.0, causal, std::nullopt, grouped);
  return mixed.squeeze(0).transpose(0, 1).reshape({q.size(0), -1});
}

at::Tensor RowAttention::attend(int64_t, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  std::vector<int64_t> lengths;
  for (size_t r = 0; r + 1 < offsets_.size(); ++r) lengths.push_back(offsets_[r + 1] - offsets_[r]);
  // One split, not a narrow for each row: its backward pass joins the rows' gradients, where each narrow would add a
  // whole tensor of mostly zeros.
  const auto queries = q.split_with_sizes(lengths), keys = k.split_with_sizes(lengths), values = v.split_with_sizes(lengths);
  std::vector<at::Tensor> rows;
  for (size_t r = 0; r < lengths.size(); ++r) {
    rows.push_back(row_attention(queries[r], keys[r], values[r], /*causal=*/true, at::Tensor()));
  }
  return rows.size() == 1 ? rows[0] : at::cat(rows, 0);
}

}  // namespace mempo
