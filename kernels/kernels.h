// Fused operations of the forward and backward pass. Each has a CPU form (float32) written here; those of
// whole batches have a plain form of ATen operations, which serves every other device and dtype. Tests hold
// the forms together, and each to the operation written out in float64. None of them records a graph: what
// has a gradient has a function for it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "draw.h"
#include "policy_loss.h"

namespace mempo::kernels {

// x / sqrt(mean(x²) + eps) · weight over the last dimension; x [..., n] with 2 or 3 dimensions, weight [n].
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
// The gradient of x, given that of the result; that of the weight is added to `weight_gradient` (float32), if it is defined.
at::Tensor rms_norm_backward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& gradient,
                             at::Tensor& weight_gradient);

// Rotary position embedding of [T, heads, d], in place, by angles whose cosines and sines are [T, d/2]:
// the pair (x[j], x[j + d/2]) is turned by `sign` times angle j. Sign −1 undoes it, which is its gradient.
void rotate_(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, float sign);

// silu(gate) · up, where gate_up [T, 2n] holds both side by side.
at::Tensor swiglu(const at::Tensor& gate_up);
at::Tensor swiglu_backward(const at::Tensor& gate_up, const at::Tensor& gradient);

struct LogitStats {
  at::Tensor log_probs;    // [N], of the targets
  at::Tensor normalizers;  // [N], logsumexp
  at::Tensor entropies;    // [N], nats; undefined unless asked for
};
// Statistics of float32 logits [N, vocab]; targets [N] int64.
LogitStats logit_stats(const at::Tensor& logits, const at::Tensor& targets, bool with_entropy);

// The gradient of Σ gradient[r] · log p(targets[r]) in logits, gradient · (onehot(target) − softmax), as numbers of
// `dtype`. It takes the place of the logits where a form can.
at::Tensor logits_to_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& normalizers,
                              const at::Tensor& gradient, at::ScalarType dtype);

// What is said of logits that nothing can be drawn from.
constexpr const char* kBrokenLogits = "the model's logits are not finite: its weights are broken";

// Whether `sample` has a form for logits of this device.
bool can_sample(const at::Tensor& logits);
// Draws a token for each row of float32 logits [N, vocab] from the whole distribution. `valid` has one byte per id, 0 =
// never draw it, on the device of the logits, and may be undefined. The rows run side by side.
void sample(const at::Tensor& logits, const at::Tensor& valid, std::vector<Draw>& draws);

// A row whose past lies in pages [layers, 2 (keys, values), kv_heads, page_tokens, d].
struct PagedRow {
  std::vector<void*> pages;
  int64_t past;           // tokens that the pages hold before the new ones
  int64_t begin, tokens;  // the new ones in the packed batch
};
struct PagedRows {
  int64_t page_tokens;
  std::vector<PagedRow> rows;
};
// Rotates queries and keys by the angles of their tokens, and in the same pass writes the keys and values of rows behind their
// past, in pages that have room for them: qkv [T, heads + 2 · kv_heads, d], queries, keys and values of one layer, in place. CPU
// and float32 only.
void rotate_and_append_cpu(const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin, const PagedRows& kept, int64_t layer);
// The same for the heads of qkv from `begin` to `end`; on the calling thread.
void rotate_and_append_heads(const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin, const PagedRows& kept, int64_t layer,
                             int64_t begin, int64_t end);

// Attends causally at a layer: q [T, heads, d], and for each row the keys and values of its past and, behind them, its own
// among k and v [T, kv_heads, d] → the rows' part of out [T, heads · d]. Made for few new tokens in a row. CPU and float32
// only.
void paged_attention_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PagedRows& paged, int64_t layer,
                         const at::Tensor& out);
// The same for some pairs of a row and a key/value head, those numbered row · kv_heads + head from `begin` to `end`; on the
// calling thread.
void paged_attention_pairs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const PagedRows& paged, int64_t layer,
                           int64_t begin, int64_t end, const at::Tensor& out);

// A parameter as the optimiser sees it: float32 tensors of one shape, and the weight that the model computes with, which may be
// the master itself or a narrower copy of it.
struct AdamwParameter {
  at::Tensor master, gradient, first_moment, second_moment, weight;
};
struct AdamwOptions {
  double learning_rate, beta1, beta2, weight_decay, eps;
  int64_t step;  // from 1
};
// One step of AdamW (Loshchilov, Hutter 2019) for all parameters, in place; all of them on one device.
void adamw_(const std::vector<AdamwParameter>& parameters, const AdamwOptions& options);

// Adds rows [T, n] to rows of float32 sums [.., n]: rows[t] to sums[ids[t]]. The order is the same every time.
void add_rows_(const at::Tensor& sums, const at::Tensor& ids, const at::Tensor& rows);

// The plain forms.
namespace plain {
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor rms_norm_backward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& gradient,
                             at::Tensor& weight_gradient);
void rotate_(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, float sign);
at::Tensor swiglu(const at::Tensor& gate_up);
at::Tensor swiglu_backward(const at::Tensor& gate_up, const at::Tensor& gradient);
LogitStats logit_stats(const at::Tensor& logits, const at::Tensor& targets, bool with_entropy);
at::Tensor logits_to_gradient(at::Tensor& logits, const at::Tensor& targets, const at::Tensor& normalizers,
                              const at::Tensor& gradient, at::ScalarType dtype);
}  // namespace plain

// Whether a tensor has a CPU form.
inline bool on_cpu(const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

}  // namespace mempo::kernels
