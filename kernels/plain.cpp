// The fused operations as plain ATen operations.
#include "kernels.h"

namespace mempo::kernels::plain {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = wide.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt();
  return wide.mul(scale).to(x.scalar_type()).mul(weight);
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  const at::Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);
  return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, -1);
  return at::silu(halves[0]).mul(halves[1]);
}

LogitStats logit_stats(const at::Tensor& logits, const at::Tensor& targets, bool with_entropy) {
  LogitStats stats;
  stats.normalizers = logits.logsumexp(1);
  stats.log_probs = logits.gather(1, targets.unsqueeze(1)).squeeze(1) - stats.normalizers;
  if (with_entropy) {
    // H = logsumexp(x) − Σ softmax(x) x
    const at::Tensor p = logits.sub(stats.normalizers.unsqueeze(1)).exp_();
    stats.entropies = stats.normalizers - p.mul_(logits).sum(1);
  }
  return stats;
}

void logits_to_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& normalizers,
                        const at::Tensor& gradient) {
  const at::Tensor g = gradient.unsqueeze(1);
  logits.sub_(normalizers.unsqueeze(1)).exp_().mul_(g.neg());
  logits.scatter_add_(1, targets.unsqueeze(1), g);
}

}  // namespace mempo::kernels::plain
