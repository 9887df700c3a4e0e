// Encoders of the BERT family: texts to vectors.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "groups.h"
#include "weights.h"

namespace mempo {

// A projection or a norm: what it multiplies by and what it adds.
struct Affine {
  Parameter *weight, *bias;
};

struct EncoderLayer {
  Affine qkv;  // query, key and value projections stacked
  Affine output, output_norm;
  Affine up, down, final_norm;
};

class Encoder {
 public:
  Encoder(const mempo_encoder_config& config, at::Device device);

  // The vectors [rows, hidden] of a group of rows: float32 on the device.
  at::Tensor encode(const RowGroup& rows) const;

  mempo_encoder_config config;
  Weights weights;

 private:
  Affine add(const std::vector<Weights::Part>& parts);
  at::Tensor embed(const RowGroup& rows) const;
  at::Tensor layer(const EncoderLayer& l, const at::Tensor& x, const std::vector<int64_t>& offsets) const;
  at::Tensor activate(const at::Tensor& x) const;
  at::Tensor norm(const at::Tensor& x, const Affine& by) const;
  at::Tensor pool(const at::Tensor& hidden, const std::vector<int64_t>& offsets) const;

  at::Device device_;
  Parameter *words_, *positions_, *types_;
  Affine embedding_norm_;
  std::vector<EncoderLayer> layers_;
};

}  // namespace mempo

struct mempo_encoder : mempo::CountedHandle, mempo::Encoder {
  using mempo::Encoder::Encoder;
};
