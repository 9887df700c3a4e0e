// The fused operations as plain ATen operations.
#include "kernels.h"

namespace mempo::kernels::plain {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = wide.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt();
  return wide.mul(scale).to(x.scalar_type()).mul(weight);
}

// With r = rsqrt(mean(x²) + eps): dx = r·g·w − x·r³·mean(g·w·x); dw = Σ g·x·r.
at::Tensor rms_norm_backward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& gradient,
                             at::Tensor& weight_gradient) {
  const at::Tensor wide = x.to(at::kFloat), g = gradient.to(at::kFloat);
  const at::Tensor scale = wide.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt();
  if (weight_gradient.defined()) weight_gradient.add_(g.mul(wide).mul(scale).reshape({-1, x.size(-1)}).sum(0));
  const at::Tensor weighted = g.mul(weight);
  const at::Tensor back = weighted.mul(wide).mean(-1, /*keepdim=*/true).mul(scale.pow(3));
  return weighted.mul(scale).sub(wide.mul(back)).to(x.scalar_type());
}

void rotate_(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, float sign) {
  const auto halves = x.chunk(2, -1);
  const at::Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1).mul(sign);
  x.copy_(at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1));
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, -1);
  return at::silu(halves[0]).mul(halves[1]);
}

at::Tensor swiglu_backward(const at::Tensor& gate_up, const at::Tensor& gradient) {
  const auto halves = gate_up.chunk(2, -1);
  return at::cat({at::silu_backward(gradient.mul(halves[1]), halves[0]), gradient.mul(at::silu(halves[0]))}, -1);
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

at::Tensor logits_to_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& normalizers,
                              const at::Tensor& gradient, at::ScalarType dtype) {
  const at::Tensor g = gradient.unsqueeze(1);
  logits.sub_(normalizers.unsqueeze(1)).exp_().mul_(g.neg());
  return logits.scatter_add_(1, targets.unsqueeze(1), g).to(dtype);
}

}  // namespace mempo::kernels::plain
