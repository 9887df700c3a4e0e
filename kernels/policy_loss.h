// The policy loss of one token with its gradient, written out: what autograd would do in some thirty operations. One text
// for the CPU and for CUDA.
#pragma once

#include <math.h>

#include "both.h"

namespace mempo::kernels {

// The loss of one token and its gradient; see LossConstants.
struct TokenLoss {
  double policy, kl;
  bool clipped;
  double log_ratio, gradient;
};
enum class KL { k1, abs, k2, low_var };
struct LossConstants {
  double clip_low, clip_high, dual_clip;
  KL estimator;
  double kl_coef;
};

namespace loss {

// Bounds of verl: a log-ratio beyond ±20 means nothing, and exp of it would overflow.
constexpr double kMaxLogRatio = 20.0, kMaxKL = 10.0;

struct Value {
  double value, slope;  // slope: d value / d new_log_prob
};

MEMPO_BOTH inline double between(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

MEMPO_BOTH inline Value kl_term(double new_log_prob, double ref_log_prob, KL estimator) {
  const double d = ref_log_prob - new_log_prob;
  switch (estimator) {
    case KL::k1: return {-d, 1};
    case KL::abs: return {fabs(d), d > 0 ? -1.0 : d < 0 ? 1.0 : 0.0};
    case KL::k2: return {0.5 * d * d, -d};
    case KL::low_var: break;
  }
  const double bounded = between(d, -kMaxLogRatio, kMaxLogRatio), value = exp(bounded) - bounded - 1;
  const bool inside = fabs(d) <= kMaxLogRatio && value <= kMaxKL;
  return {value > kMaxKL ? kMaxKL : value, inside ? 1 - exp(bounded) : 0};
}

}  // namespace loss

// The clipped policy loss with its KL term, and d (policy + kl) / d new; kl holds its coefficient.
MEMPO_BOTH inline TokenLoss policy_loss(double new_log_prob, double old_log_prob, double ref_log_prob, double advantage,
                                        const LossConstants& c) {
  const double log_ratio = new_log_prob - old_log_prob;
  const double ratio = exp(loss::between(log_ratio, -loss::kMaxLogRatio, loss::kMaxLogRatio));
  const double ratio_slope = fabs(log_ratio) <= loss::kMaxLogRatio ? ratio : 0;
  const double plain = -advantage * ratio, clipped = -advantage * loss::between(ratio, 1 - c.clip_low, 1 + c.clip_high);
  loss::Value policy{clipped > plain ? clipped : plain, clipped > plain ? 0 : -advantage * ratio_slope};
  if (c.dual_clip > 0 && advantage < 0 && -advantage * c.dual_clip < policy.value) policy = {-advantage * c.dual_clip, 0};
  const loss::Value kl = loss::kl_term(new_log_prob, ref_log_prob, c.estimator);
  return {policy.value, c.kl_coef * kl.value, clipped > plain, log_ratio, policy.slope + c.kl_coef * kl.slope};
}

}  // namespace mempo::kernels
