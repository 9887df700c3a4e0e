#include "loss.h"

#include <algorithm>
#include <cmath>

#include "cuda_logits.h"
#include "kernels.h"
#include "transfer.h"

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

void add_stats(mempo_loss_stats* sum, const mempo_loss_stats& one) {
  sum->policy += one.policy;
  sum->kl += one.kl;
  sum->clipped += one.clipped;
  sum->max_log_ratio = std::max(sum->max_log_ratio, one.max_log_ratio);
  sum->negative_log_likelihood += one.negative_log_likelihood;
}

TokenLosses::TokenLosses(const LossInputs& inputs, int64_t count, const mempo_loss_options& options, at::Device device)
    : inputs_(inputs), likelihood_(options.kind == MEMPO_NEGATIVE_LOG_LIKELIHOOD),
      constants_{options.clip_low, options.clip_high, options.dual_clip, estimator_of(options.kl_estimator), options.kl_coef} {
  const auto like = at::TensorOptions().device(device);
  if (kernels::cuda::kernels_for(at::empty({0}, like.dtype(at::kFloat))) == nullptr) return;
  const at::Tensor columns = at::zeros({4, count}, at::kFloat);
  int64_t n = 0;
  for (const float* column : {inputs.old_log_probs, inputs.ref_log_probs, inputs.advantages, inputs.weights}) {
    if (column != nullptr) std::copy_n(column, count, columns[n].mutable_data_ptr<float>());
    ++n;
  }
  columns_ = kernels::to_device(columns, device);
  sums_ = at::zeros({5}, like.dtype(at::kDouble));
}

at::Tensor TokenLosses::gradients(const at::Tensor& log_probs, int64_t begin) {
  if (!columns_.defined()) return on_host(log_probs, inputs_.part(begin));
  const at::Tensor columns = columns_.narrow(1, begin, log_probs.numel());
  return kernels::cuda::policy_losses(*kernels::cuda::kernels_for(log_probs), log_probs, columns, likelihood_, constants_, sums_);
}

void TokenLosses::add_to(mempo_loss_stats* stats) const {
  mempo_loss_stats own = stats_;
  if (sums_.defined()) {
    const at::Tensor sums = kernels::to_host(sums_);
    const double* sum = sums.const_data_ptr<double>();
    own = {sum[0], sum[1], sum[2], sum[3], sum[4]};
  }
  add_stats(stats, own);
}

at::Tensor TokenLosses::on_host(const at::Tensor& given, const LossInputs& in) {
  const at::Tensor log_probs = given.to(at::kCPU), gradients = at::empty_like(log_probs);
  const float* log_prob = log_probs.const_data_ptr<float>();
  float* gradient = gradients.mutable_data_ptr<float>();
  for (int64_t k = 0; k < log_probs.numel(); ++k) {
    const double weight = in.weights[k];
    if (likelihood_) {
      stats_.negative_log_likelihood -= weight * log_prob[k];
      gradient[k] = static_cast<float>(-weight);
      continue;
    }
    const auto loss = kernels::policy_loss(log_prob[k], in.old_log_probs[k], in.ref_log_probs[k], in.advantages[k], constants_);
    stats_.policy += weight * loss.policy;
    stats_.kl += weight * loss.kl;
    stats_.clipped += loss.clipped ? 1 : 0;
    stats_.max_log_ratio = std::max(stats_.max_log_ratio, std::fabs(loss.log_ratio));
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
    mempo::TokenLosses losses({*inputs, options->kind}, count, *options, at::kCPU);
    at::from_blob(gradient, {count}, at::kFloat).copy_(losses.gradients(log_probs, 0));
    *stats = {};
    losses.add_to(stats);
  });
}
