// The CUDA forms of what is computed from logits.
#pragma once

#include "cuda_forms.h"
#include "kernels.h"

namespace mempo::kernels::cuda {

LogitStats logit_stats(const Kernels& kernels, const at::Tensor& logits, const at::Tensor& targets, bool with_entropy);

at::Tensor logits_to_gradient(const Kernels& kernels, at::Tensor& logits, const at::Tensor& targets, const at::Tensor& normalizers, const at::Tensor& gradient, at::ScalarType dtype);

// `columns` float32 [4, N]: log-probabilities of old and reference, advantages and weights, of which a likelihood reads the
// last only. Returns the gradients of log_probs [N] and adds to `sums`, float64 [5] (LossArguments).
at::Tensor policy_losses(const Kernels& kernels, const at::Tensor& log_probs, const at::Tensor& columns, bool likelihood, const LossConstants& constants, const at::Tensor& sums);

void sample(const Kernels& kernels, const at::Tensor& logits, const at::Tensor& valid, std::vector<Draw>& draws);
// The same for draws that lie on the device; an id of −1 says that a row's logits are not finite.
void sample_on_device(const Kernels& kernels, const at::Tensor& logits, const at::Tensor& valid, Draw* draws);

}  // namespace mempo::kernels::cuda
