// The losses, token by token: the clipped policy loss with its KL term, and the negative log-likelihood.
#pragma once

#include <ATen/ATen.h>

#include "guard.h"

namespace mempo {

// The caller's columns, each with one number for each trained token; those that the kind of loss does not read may be null.
struct LossInputs {
  const float *old_log_probs, *ref_log_probs, *advantages, *weights;

  LossInputs(const mempo_loss_inputs& given, mempo_loss_kind kind);
  // The columns from a token on.
  LossInputs part(int64_t begin) const;
};

// Adds up Σ weight · loss of the tokens in `stats` and returns its gradient in each of `log_probs` (float32 [N]).
at::Tensor token_losses(const at::Tensor& log_probs, const LossInputs& inputs, const mempo_loss_options& options,
                        mempo_loss_stats* stats);

}  // namespace mempo
