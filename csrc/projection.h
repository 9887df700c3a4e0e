// Linear maps, several of the same input stacked into one, and what adapters add to them: W x + scale · B (A x), of which
// only A and B are trained (LoRA, Hu et al. 2021, arXiv:2106.09685).
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "weights.h"

namespace mempo {

struct PackedBatch;  // of transformer.h

struct Adapter {
  struct Part {
    Parameter* up;  // B [out, rank] of one of the stacked projections
    int64_t begin;  // where its output begins in that of all
  };
  Parameter* down = nullptr;  // A of all parts, stacked: [parts · rank, in]; null without an adapter
  std::vector<Part> parts;
  double scale = 0;
};

struct Projection {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  // null where there is none
  Adapter adapter;
};

// What stands in place of ".weight" in the names of A and B.
constexpr const char *kDownEnding = ".lora_A.weight", *kUpEnding = ".lora_B.weight";

// A projection to be stacked.
struct ProjectionPart {
  std::string name;  // without ".weight"
  int64_t rows;      // of its output
  unsigned target;   // in mempo_adapters.targets
};
Projection add_projection(Weights& weights, const std::vector<ProjectionPart>& parts, int64_t in, bool bias, const mempo_adapters& adapters);

// The projection of x [T, in], for a batch's rows.
at::Tensor project(const PackedBatch& batch, const at::Tensor& x, const Projection& projection);
// The weight [out, in] with what its adapter adds to it.
at::Tensor merged_weight(const Projection& projection);
// The gradient of x, given that of the result; those of what is trained are added to their sums.
at::Tensor project_backward(const at::Tensor& x, const Projection& projection, const at::Tensor& gradient, Gradients& sums);

}  // namespace mempo
