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
  std::vector<at::Tensor> rows;
  for (size_t r = 0; r + 1 < offsets_.size(); ++r) {
    const int64_t begin = offsets_[r], length = offsets_[r + 1] - begin;
    rows.push_back(row_attention(q.narrow(0, begin, length), k.narrow(0, begin, length), v.narrow(0, begin, length),
                                 /*causal=*/true, at::Tensor()));
  }
  return rows.size() == 1 ? rows[0] : at::cat(rows, 0);
}

}  // namespace mempo
