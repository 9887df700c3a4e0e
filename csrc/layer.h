// One decoder layer, forward and backward.
#pragma once

#include "transformer.h"

namespace mempo {

// Returns the layer's output. With `activations`, leaves there everything its backward pass may read.
at::Tensor layer_forward(const Transformer& model, int64_t index, const at::Tensor& input, const PackedBatch& batch,
                         Attention& attention, LayerActivations* activations);

// Lets go of what the backward pass is to compute anew.
void keep_only(LayerActivations& activations, mempo_checkpointing checkpointing);

// Returns the gradient of the layer's input, given that of its output; those of its weights are added to `sums`.
at::Tensor layer_backward(const Transformer& model, int64_t index, LayerActivations activations, const PackedBatch& batch,
                          TreeAttention& attention, const at::Tensor& gradient, Gradients& sums);

}  // namespace mempo
