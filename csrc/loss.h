// The losses, token by token: the clipped policy loss with its KL term, and the negative log-likelihood.
#pragma once

#include <ATen/ATen.h>

#include "guard.h"
#include "policy_loss.h"

namespace mempo {

// The caller's columns, each with one number for each trained token; those that the kind of loss does not read may be null.
struct LossInputs {
  const float *old_log_probs, *ref_log_probs, *advantages, *weights;

  LossInputs(const mempo_loss_inputs& given, mempo_loss_kind kind);
  // The columns from a token on.
  LossInputs part(int64_t begin) const;
};

// Adds what other tokens' losses added up to.
void add_stats(mempo_loss_stats* sum, const mempo_loss_stats& one);

// Σ weight · loss of tokens that are scored chunk by chunk, on the CPU or where their log-probs are.
class TokenLosses {
 public:
  // `count` tokens of the columns, whose log-probs lie on `device`.
  TokenLosses(const LossInputs& inputs, int64_t count, const mempo_loss_options& options, at::Device device);

  // The gradient in each of log_probs (float32 [N]), those of the tokens from `begin` on.
  at::Tensor gradients(const at::Tensor& log_probs, int64_t begin);
  // Adds what all chunks added up to.
  void add_to(mempo_loss_stats* stats) const;

 private:
  at::Tensor on_host(const at::Tensor& log_probs, const LossInputs& in);

  LossInputs inputs_;
  bool likelihood_;
  kernels::LossConstants constants_;
  mempo_loss_stats stats_{};
  at::Tensor columns_, sums_;  // on the device, where its kernels do this: [4, count] float32, and [5] float64
};

}  // namespace mempo
