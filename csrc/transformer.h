// The decoder that Qwen2, Qwen3 and Llama share: one forward function for prefill, decoding,
// scoring and training.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "weights.h"

namespace mempo {

struct Layer {
  Parameter *input_norm, *post_norm;
  Parameter *qkv, *qkv_bias;  // query, key and value projections stacked
  Parameter *q_norm, *k_norm;
  Parameter *output, *output_bias;
  Parameter *gate_up, *gate_up_bias;  // gate and up projections stacked
  Parameter *down, *down_bias;        // absent ones are null
};

// Tokens of several rows, one row after the other, without padding.
struct PackedBatch {
  std::vector<int64_t> offsets;  // row r covers [offsets[r], offsets[r+1])
  at::Tensor ids;                // [T] int64 on the device
  at::Tensor positions;          // [T] int64, position of each token in its sequence
  int64_t rows() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

// How queries meet keys and values; q [T, heads, head_dim], k and v [T, kv_heads, head_dim];
// returns [T, heads · head_dim].
class Attention {
 public:
  virtual ~Attention() = default;
  virtual at::Tensor attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) = 0;
};

// Causal attention within each row of a batch that starts at position 0; differentiable.
class RowAttention final : public Attention {
 public:
  explicit RowAttention(std::vector<int64_t> offsets) : offsets_(std::move(offsets)) {}
  at::Tensor attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;

 private:
  std::vector<int64_t> offsets_;
};

// Scaled dot-product attention of one row: q [n, heads, d] over k, v [m, kv_heads, d]; with
// `causal`, n = m. `mask` (bool [n, m], true = may look) may be undefined.
at::Tensor row_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                         const at::Tensor& mask);

class Transformer {
 public:
  Transformer(const mempo_model_config& config, at::Device device);

  // Checks a packed batch and moves it to the device; rows start at `starts` (empty: all at 0).
  PackedBatch pack(int64_t rows, const int64_t* offsets, const int32_t* ids,
                   const std::vector<int64_t>& starts = {}) const;

  // Input embeddings of the batch, [T, hidden]; a constant to autograd.
  at::Tensor embed(const PackedBatch& batch) const;
  // Final hidden states, [T, hidden], after the last norm.
  at::Tensor hidden_states(const at::Tensor& embedded, const PackedBatch& batch,
                           const std::shared_ptr<Attention>& attention) const;

  mempo_model_config config;
  at::Device device;
  at::ScalarType dtype;
  Weights weights;
  std::vector<Layer> layers;
  Parameter *embedding, *final_norm, *head;  // head == embedding when tied
  int64_t update_count = 0;

 private:
  friend struct LayerRun;
  at::Tensor inverse_frequencies_;  // [head_dim / 2] float32
};

}  // namespace mempo

struct mempo_model : mempo::CountedHandle, mempo::Transformer {
  using mempo::Transformer::Transformer;
};
