#include "loss.h"

#include <torch/csrc/autograd/autograd.h>

namespace mempo {

namespace {

// Bounds of verl: a log-ratio beyond ±20 means nothing, and exp of it would overflow.
constexpr double kMaxLogRatio = 20.0, kMaxKL = 10.0;

at::Tensor kl_terms(const at::Tensor& log_probs, const at::Tensor& ref, mempo_kl_estimator estimator) {
  const at::Tensor d = ref - log_probs;
  switch (estimator) {
    case MEMPO_K1: return -d;
    case MEMPO_ABS: return d.abs();
    case MEMPO_K2: return d.square().mul(0.5);
    case MEMPO_LOW_VAR_KL: {
      const at::Tensor bounded = d.clamp(-kMaxLogRatio, kMaxLogRatio);
      return (bounded.exp() - bounded - 1).clamp(-kMaxKL, kMaxKL);
    }
  }
  throw InvalidArgument("unknown KL estimator");
}

at::Tensor policy_loss(const at::Tensor& log_probs, const LossTensors& in, const mempo_loss_options& options,
                       mempo_loss_stats* stats) {
  const at::Tensor log_ratio = log_probs - in.old_log_probs;
  const at::Tensor ratio = log_ratio.clamp(-kMaxLogRatio, kMaxLogRatio).exp();
  const at::Tensor plain = -in.advantages * ratio;
  const at::Tensor clipped = -in.advantages * ratio.clamp(1.0 - options.clip_low, 1.0 + options.clip_high);
  at::Tensor policy = at::maximum(plain, clipped);
  if (options.dual_clip > 0) {
    const at::Tensor bound = -in.advantages * options.dual_clip;
    policy = at::where(in.advantages.lt(0), at::minimum(bound, policy), policy);
  }
  const at::Tensor kl = kl_terms(log_probs, in.ref_log_probs, options.kl_estimator);
  const at::Tensor policy_sum = policy.mul(in.weights).sum();
  const at::Tensor kl_sum = kl.mul(in.weights).sum().mul(options.kl_coef);
  stats->policy = policy_sum.item<double>();
  stats->kl = kl_sum.item<double>();
  stats->clipped = clipped.gt(plain).sum().item<double>();
  stats->max_log_ratio = log_ratio.abs().max().item<double>();
  return policy_sum + kl_sum;
}

at::Tensor negative_log_likelihood(const at::Tensor& log_probs, const LossTensors& in, mempo_loss_stats* stats) {
  const at::Tensor sum = log_probs.neg().mul(in.weights).sum();
  stats->negative_log_likelihood = sum.item<double>();
  return sum;
}

}  // namespace

LossTensors loss_tensors(int64_t count, const mempo_loss_inputs& inputs, mempo_loss_kind kind, at::Device device) {
  const auto copy = [&](const float* data) {
    if (data == nullptr) return at::Tensor();
    return at::from_blob(const_cast<float*>(data), {count}, at::kFloat).clone().to(device);
  };
  const LossTensors in{copy(inputs.old_log_probs), copy(inputs.ref_log_probs), copy(inputs.advantages), copy(inputs.weights)};
  const bool for_policy = in.old_log_probs.defined() && in.ref_log_probs.defined() && in.advantages.defined();
  require(in.weights.defined() && (for_policy || kind == MEMPO_NEGATIVE_LOG_LIKELIHOOD), "an input of the loss is missing");
  return in;
}

at::Tensor weighted_loss(const at::Tensor& log_probs, const LossTensors& in, const mempo_loss_options& options,
                         mempo_loss_stats* stats) {
  *stats = {};
  switch (options.kind) {
    case MEMPO_POLICY_LOSS: return policy_loss(log_probs, in, options, stats);
    case MEMPO_NEGATIVE_LOG_LIKELIHOOD: return negative_log_likelihood(log_probs, in, stats);
  }
  throw InvalidArgument("unknown kind of loss");
}

}  // namespace mempo

int mempo_token_loss(int64_t count, const float* new_log_probs, const mempo_loss_inputs* inputs,
                     const mempo_loss_options* options, mempo_loss_stats* stats, float* gradient,
                     mempo_error* error) {
  return mempo::guarded(error, [&] {
    mempo::require(count > 0, "no token to compute a loss of");
    const at::Tensor log_probs = at::from_blob(const_cast<float*>(new_log_probs), {count}, at::kFloat).clone();
    log_probs.set_requires_grad(true);
    const mempo::LossTensors in = mempo::loss_tensors(count, *inputs, options->kind, at::kCPU);
    const at::Tensor loss = mempo::weighted_loss(log_probs, in, *options, stats);
    torch::autograd::backward({loss}, {});
    at::from_blob(gradient, {count}, at::kFloat).copy_(log_probs.grad());
  });
}
