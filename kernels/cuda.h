// The CUDA kernels as a table of launchers over raw pointers. Files of kernels include nothing of libtorch, so that nvcc
// compiles them in seconds; their table is what libmempo_cuda.so hands over when it is loaded (cuda_forms.h).
#pragma once

#include <cstdint>

#include "draw.h"
#include "policy_loss.h"

namespace mempo::kernels::cuda {

enum class Elements : int { float32, bfloat16 };

// A launcher starts its work on a stream (a cudaStream_t) and returns null, or what is wrong. Pointers are to the device's
// memory and may be read until the stream has come so far; T is the type that `elements` names.
using Error = const char*;

// Rows of n elements in a tensor [outer, inner, n]: row r begins at r / inner · outer_stride + r % inner · inner_stride.
struct RowLayout {
  int64_t rows, n, inner, outer_stride, inner_stride;
};

struct ElementwiseKernels {
  // y [rows, n] = x / sqrt(mean(x²) + eps) · weight; x, weight [n] and y of T.
  Error (*rms_norm)(Elements elements, const void* x, RowLayout layout, const void* weight, float eps, void* y, void* stream);
  // dx [rows, n] of T from the gradient of y, which is of T too and has a layout of its own. scales [rows] is for 1 / sqrt(…)
  // of each row and may be null.
  Error (*rms_norm_backward)(Elements elements, const void* x, RowLayout layout, const void* weight, float eps, const void* gradient,
                             RowLayout gradient_layout, void* dx, float* scales, void* stream);
  // Adds the gradient of the weight, Σ over rows of gradient · x · scale, to `sum` [n]. partial [parts, n] is for the sums of
  // parts of the rows; how many parts there are decides the order of the sum.
  Error (*rms_norm_weight_gradient)(Elements elements, const void* x, RowLayout layout, const float* scales, const void* gradient,
                                    RowLayout gradient_layout, float* partial, int64_t parts, float* sum, void* stream);
  // y [rows, n] = silu(gate) · up, where gate_up [rows, 2n] holds both side by side; all of T and contiguous.
  Error (*swiglu)(Elements elements, const void* gate_up, int64_t rows, int64_t n, void* y, void* stream);
  Error (*swiglu_backward)(Elements elements, const void* gate_up, const void* gradient, int64_t rows, int64_t n, void* dx, void* stream);
};
ElementwiseKernels elementwise_kernels();

// What the loss of a chunk of tokens is computed from, all on the device and one number for each token.
struct LossArguments {
  const float *log_probs, *old_log_probs, *ref_log_probs, *advantages, *weights;
  int64_t count;
  bool likelihood;  // the loss is −log p; of the columns only the weights are read
  LossConstants constants;
  float* gradient;  // weight · d loss / d log_prob
  double* sums;     // [5] are added to: policy, kl and clipped, the largest |log-ratio|, and −log p
};

struct LogitKernels {
  // Of logits [rows, vocab]: log-probabilities of the targets, logsumexp and entropies (nats; null: not wanted), [rows] each.
  Error (*stats)(const float* logits, const int64_t* targets, int64_t rows, int64_t vocab, float* log_probs, float* normalizers, float* entropies, void* stream);
  // Row r becomes gradient[r] · (onehot(target) − softmax) as numbers of T, from the place where its logits begin.
  Error (*to_gradient)(Elements elements, float* logits, const int64_t* targets, const float* normalizers, const float* gradient, int64_t rows, int64_t vocab, void* stream);
  Error (*policy_losses)(LossArguments arguments, void* stream);
};
LogitKernels logit_kernels();

struct SamplingKernels {
  // Draws a token for each row of logits; `valid` may be null. The id is −1 where the logits are not finite.
  Error (*draw)(const float* logits, int64_t rows, int64_t vocab, const uint8_t* valid, int64_t valid_count, Draw* draws, void* stream);
};
SamplingKernels sampling_kernels();

// Where the keys and values of a packed batch lie. It is in device memory, so that a captured graph serves other rows and
// lengths without being captured anew. Tokens of a page at one layer lie as keys [kv_heads, page_tokens, d] and values alike.
struct PagedTable {
  const int64_t* pages;       // addresses of the pages of all rows, one row after the other
  const int32_t* first_page;  // [rows], where a row's own begin in `pages`
  const int32_t* past;        // [rows], tokens that its pages hold before the new ones
  const int32_t* begin;       // [rows], its first new token in the packed batch
  const int32_t* row;         // [tokens], the row of each new token, or −1: a token of no row here
  int64_t layer, values;      // elements from a page's begin to a layer's keys, and from there to its values
  int32_t page_tokens;
};

// Elements from one token to the next, and from one head to the next; those of a head are contiguous.
struct Strides {
  int64_t token, head;
};

struct AppendArguments {
  void* qkv;  // [tokens, heads + 2 · kv_heads, d] of T: queries, keys and values
  Strides strides;
  const void *cos, *sin;  // [tokens, d / 2] of T
  int32_t tokens, heads, kv_heads, d;
  PagedTable table;  // of the rows that keep their new tokens
};

struct RotaryKernels {
  // Turns x [tokens, heads, d], with heads as rows, by angles of cosines and sines [tokens, d / 2], all of T, in place.
  Error (*rotate)(Elements elements, void* x, RowLayout layout, const void* cos, const void* sin, float sign, void* stream);
  // The same for queries and keys; keys and values are written into the pages of their rows, behind the past.
  Error (*rotate_and_append)(Elements elements, AppendArguments arguments, void* stream);
};
RotaryKernels rotary_kernels();

struct AttentionArguments {
  const void *q, *k, *v;  // [tokens, heads, d], [tokens, kv_heads, d] of T
  Strides q_strides, k_strides, v_strides;
  int32_t heads, kv_heads, d;
  float scale;
  PagedTable table;
  int32_t shares;         // that the keys of a token are divided into
  float *partial, *sums;  // [tokens, heads, shares, d] and [tokens, heads, shares, 2] for results in between; null for one share
  void* out;              // [tokens, heads · d] of T
  bool wide;              // accesses of 16 bytes are possible (set by the launcher)
};

struct AttentionKernels {
  // Each new token attends to the past of its row and to the new ones up to itself.
  Error (*paged)(Elements elements, AttentionArguments arguments, int64_t tokens, void* stream);
};
AttentionKernels attention_kernels();

// Work of many launches that is done again by one. `work(context)` must do the same each time, on the current stream and in
// memory that stays where it is.
struct GraphCalls {
  // Does the work once and captures it; null where it cannot be captured, and then it may not have been done. Memory that it
  // takes may be shared with another graph, or null, that is never replayed at the same time.
  void* (*run_and_capture)(void (*work)(void*), void* context, const void* shares_memory);
  Error (*replay)(void* graph);
  void (*free)(void* graph);
};
GraphCalls graph_calls();

// A tensor that AdamW brings forward, and what belongs to it; `copy` is null, or gets the new numbers as bfloat16.
struct AdamwTensor {
  float* master;
  const float* gradient;
  float *first_moment, *second_moment;
  void* copy;
  int64_t count;
  int64_t first_block;  // of its blocks of kAdamwBlock elements among those of all tensors
};
constexpr int64_t kAdamwBlock = 8192;

// Numbers of one step, the same for all tensors; what is left of 1 beside a beta, which float32 cannot tell from the beta; the
// corrections are 1 − beta1^t and sqrt(1 − beta2^t).
struct AdamwStep {
  float learning_rate, beta1, beta1_rest, beta2, beta2_rest, weight_decay, eps, first_correction, second_correction;
};

struct LearningKernels {
  // One step for all tensors; their list is on the device, and has `blocks` blocks in all.
  Error (*adamw)(const AdamwTensor* tensors, int64_t count, int64_t blocks, AdamwStep step, void* stream);
  // Adds rows [count, n] of T to rows of `sums` [.., n]: row order[k] to sums[ids[k]], for ids in ascending order. Rows of one
  // id are added in this order.
  Error (*add_rows)(Elements elements, const void* rows, const int64_t* ids, const int64_t* order, int64_t count, int64_t n, float* sums,
                    void* stream);
};
LearningKernels learning_kernels();

struct Kernels {
  // Of this file when the kernels were compiled; those of another must not be called.
  const char* interface;
  ElementwiseKernels elementwise;
  RotaryKernels rotary;
  LearningKernels learning;
  LogitKernels logits;
  SamplingKernels sampling;
  AttentionKernels attention;
  GraphCalls graphs;
};

}  // namespace mempo::kernels::cuda

// The name under which libmempo_cuda.so exports its table.
extern "C" const mempo::kernels::cuda::Kernels* mempo_cuda_kernels(void);
