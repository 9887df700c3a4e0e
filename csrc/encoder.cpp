#include "encoder.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "attention.h"
#include "device.h"

namespace mempo {

namespace {

at::Tensor project(const at::Tensor& x, const Affine& by) { return at::linear(x, by.weight->weight, by.bias->weight); }

}  // namespace

Encoder::Encoder(const mempo_encoder_config& c, at::Device where)
    : config(c), weights(where, c.compute_dtype == MEMPO_BFLOAT16 ? at::kBFloat16 : at::kFloat, /*trainable=*/false), device_(where) {
  const int64_t h = c.hidden, m = c.intermediate;
  words_ = weights.add({{"embeddings.word_embeddings.weight", {c.vocab, h}}});
  positions_ = weights.add({{"embeddings.position_embeddings.weight", {c.positions, h}}});
  types_ = weights.add({{"embeddings.token_type_embeddings.weight", {c.token_types, h}}});
  embedding_norm_ = add({{"embeddings.LayerNorm", {h}}});
  for (int64_t n = 0; n < c.layers; ++n) {
    const std::string prefix = "encoder.layer." + std::to_string(n) + ".", attention = prefix + "attention.", self = attention + "self.";
    layers_.push_back({
        add({{self + "query", {h, h}}, {self + "key", {h, h}}, {self + "value", {h, h}}}),
        add({{attention + "output.dense", {h, h}}}),
        add({{attention + "output.LayerNorm", {h}}}),
        add({{prefix + "intermediate.dense", {m, h}}}),
        add({{prefix + "output.dense", {h, m}}}),
        add({{prefix + "output.LayerNorm", {h}}}),
    });
  }
}

// Adds the weights and biases of modules, stacked; shapes are those of the weights.
Affine Encoder::add(const std::vector<Weights::Part>& parts) {
  std::vector<Weights::Part> scales, shifts;
  for (const Weights::Part& part : parts) {
    scales.push_back({part.name + ".weight", part.shape});
    shifts.push_back({part.name + ".bias", {part.shape[0]}});
  }
  Parameter* weight = weights.add(scales);
  return {weight, weights.add(shifts)};
}

at::Tensor Encoder::norm(const at::Tensor& x, const Affine& by) const {
  return at::layer_norm(x, {config.hidden}, by.weight->weight, by.bias->weight, config.layer_norm_eps);
}

at::Tensor Encoder::embed(const RowGroup& rows) const {
  const int64_t tokens = rows.offsets.back();
  const at::Tensor ids = at::from_blob(const_cast<int32_t*>(rows.ids), {tokens}, at::kInt).to(device_);
  const at::Tensor positions = at::empty({tokens}, at::kInt);
  int32_t* position = positions.mutable_data_ptr<int32_t>();
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const int64_t begin = rows.offsets[static_cast<size_t>(r)], end = rows.offsets[static_cast<size_t>(r) + 1];
    for (int64_t t = begin; t < end; ++t) position[t] = static_cast<int32_t>(t - begin);
  }
  const at::Tensor sum = at::embedding(words_->weight, ids).add_(types_->weight[0]).add_(at::embedding(positions_->weight, positions.to(device_)));
  return norm(sum, embedding_norm_);
}

at::Tensor Encoder::activate(const at::Tensor& x) const {
  if (config.activation == MEMPO_RELU) return at::relu(x);
  return at::gelu(x, config.activation == MEMPO_GELU_TANH ? "tanh" : "none");
}

at::Tensor Encoder::layer(const EncoderLayer& l, const at::Tensor& x, const std::vector<int64_t>& offsets) const {
  const at::Tensor qkv = project(x, l.qkv).view({x.size(0), 3, config.heads, config.hidden / config.heads});
  const at::Tensor mixed = bidirectional_attention(qkv.select(1, 0), qkv.select(1, 1), qkv.select(1, 2), offsets);
  const at::Tensor middle = norm(project(mixed, l.output).add_(x), l.output_norm);
  return norm(project(activate(project(middle, l.up)), l.down).add_(middle), l.final_norm);
}

at::Tensor Encoder::pool(const at::Tensor& hidden, const std::vector<int64_t>& offsets) const {
  std::vector<at::Tensor> rows;
  for (size_t r = 0; r + 1 < offsets.size(); ++r) {
    const at::Tensor row = hidden.narrow(0, offsets[r], config.pooling == MEMPO_POOL_MEAN ? offsets[r + 1] - offsets[r] : 1);
    rows.push_back(row.mean(0, /*keepdim=*/false, at::kFloat));
  }
  const at::Tensor vectors = at::stack(rows);
  // The least length is that of torch.nn.functional.normalize.
  return config.normalize ? vectors.div(vectors.norm(2, 1, /*keepdim=*/true).clamp_min_(1e-12)) : vectors;
}

at::Tensor Encoder::encode(const RowGroup& rows) const {
  at::Tensor x = embed(rows);
  for (const EncoderLayer& l : layers_) x = layer(l, x, rows.offsets);
  return pool(x, rows.offsets);
}

namespace {

void check_config(const mempo_encoder_config& c) {
  const std::pair<const char*, int64_t> sizes[] = {{"vocab", c.vocab}, {"hidden", c.hidden}, {"intermediate", c.intermediate},
                                                   {"layers", c.layers}, {"heads", c.heads}, {"positions", c.positions},
                                                   {"token_types", c.token_types}, {"groups", c.groups}};
  for (const auto& [name, value] : sizes) require(value > 0, std::string(name) + " is " + std::to_string(value) + ", must be above 0");
  require(c.hidden % c.heads == 0, "hidden must be a multiple of heads");
  require(c.layer_norm_eps >= 0, "layer_norm_eps must not be negative");
  require(c.activation == MEMPO_GELU || c.activation == MEMPO_GELU_TANH || c.activation == MEMPO_RELU, "unknown activation");
  require(c.pooling == MEMPO_POOL_MEAN || c.pooling == MEMPO_POOL_FIRST, "unknown pooling");
  require(c.compute_dtype == MEMPO_FLOAT32 || c.compute_dtype == MEMPO_BFLOAT16, "unknown compute_dtype");
}

void check_lengths(const PackedRows& given, int64_t positions) {
  for (int64_t r = 0; r < given.rows; ++r) {
    const int64_t length = given.offsets[r + 1] - given.offsets[r];
    require(length <= positions, "row " + std::to_string(r) + " has " + std::to_string(length) + " tokens, the encoder has " +
                                     std::to_string(positions) + " positions");
  }
}

}  // namespace

}  // namespace mempo

using mempo::guarded;
using mempo::present;

int mempo_encoder_new(const mempo_encoder_config* config, const char* device, mempo_encoder** out, mempo_error* error) {
  return guarded(error, [&] {
    mempo::check_config(*present(config));
    *out = new mempo_encoder(*config, mempo::device_named(device));
  });
}

void mempo_encoder_free(mempo_encoder* encoder) { delete encoder; }

int mempo_encoder_set_weight(mempo_encoder* encoder, const char* name, const void* tensor, mempo_error* error) {
  return guarded(error, [&] {
    const auto& value = *static_cast<const at::Tensor*>(present(tensor));
    present(encoder)->weights.set(present(name), value);
  });
}

int mempo_encoder_encode(mempo_encoder* encoder, int64_t rows, const int64_t* offsets, const int32_t* ids, float* out,
                         mempo_error* error) {
  return guarded(error, [&] {
    const auto& c = present(encoder)->config;
    const mempo::PackedRows given{rows, offsets, ids, 0, nullptr};
    mempo::check_rows(given, c.vocab);
    mempo::check_lengths(given, c.positions);
    at::NoGradGuard no_grad;
    const at::Tensor vectors = at::from_blob(out, {rows, c.hidden}, at::kFloat);
    mempo::run_groups(mempo::cut_evenly(given, c.groups), [&](size_t, const mempo::RowGroup& group) {
      vectors.narrow(0, group.begin, group.rows()).copy_(encoder->encode(group));
    });
  });
}
