// Decoding on a CPU: a team of threads takes one token of each of a few rows through all layers.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "kernels.h"
#include "packed_matrix.h"
#include "transformer.h"

namespace mempo {

// The forward pass of Transformer for so few tokens that what lies between the products counts. Every thread has packed
// copies of its share of all matrices, good for as long as the weights do not change; the threads meet five times in a layer.
// Results differ from Transformer's by rounding.
class Decoder {
 public:
  // None where a model has no use of it, or the copies would take too much memory. `adapters`: whether the copies hold what
  // adapters add to the weights.
  static std::unique_ptr<Decoder> of(const Transformer& model, bool adapters);

  // Whether a pass of so many rows is faster here.
  static bool suits(int64_t rows);

  // Hidden states [rows, hidden] before the last norm, of a batch with one token for each row, whose keys and values go into
  // the pages. Good until the next pass.
  at::Tensor hidden_states(const PackedBatch& batch, const kernels::PagedRows& paged);
  // Logits [rows, vocab] of normalized hidden states, as many as a pass may have.
  at::Tensor logits(const at::Tensor& hidden) const;

 private:
  struct Range {
    int64_t begin, length;
    static Range share(int64_t count, int64_t unit, int64_t index, int64_t shares);
  };
  struct LayerShare {
    PackedMatrix qkv, output, gate_up, down;
  };
  // What one thread computes of every product: a range of its outputs.
  struct Share {
    Range heads;  // of queries, keys and values, one behind the other
    Range hidden, intermediate, vocab;
    std::vector<LayerShare> layers;
    std::unique_ptr<PackedMatrix> head;
  };
  class Team;

  Decoder(const Transformer& model, bool adapters);
  LayerShare pack(const Share& share, const std::vector<at::Tensor>& weights, const Layer& layer) const;

  void layer(size_t index, const PackedBatch& batch, const kernels::PagedRows& paged, Team& team) const;
  void project_heads(const Share& share, size_t layer, const PackedBatch& batch, const kernels::PagedRows& paged) const;
  void gate(const Share& share, size_t layer) const;

  const Transformer& model_;
  std::vector<Share> shares_;
  // With a row for each of the pass: the hidden states, and what the threads hand to each other.
  at::Tensor x_, qkv_, mixed_, activated_;
};

}  // namespace mempo
