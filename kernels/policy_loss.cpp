// The policy loss of one token with its gradient, written out: what autograd would do in some thirty operations.
#include <algorithm>
#include <cmath>

#include "kernels.h"

namespace mempo::kernels {

namespace {

// Bounds of verl: a log-ratio beyond ±20 means nothing, and exp of it would overflow.
constexpr double kMaxLogRatio = 20.0, kMaxKL = 10.0;

struct Value {
  double value, slope;  // slope: d value / d new_log_prob
};

Value kl_term(double new_log_prob, double ref_log_prob, KL estimator) {
  const double d = ref_log_prob - new_log_prob;
  switch (estimator) {
    case KL::k1: return {-d, 1};
    case KL::abs: return {std::fabs(d), d > 0 ? -1.0 : d < 0 ? 1.0 : 0.0};
    case KL::k2: return {0.5 * d * d, -d};
    case KL::low_var: break;
  }
  const double bounded = std::clamp(d, -kMaxLogRatio, kMaxLogRatio), value = std::exp(bounded) - bounded - 1;
  const bool inside = std::fabs(d) <= kMaxLogRatio && value <= kMaxKL;
  return {std::min(value, kMaxKL), inside ? 1 - std::exp(bounded) : 0};
}

}  // namespace

TokenLoss policy_loss(double new_log_prob, double old_log_prob, double ref_log_prob, double advantage,
                      const LossConstants& c) {
  const double log_ratio = new_log_prob - old_log_prob;
  const double ratio = std::exp(std::clamp(log_ratio, -kMaxLogRatio, kMaxLogRatio));
  const double ratio_slope = std::fabs(log_ratio) <= kMaxLogRatio ? ratio : 0;
  const double plain = -advantage * ratio, clipped = -advantage * std::clamp(ratio, 1 - c.clip_low, 1 + c.clip_high);
  Value policy{std::max(plain, clipped), clipped > plain ? 0 : -advantage * ratio_slope};
  if (c.dual_clip > 0 && advantage < 0 && -advantage * c.dual_clip < policy.value) policy = {-advantage * c.dual_clip, 0};
  const Value kl = kl_term(new_log_prob, ref_log_prob, c.estimator);
  return {policy.value, c.kl_coef * kl.value, clipped > plain, log_ratio, policy.slope + c.kl_coef * kl.slope};
}

}  // namespace mempo::kernels
