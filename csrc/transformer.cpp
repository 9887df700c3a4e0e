#include "transformer.h"

#include <algorithm>
#include <cmath>

#include "device.h"
#include "layer.h"
#include "kernels.h"
#include "transfer.h"

namespace mempo {

Transformer::Transformer(const mempo_model_config& c, at::Device where)
    : config(c),
      device(where),
      dtype(c.compute_dtype == MEMPO_BFLOAT16 ? at::kBFloat16 : at::kFloat),
      weights(where, dtype, c.trainable != 0, c.optimizer_on_host != 0) {
  config.inverse_frequencies = nullptr;  // the caller's memory
  inverse_frequencies_ = at::from_blob(const_cast<float*>(c.inverse_frequencies), {c.head_dim / 2}, at::kFloat)
                             .clone()
                             .to(where);
  const bool frozen = c.adapters.rank > 0;
  embedding = weights.add({{"model.embed_tokens.weight", {c.vocab, c.hidden}}}, frozen);
  for (int64_t n = 0; n < c.layers; ++n) {
    layers.push_back(make_layer("model.layers." + std::to_string(n) + "."));
  }
  final_norm = weights.add({{"model.norm.weight", {c.hidden}}}, frozen);
  head = c.tied_embeddings ? embedding : weights.add({{"lm_head.weight", {c.vocab, c.hidden}}}, frozen);
}

Layer Transformer::make_layer(const std::string& prefix) {
  const mempo_model_config& c = config;
  const int64_t h = c.hidden, m = c.intermediate, q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const std::string attn = prefix + "self_attn.", mlp = prefix + "mlp.";
  const bool frozen = c.adapters.rank > 0;
  const auto norm = [&](const std::string& name, int64_t width) { return weights.add({{name + ".weight", {width}}}, frozen); };
  Layer layer{};
  layer.input_norm = norm(prefix + "input_layernorm", h);
  layer.qkv = add_projection(weights, {{attn + "q_proj", q, MEMPO_Q_PROJ}, {attn + "k_proj", kv, MEMPO_K_PROJ}, {attn + "v_proj", kv, MEMPO_V_PROJ}}, h, c.qkv_bias != 0, c.adapters);
  if (c.qk_norm) {
    layer.q_norm = norm(attn + "q_norm", c.head_dim);
    layer.k_norm = norm(attn + "k_norm", c.head_dim);
  }
  layer.output = add_projection(weights, {{attn + "o_proj", h, MEMPO_O_PROJ}}, q, c.output_bias != 0, c.adapters);
  layer.post_norm = norm(prefix + "post_attention_layernorm", h);
  layer.gate_up = add_projection(weights, {{mlp + "gate_proj", m, MEMPO_GATE_PROJ}, {mlp + "up_proj", m, MEMPO_UP_PROJ}}, h, c.mlp_bias != 0, c.adapters);
  layer.down = add_projection(weights, {{mlp + "down_proj", h, MEMPO_DOWN_PROJ}}, m, c.mlp_bias != 0, c.adapters);
  return layer;
}

at::Tensor Transformer::merged(const std::string& name) {
  const at::Tensor whole = weights.view(MEMPO_MASTER, name);
  const std::string ending = ".weight", stem = name.substr(0, name.size() - std::min(name.size(), ending.size()));
  if (!weights.has(stem + kDownEnding)) return whole;
  const at::Tensor up = weights.view(MEMPO_MASTER, stem + kUpEnding), down = weights.view(MEMPO_MASTER, stem + kDownEnding);
  const auto wide = [&](const at::Tensor& part) { return part.to(whole.device(), at::kFloat); };
  return at::addmm(wide(whole), wide(up), wide(down), 1, config.adapters.scale);
}

PackedBatch Transformer::pack(const RowGroup& rows, const std::vector<int64_t>& starts) const {
  const int64_t tokens = rows.offsets.back();
  const at::Tensor numbers = at::empty({2, tokens}, at::kLong);  // ids and positions, which go over in one piece
  int64_t *id = numbers.mutable_data_ptr<int64_t>(), *position = id + tokens;
  for (size_t r = 0; r + 1 < rows.offsets.size(); ++r) {
    for (int64_t t = rows.offsets[r]; t < rows.offsets[r + 1]; ++t) {
      id[t] = rows.ids[t];
      position[t] = t - rows.offsets[r] + starts[r];
    }
  }
  const at::Tensor moved = kernels::to_device(numbers, device);
  return batch_of(rows.offsets, moved[0], moved[1]);
}

PackedBatch Transformer::batch_of(std::vector<int64_t> offsets, const at::Tensor& ids, const at::Tensor& positions) const {
  const at::Tensor angles = positions.to(at::kFloat).unsqueeze(1).mul(inverse_frequencies_);
  PackedBatch batch;
  batch.offsets = std::move(offsets);
  batch.ids = ids;
  batch.cos = angles.cos().to(dtype);
  batch.sin = angles.sin().to(dtype);
  return batch;
}

at::Tensor Transformer::hidden_states(const PackedBatch& batch, Attention& attention, Activations* kept) const {
  at::Tensor x = at::embedding(embedding->weight, batch.ids);
  for (int64_t n = 0; n < config.layers; ++n) {
    if (kept == nullptr) {
      x = layer_forward(*this, n, x, batch, attention, nullptr);
      continue;
    }
    LayerActivations& activations = kept->emplace_back();
    x = layer_forward(*this, n, x, batch, attention, &activations);
    keep_only(activations, config.checkpointing);
  }
  return x;
}

at::Tensor Transformer::normalized(const at::Tensor& hidden) const {
  return kernels::rms_norm(hidden, final_norm->weight, config.rms_norm_eps);
}

void Transformer::backward(at::Tensor gradient, const PackedBatch& batch, TreeAttention& attention, Activations& kept,
                           Gradients& sums) const {
  for (int64_t n = config.layers - 1; n >= 0; --n) {
    gradient = layer_backward(*this, n, std::move(kept.back()), batch, attention, gradient, sums);
    kept.pop_back();
  }
  sums.add_rows(*embedding, batch.ids, gradient);
}

}  // namespace mempo

namespace {

void check_config(const mempo_model_config& c) {
  using mempo::require;
  const std::pair<const char*, int64_t> sizes[] = {{"vocab", c.vocab}, {"hidden", c.hidden}, {"intermediate", c.intermediate},
                                                   {"layers", c.layers}, {"heads", c.heads}, {"kv_heads", c.kv_heads}};
  for (const auto& [name, value] : sizes) require(value > 0, std::string(name) + " is " + std::to_string(value) + ", must be above 0");
  require(c.heads % c.kv_heads == 0, "heads must be a multiple of kv_heads");
  require(c.head_dim > 0 && c.head_dim % 2 == 0, "head_dim is " + std::to_string(c.head_dim) + ", must be even and above 0");
  require(c.rms_norm_eps >= 0, "rms_norm_eps must not be negative");
  require(c.inverse_frequencies != nullptr, "inverse_frequencies are missing");
  require(c.checkpointing == MEMPO_KEEP_ALL || c.checkpointing == MEMPO_RECOMPUTE_MLP || c.checkpointing == MEMPO_RECOMPUTE_LAYER, "unknown checkpointing");
  require(c.groups >= 1, "groups is " + std::to_string(c.groups) + ", must be above 0");
  require(c.adapters.rank >= 0, "the rank of the adapters is " + std::to_string(c.adapters.rank) + ", must not be negative");
  if (c.adapters.rank > 0) {
    require(c.adapters.targets != 0 && (c.adapters.targets & ~unsigned{MEMPO_ALL_PROJECTIONS}) == 0, "adapters need targets that are projections");
    require(std::isfinite(c.adapters.scale), "the scale of the adapters is not finite");
  }
  require(c.compute_dtype == MEMPO_FLOAT32 || c.compute_dtype == MEMPO_BFLOAT16, "unknown compute_dtype");
}

void check_count(const mempo_model& model, const std::string& name, int64_t count) {
  const int64_t wanted = model.weights.numel(name);
  mempo::require(count == wanted, name + ": " + std::to_string(count) + " elements given, " + std::to_string(wanted) + " expected");
}

}  // namespace

int mempo_model_new(const mempo_model_config* config, const char* device, mempo_model** out, mempo_error* error) {
  return mempo::guarded(error, [&] {
    mempo::present(config);
    check_config(*config);
    *out = new mempo_model(*config, mempo::device_named(device));
  });
}

void mempo_model_free(mempo_model* model) { delete model; }

int mempo_model_fill(mempo_model* model, const char* name, double mean, double deviation, uint64_t seed, mempo_error* error) {
  return mempo::guarded(error, [&] { mempo::present(model)->weights.fill(mempo::present(name), mean, deviation, seed); });
}

int mempo_model_set_weight(mempo_model* model, const char* name, const void* tensor, mempo_error* error) {
  return mempo::guarded(error, [&] {
    const auto& value = *static_cast<const at::Tensor*>(mempo::present(tensor));
    mempo::present(model)->weights.set(mempo::present(name), value);
  });
}

int mempo_model_read(mempo_model* model, mempo_kind kind, const char* name, float* out, int64_t count,
                     mempo_error* error) {
  return mempo::guarded(error, [&] {
    check_count(*mempo::present(model), mempo::present(name), count);
    at::Tensor target = at::from_blob(out, {count}, at::kFloat);
    const at::Tensor source = kind == MEMPO_MERGED ? model->merged(name) : model->weights.view(kind, name);
    source.defined() ? target.copy_(source.reshape({count})) : target.zero_();
  });
}

int mempo_model_write(mempo_model* model, mempo_kind kind, const char* name, const float* data, int64_t count,
                      mempo_error* error) {
  return mempo::guarded(error, [&] {
    check_count(*mempo::present(model), mempo::present(name), count);
    const at::Tensor source = at::from_blob(const_cast<float*>(data), {count}, at::kFloat);
    if (kind == MEMPO_MASTER) return model->weights.write_master(name, source);
    at::Tensor target = model->weights.make(kind, name);
    target.copy_(source.view(target.sizes()));
  });
}

int64_t mempo_model_update_count(const mempo_model* model) { return model != nullptr ? model->update_count : 0; }
void mempo_model_set_update_count(mempo_model* model, int64_t count) {
  if (model != nullptr) model->update_count = count;
}
