// The decoder that Qwen2, Qwen3 and Llama share: one forward function for prefill, decoding,
// scoring and training, and its backward function.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <vector>

#include "attention.h"
#include "groups.h"
#include "projection.h"
#include "weights.h"

namespace mempo {

struct Layer {
  Parameter *input_norm, *post_norm;
  Projection qkv;  // query, key and value projections stacked
  Parameter *q_norm, *k_norm;  // null where there are none
  Projection output;
  Projection gate_up;  // gate and up projections stacked
  Projection down;
};

// Tokens of several rows, one row after the other, without padding.
struct PackedBatch {
  std::vector<int64_t> offsets;  // row r covers [offsets[r], offsets[r+1])
  at::Tensor ids;                // [T] int64 on the device
  at::Tensor cos, sin;           // [T, head_dim / 2], of the angles of each token's position in its sequence
  bool adapters = true;          // whether they add to their projections
};

// What the backward pass of a layer reads, as far as Transformer.config says to keep it: the results of matrix products
// and of attention. Norms and activations are computed anew from them, which costs next to nothing.
struct LayerActivations {
  at::Tensor input;          // [T, hidden]
  at::Tensor unnormalized;   // [T, q + k] before their norms; undefined without these
  at::Tensor qkv;            // [T, q + k + v], q and k rotated
  Attended attended;
  at::Tensor middle;         // [T, hidden], input + attention
  at::Tensor gate_up;        // [T, 2 · intermediate]
};
using Activations = std::vector<LayerActivations>;

class Transformer {
 public:
  Transformer(const mempo_model_config& config, at::Device device);

  // Moves rows to the device; their tokens go on from the positions `starts`.
  PackedBatch pack(const RowGroup& rows, const std::vector<int64_t>& starts) const;

  // A batch of what lies on the device: ids and positions, int64.
  PackedBatch batch_of(std::vector<int64_t> offsets, const at::Tensor& ids, const at::Tensor& positions) const;

  // Runs all layers: hidden states [T, hidden] before the last norm. With `kept`, leaves there what `backward` reads.
  at::Tensor hidden_states(const PackedBatch& batch, Attention& attention, Activations* kept = nullptr) const;
  // The last norm.
  at::Tensor normalized(const at::Tensor& hidden) const;
  // Takes the gradient of the hidden states back through all layers: adds the gradients of the weights, the embeddings
  // among them, to `sums`, and empties `kept` on the way.
  void backward(at::Tensor gradient, const PackedBatch& batch, TreeAttention& attention, Activations& kept,
                Gradients& sums) const;

  // A weight with what its adapter adds to it, as float32.
  at::Tensor merged(const std::string& name);

  mempo_model_config config;
  at::Device device;
  at::ScalarType dtype;
  Weights weights;
  std::vector<Layer> layers;
  Parameter *embedding, *final_norm, *head;  // head == embedding when tied
  int64_t update_count = 0;

 private:
  Layer make_layer(const std::string& prefix);

  at::Tensor inverse_frequencies_;  // [head_dim / 2] float32
};

}  // namespace mempo

struct mempo_model : mempo::CountedHandle, mempo::Transformer {
  using mempo::Transformer::Transformer;
};
