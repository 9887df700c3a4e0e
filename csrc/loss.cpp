#include "loss.h"

#include <algorithm>
#include <cmath>

#include "kernels.h"

namespace mempo {

namespace {

kernels::KL estimator_of(mempo_kl_estimator estimator) {
  switch (estimator) {
    case MEMPO_K1: return kernels::KL::k1;
    case MEMPO_ABS: return kernels::KL::abs;
    case MEMPO_K2: return kernels::KL::k2;
    case MEMPO_LOW_VAR_KL: return kernels::KL::low_var;
  }
  throw InvalidArgument("unknown KL estimator");
}

}  // namespace

LossInputs::LossInputs(const mempo_loss_inputs& given, mempo_loss_kind kind)
    : old_log_probs(given.old_log_probs), ref_log_probs(given.ref_log_probs), advantages(given.advantages), weights(given.weights) {
  require(kind == MEMPO_POLICY_LOSS || kind == MEMPO_NEGATIVE_LOG_LIKELIHOOD, "unknown kind of loss");
  const bool for_policy = old_log_probs != nullptr && ref_log_probs != nullptr && advantages != nullptr;
  require(weights != nullptr && (for_policy || kind == MEMPO_NEGATIVE_LOG_LIKELIHOOD), "an input of the loss is missing");
}

LossInputs LossInputs::part(int64_t begin) const {
  LossInputs rest = *this;
  for (const float** column : {&rest.old_log_probs, &rest.ref_log_probs, &rest.advantages, &rest.weights}) {
    if (*column != nullptr) *column += begin;
  }
  return rest;
}

at::Tensor token_losses(const at::Tensor& given, const LossInputs& in, const mempo_loss_options& options,
                        mempo_loss_stats* stats) {
  const kernels::LossConstants constants{options.clip_low, options.clip_high, options.dual_clip, estimator_of(options.kl_estimator), options.kl_coef};
  const at::Tensor log_probs = given.to(at::kCPU), gradients = at::empty_like(log_probs);
  const float* log_prob = log_probs.const_data_ptr<float>();
  float* gradient = gradients.mutable_data_ptr<float>();
  for (int64_t k = 0; k < log_probs.numel(); ++k) {
    const double weight = in.weights[k];
    if (options.kind == MEMPO_NEGATIVE_LOG_LIKELIHOOD) {
      stats->negative_log_likelihood -= weight * log_prob[k];
      gradient[k] = static_cast<float>(-weight);
      continue;
    }
    const auto loss = kernels::policy_loss(log_prob[k], in.old_log_probs[k], in.ref_log_probs[k], in.advantages[k], constants);
    stats->policy += weight * loss.policy;
    stats->kl += weight * loss.kl;
    stats->clipped += loss.clipped ? 1 : 0;
    stats->max_log_ratio = std::max(stats->max_log_ratio, std::fabs(loss.log_ratio));
    gradient[k] = static_cast<float>(weight * loss.gradient);
  }
  return gradients.to(given.device());
}

}  // namespace mempo

int mempo_token_loss(int64_t count, const float* new_log_probs, const mempo_loss_inputs* inputs,
                     const mempo_loss_options* options, mempo_loss_stats* stats, float* gradient,
                     mempo_error* error) {
  return mempo::guarded(error, [&] {
    mempo::require(count > 0, "no token to compute a loss of");
    const at::Tensor log_probs = at::from_blob(const_cast<float*>(new_log_probs), {count}, at::kFloat);
    *stats = {};
    const at::Tensor gradients = mempo::token_losses(log_probs, {*inputs, options->kind}, *options, stats);
    at::from_blob(gradient, {count}, at::kFloat).copy_(gradients);
  });
}
