// The CUDA form of attention over pages.
#pragma once

#include "cuda_forms.h"

namespace mempo::kernels::cuda {

// The widest head that the kernel takes.
constexpr int64_t kWidestHead = 256;

// Attends causally: q [T, heads, d], and for each token of the table the keys and values of its row's past and, behind them,
// its row's own among k and v [T, kv_heads, d] → the tokens' rows of out [T, heads · d]. Made for few new tokens in a row.
void paged_attention(const Kernels& kernels, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PagedTable& table, at::Tensor& out);

}  // namespace mempo::kernels::cuda
