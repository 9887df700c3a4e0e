#include "projection.h"

#include "transformer.h"

namespace mempo {

namespace {

Adapter add_adapter(Weights& weights, const std::vector<ProjectionPart>& parts, int64_t in, const mempo_adapters& adapters) {
  Adapter adapter;
  std::vector<Weights::Part> downs;
  int64_t begin = 0;
  for (const ProjectionPart& part : parts) {
    if ((adapters.targets & part.target) != 0) {
      downs.push_back({part.name + kDownEnding, {adapters.rank, in}});
      adapter.parts.push_back({weights.add({{part.name + kUpEnding, {part.rows, adapters.rank}}}), begin});
    }
    begin += part.rows;
  }
  if (!downs.empty()) adapter.down = weights.add(downs);
  adapter.scale = adapters.scale;
  return adapter;
}

// What a part has of a tensor [T, parts · rank].
at::Tensor of_part(const at::Tensor& low, const Adapter& adapter, size_t part) {
  const int64_t rank = adapter.parts[part].up->weight.size(1);
  return low.narrow(1, static_cast<int64_t>(part) * rank, rank);
}

// What a part has of the output of all.
at::Tensor output_of(const at::Tensor& output, const Adapter::Part& part) {
  return output.narrow(1, part.begin, part.up->weight.size(0));
}

void add_to(at::Tensor& output, const at::Tensor& x, const Adapter& adapter) {
  const at::Tensor low = at::linear(x, adapter.down->weight);
  for (size_t n = 0; n < adapter.parts.size(); ++n) {
    const Adapter::Part& part = adapter.parts[n];
    output_of(output, part).addmm_(of_part(low, adapter, n), part.up->weight.t(), 1, adapter.scale);
  }
}

// Adds to the gradient of x.
void adapter_backward(const at::Tensor& x, const Adapter& adapter, const at::Tensor& gradient, at::Tensor& for_x, Gradients& sums) {
  const at::Tensor low = at::linear(x, adapter.down->weight).mul_(adapter.scale), for_low = at::empty_like(low);
  for (size_t n = 0; n < adapter.parts.size(); ++n) {
    const Adapter::Part& part = adapter.parts[n];
    const at::Tensor of_output = output_of(gradient, part);
    sums.add_product(*part.up, of_output, of_part(low, adapter, n));
    of_part(for_low, adapter, n).copy_(at::mm(of_output, part.up->weight).mul_(adapter.scale));
  }
  sums.add_product(*adapter.down, for_low, x);
  for_x.addmm_(for_low, adapter.down->weight);
}

}  // namespace

Projection add_projection(Weights& weights, const std::vector<ProjectionPart>& parts, int64_t in, bool bias, const mempo_adapters& adapters) {
  std::vector<Weights::Part> matrices, biases;
  for (const ProjectionPart& part : parts) {
    matrices.push_back({part.name + ".weight", {part.rows, in}});
    biases.push_back({part.name + ".bias", {part.rows}});
  }
  const bool frozen = adapters.rank > 0;
  Projection projection;
  projection.weight = weights.add(matrices, frozen);
  if (bias) projection.bias = weights.add(biases, frozen);
  if (frozen) projection.adapter = add_adapter(weights, parts, in, adapters);
  return projection;
}

at::Tensor project(const PackedBatch& batch, const at::Tensor& x, const Projection& projection) {
  at::Tensor output = at::linear(x, projection.weight->weight, projection.bias != nullptr ? projection.bias->weight : at::Tensor());
  if (batch.adapters && projection.adapter.down != nullptr) add_to(output, x, projection.adapter);
  return output;
}

at::Tensor merged_weight(const Projection& projection) {
  const Adapter& adapter = projection.adapter;
  if (adapter.down == nullptr) return projection.weight->weight;
  const at::Tensor merged = projection.weight->weight.clone(), downs = adapter.down->weight.t();
  for (size_t n = 0; n < adapter.parts.size(); ++n) {
    const at::Tensor up = adapter.parts[n].up->weight;
    merged.narrow(0, adapter.parts[n].begin, up.size(0)).addmm_(up, of_part(downs, adapter, n).t(), 1, adapter.scale);
  }
  return merged;
}

at::Tensor project_backward(const at::Tensor& x, const Projection& projection, const at::Tensor& gradient, Gradients& sums) {
  sums.add_product(*projection.weight, gradient, x);
  if (projection.bias != nullptr) sums.add_bias(*projection.bias, gradient);
  at::Tensor for_x = at::mm(gradient, projection.weight->weight);
  if (projection.adapter.down != nullptr) adapter_backward(x, projection.adapter, gradient, for_x, sums);
  return for_x;
}

}  // namespace mempo
