// The losses, token by token: the clipped policy loss with its KL term, and the negative log-likelihood.
#pragma once

#include <ATen/ATen.h>

#include "guard.h"

namespace mempo {

struct LossTensors {
  at::Tensor old_log_probs, ref_log_probs, advantages, weights;  // float32 [N]; those that were not given are undefined
};

LossTensors loss_tensors(int64_t count, const mempo_loss_inputs& inputs, mempo_loss_kind kind, at::Device device);

// Σ weight · (policy loss + kl_coef · kl), or Σ weight · −log p, differentiable in `log_probs` alone; fills `stats`.
at::Tensor weighted_loss(const at::Tensor& log_probs, const LossTensors& inputs, const mempo_loss_options& options,
                         mempo_loss_stats* stats);

}  // namespace mempo
