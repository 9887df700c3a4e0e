#include "layer.h"

#include "kernels.h"

namespace mempo {

namespace {

// Queries, keys and values as views of one buffer [T, q + k + v].
struct Heads {
  at::Tensor q, k, v;       // [T, heads, head_dim], [T, kv_heads, head_dim] twice
  at::Tensor all, rotated;  // all three, and queries and keys, [T, .., head_dim]

  Heads(const mempo_model_config& c, const at::Tensor& qkv) {
    const int64_t tokens = qkv.size(0), q_width = c.heads * c.head_dim, kv_width = c.kv_heads * c.head_dim;
    const auto cut = [&](int64_t begin, int64_t width, int64_t heads) { return qkv.narrow(1, begin, width).view({tokens, heads, c.head_dim}); };
    q = cut(0, q_width, c.heads);
    k = cut(q_width, kv_width, c.kv_heads);
    rotated = cut(0, q_width + kv_width, c.heads + c.kv_heads);
    v = cut(q_width + kv_width, kv_width, c.kv_heads);
    all = cut(0, q_width + 2 * kv_width, c.heads + 2 * c.kv_heads);
  }
};

class Run {
 public:
  Run(const Transformer& model, int64_t index, const PackedBatch& batch)
      : c_(model.config), layer_(model.layers[static_cast<size_t>(index)]), index_(index), batch_(batch) {}

  void attention_block(const at::Tensor& input, Attention& attention, LayerActivations& a, bool for_backward) const {
    a.qkv = project(batch_, norm(input, layer_.input_norm), layer_.qkv);
    const Heads h(c_, a.qkv);
    if (layer_.q_norm != nullptr) {
      if (for_backward) a.unnormalized = a.qkv.narrow(1, 0, (c_.heads + c_.kv_heads) * c_.head_dim).clone();
      h.q.copy_(norm(h.q, layer_.q_norm));
      h.k.copy_(norm(h.k, layer_.k_norm));
    }
    attention.rotate_(index_, h.all, c_.kv_heads, batch_.cos, batch_.sin);
    a.attended = attention.attend(index_, h.q, h.k, h.v);
    a.middle = project(batch_, a.attended.mixed, layer_.output).add_(input);
  }

  at::Tensor gate_up(const at::Tensor& middle) const {
    return project(batch_, norm(middle, layer_.post_norm), layer_.gate_up);
  }

  at::Tensor mlp_output(const LayerActivations& a) const {
    return project(batch_, kernels::swiglu(a.gate_up), layer_.down).add_(a.middle);
  }

  // The gradient of `middle`.
  at::Tensor mlp_backward(const LayerActivations& a, const at::Tensor& gradient, Gradients& sums) const {
    const at::Tensor for_hidden = project_backward(kernels::swiglu(a.gate_up), layer_.down, gradient, sums);
    const at::Tensor for_gates = kernels::swiglu_backward(a.gate_up, for_hidden);
    const at::Tensor for_norm = project_backward(norm(a.middle, layer_.post_norm), layer_.gate_up, for_gates, sums);
    return norm_backward(a.middle, layer_.post_norm, for_norm, sums).add_(gradient);
  }

  // The gradient of the layer's input, given that of `middle`.
  at::Tensor attention_backward(const LayerActivations& a, const TreeAttention& attention, const at::Tensor& gradient, Gradients& sums) const {
    const at::Tensor for_mixed = project_backward(a.attended.mixed, layer_.output, gradient, sums);
    const at::Tensor for_qkv = at::empty_like(a.qkv);
    const Heads h(c_, a.qkv), d(c_, for_qkv);
    attention.backward(for_mixed, h.q, h.k, h.v, a.attended, d.q, d.k, d.v);
    kernels::rotate_(d.rotated, batch_.cos, batch_.sin, -1);
    if (layer_.q_norm != nullptr) {
      const int64_t q_width = c_.heads * c_.head_dim;
      const at::Tensor q = a.unnormalized.narrow(1, 0, q_width).view(h.q.sizes());
      const at::Tensor k = a.unnormalized.narrow(1, q_width, c_.kv_heads * c_.head_dim).view(h.k.sizes());
      d.q.copy_(norm_backward(q, layer_.q_norm, d.q, sums));
      d.k.copy_(norm_backward(k, layer_.k_norm, d.k, sums));
    }
    const at::Tensor for_norm = project_backward(norm(a.input, layer_.input_norm), layer_.qkv, for_qkv, sums);
    return norm_backward(a.input, layer_.input_norm, for_norm, sums).add_(gradient);
  }

 private:
  at::Tensor norm(const at::Tensor& x, const Parameter* weight) const {
    return kernels::rms_norm(x, weight->weight, c_.rms_norm_eps);
  }
  at::Tensor norm_backward(const at::Tensor& x, const Parameter* weight, const at::Tensor& gradient, Gradients& sums) const {
    return kernels::rms_norm_backward(x, weight->weight, c_.rms_norm_eps, gradient, sums.of(*weight));
  }

  const mempo_model_config& c_;
  const Layer& layer_;
  int64_t index_;
  const PackedBatch& batch_;
};

}  // namespace

at::Tensor layer_forward(const Transformer& model, int64_t index, const at::Tensor& input, const PackedBatch& batch,
                         Attention& attention, LayerActivations* activations) {
  const Run run(model, index, batch);
  LayerActivations a;
  a.input = input;
  run.attention_block(input, attention, a, /*for_backward=*/activations != nullptr);
  a.gate_up = run.gate_up(a.middle);
  const at::Tensor output = run.mlp_output(a);
  if (activations != nullptr) *activations = std::move(a);
  return output;
}

void keep_only(LayerActivations& activations, mempo_checkpointing checkpointing) {
  if (checkpointing == MEMPO_RECOMPUTE_MLP) activations.gate_up.reset();
  if (checkpointing == MEMPO_RECOMPUTE_LAYER) activations = LayerActivations{activations.input, {}, {}, {}, {}, {}};
}

at::Tensor layer_backward(const Transformer& model, int64_t index, LayerActivations a, const PackedBatch& batch,
                          TreeAttention& attention, const at::Tensor& gradient, Gradients& sums) {
  const Run run(model, index, batch);
  if (!a.qkv.defined()) run.attention_block(a.input, attention, a, /*for_backward=*/true);
  if (!a.gate_up.defined()) a.gate_up = run.gate_up(a.middle);
  const at::Tensor for_middle = run.mlp_backward(a, gradient, sums);
  a.gate_up.reset();
  return run.attention_backward(a, attention, for_middle, sums);
}

}  // namespace mempo
