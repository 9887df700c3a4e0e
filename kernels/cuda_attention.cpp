#include "cuda_attention.h"

#include <algorithm>
#include <cmath>

namespace mempo::kernels::cuda {

namespace {

// Blocks that keep the largest GPUs busy: four for each of some 130 multiprocessors.
constexpr int64_t kBlocks = 512, kMostShares = 64;

}  // namespace

void paged_attention(const Kernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PagedTable& table, at::Tensor& out) {
  const int64_t tokens = q.size(0), heads = q.size(1), kv_heads = k.size(1), d = q.size(2);
  TORCH_CHECK(d <= kWidestHead && heads % kv_heads == 0 && out.is_contiguous(), "attention over pages has no kernel for this shape");
  // By the number of tokens alone: a graph that was captured serves all lengths.
  const int64_t shares = std::clamp<int64_t>(kBlocks / std::max<int64_t>(tokens * kv_heads, 1), 1, kMostShares);
  const auto numbers = q.options().dtype(at::kFloat);
  at::Tensor partial, sums;
  if (shares > 1) {
    partial = at::empty({tokens, heads, shares, d}, numbers);
    sums = at::empty({tokens, heads, shares, 2}, numbers);
  }
  const auto address = [](const at::Tensor& x) { return x.defined() ? x.mutable_data_ptr<float>() : nullptr; };
  check(kernels.attention.paged(elements_of(q),
                                {q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(), strides_of(q), strides_of(k), strides_of(v),
                                 static_cast<int32_t>(heads), static_cast<int32_t>(kv_heads), static_cast<int32_t>(d), 1.0F / std::sqrt(static_cast<float>(d)),
                                 table, static_cast<int32_t>(shares), address(partial), address(sums), out.mutable_data_ptr(), /*wide=*/false},
                                tokens, stream_of(q)));
}

}  // namespace mempo::kernels::cuda
