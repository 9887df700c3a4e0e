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

}  // namespace

LossTensors loss_tensors(int64_t count, const mempo_loss_inputs& inputs, at::Device device) {
  const auto copy = [&](const float* data) {
    return at::from_blob(const_cast<float*>(data), {count}, at::kFloat).clone().to(device);
  };
  return {copy(inputs.old_log_probs), copy(inputs.ref_log_probs), copy(inputs.advantages), copy(inputs.weights)};
}

at::Tensor weighted_loss(const at::Tensor& log_probs, const LossTensors& in, const mempo_loss_options& options,
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

}  // namespace mempo

int mempo_token_loss(int64_t count, const float* new_log_probs, const mempo_loss_inputs* inputs,
                     const mempo_loss_options* options, mempo_loss_stats* stats, float* gradient,
                     mempo_error* error) {
  return mempo::guarded(error, [&] {
    mempo::require(count > 0, "no token to compute a loss of");
    const at::Tensor log_probs = at::from_blob(const_cast<float*>(new_log_probs), {count}, at::kFloat).clone();
    log_probs.set_requires_grad(true);
    const at::Tensor loss = mempo::weighted_loss(log_probs, mempo::loss_tensors(count, *inputs, at::kCPU), *options, stats);
    torch::autograd::backward({loss}, {});
    at::from_blob(gradient, {count}, at::kFloat).copy_(log_probs.grad());
  });
}
