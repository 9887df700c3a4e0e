// Fused operations of the forward and backward pass. Each has a CPU form (float32) written here and
// a plain form of ATen operations, which serves every other device and dtype; tests hold the two
// together.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace mempo::kernels {

// x / sqrt(mean(x²) + eps) · weight over the last dimension; differentiable in x and weight.
// x [..., n] with a contiguous last dimension, weight [n].
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// Rotary position embedding of [T, heads, d] by angles whose cosines and sines are [T, d/2]:
// the pair (x[j], x[j + d/2]) is turned by angle j. Differentiable in x.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

// silu(gate) · up, where gate_up [T, 2n] holds both side by side; differentiable.
at::Tensor swiglu(const at::Tensor& gate_up);

struct LogitStats {
  at::Tensor log_probs;    // [N], of the targets
  at::Tensor normalizers;  // [N], logsumexp
  at::Tensor entropies;    // [N], nats; undefined unless asked for
};
// Statistics of float32 logits [N, vocab], without gradient; targets [N] int64.
LogitStats logit_stats(const at::Tensor& logits, const at::Tensor& targets, bool with_entropy);

// Turns logits into the gradient of Σ gradient[r] · log p(targets[r]), in place:
// gradient · (onehot(target) − softmax).
void logits_to_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& normalizers,
                        const at::Tensor& gradient);

// The cache of one row at one layer: keys and values [kv_heads, capacity, head_dim].
struct CacheSlot {
  float *keys, *values;
  int64_t capacity;
  int64_t length;  // tokens in the cache before the new ones
  int64_t begin, tokens;  // of the row in the packed batch
};
// Appends the new keys and values [T, kv_heads, d] of some rows to their caches and attends
// causally: q [T, heads, d] → the rows' part of out [T, heads · d]. CPU and float32 only.
void cached_attention_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const std::vector<CacheSlot>& slots, at::Tensor& out);

// The plain forms.
namespace plain {
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);
at::Tensor swiglu(const at::Tensor& gate_up);
LogitStats logit_stats(const at::Tensor& logits, const at::Tensor& targets, bool with_entropy);
void logits_to_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& normalizers,
                        const at::Tensor& gradient);
}  // namespace plain

// Whether a tensor has a CPU form.
inline bool on_cpu(const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

}  // namespace mempo::kernels
