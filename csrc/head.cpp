#include "head.h"

#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "transfer.h"

namespace mempo {

namespace {

// Rows of logits that exist at a time: few enough to stay in cache, enough for a fast product.
int64_t chunk_rows(const Transformer& model) {
  const int64_t elements = model.device.is_cpu() ? int64_t{1} << 23 : int64_t{1} << 27;
  return std::clamp<int64_t>(elements / model.config.vocab, 64, 4096);
}

struct Chunk {
  int64_t begin, length;
  at::Tensor of(const at::Tensor& x) const { return x.narrow(0, begin, length); }
};

std::vector<Chunk> chunks(const Transformer& model, int64_t rows) {
  std::vector<Chunk> all;
  const int64_t step = chunk_rows(model);
  for (int64_t begin = 0; begin < rows; begin += step) all.push_back({begin, std::min(step, rows - begin)});
  return all;
}

// The logits of a chunk in a buffer that all chunks of a call share: as tensors of their own they would be taken from the
// allocator and given back dozens of times, and what is small and stays in between would keep their memory apart.
class LogitBuffer {
 public:
  LogitBuffer(const Transformer& model, int64_t rows)
      : model_(model), buffer_(at::empty({std::min(chunk_rows(model), rows), model.config.vocab}, at::TensorOptions().dtype(at::kFloat).device(model.device))) {}

  at::Tensor of(const at::Tensor& hidden) {
    at::Tensor out = buffer_.narrow(0, 0, hidden.size(0));
    if (hidden.scalar_type() == at::kFloat) {
      at::mm_out(out, hidden, model_.head->weight.t());
    } else if (hidden.is_cuda()) {
      at::mm_out(out, hidden, model_.head->weight.t(), at::kFloat);  // the sums of the product as they are
    } else {
      out.copy_(at::linear(hidden, model_.head->weight));
    }
    return out;
  }

 private:
  const Transformer& model_;
  at::Tensor buffer_;
};

// What logits are divided by, [N, 1]; undefined where that is 1 throughout.
at::Tensor divisors(const std::vector<double>& temperatures, at::Device device) {
  if (std::all_of(temperatures.begin(), temperatures.end(), [](double t) { return t == 1.0; })) return {};
  return at::tensor(temperatures, at::kDouble).to(device, at::kFloat).unsqueeze(1);
}

}  // namespace

void check_temperature(double temperature) {
  require(std::isfinite(temperature) && temperature > 0, "the temperature must be a number above 0");
}

Targets::Targets(const PackedBatch& batch, const std::vector<int64_t>& positions) {
  const at::Tensor where = kernels::to_device(at::tensor(positions, at::kLong), batch.ids.device());
  sources = where - 1;
  ids = batch.ids.index_select(0, where);
}

at::Tensor logits(const Transformer& model, const at::Tensor& hidden) {
  if (hidden.is_cuda() && hidden.scalar_type() != at::kFloat) return at::mm(hidden, model.head->weight.t(), at::kFloat);
  return at::linear(hidden, model.head->weight).to(at::kFloat);
}

LogProbsAndEntropy token_log_probs_and_entropy(const Transformer& model, const at::Tensor& hidden,
                                               const at::Tensor& targets, const std::vector<double>& temperatures) {
  const at::Tensor divisor = divisors(temperatures, model.device);
  LogitBuffer buffer(model, hidden.size(0));
  std::vector<at::Tensor> log_probs, entropies;
  for (const Chunk& c : chunks(model, hidden.size(0))) {
    const at::Tensor x = buffer.of(c.of(hidden));
    if (divisor.defined()) x.div_(c.of(divisor));
    const auto stats = kernels::logit_stats(x, c.of(targets), /*with_entropy=*/true);
    log_probs.push_back(stats.log_probs);
    entropies.push_back(stats.entropies);
  }
  return {at::cat(log_probs), at::cat(entropies)};
}

at::Tensor head_loss(const Transformer& model, const at::Tensor& hidden, const at::Tensor& targets, const LossInputs& inputs,
                     const mempo_loss_options& options, mempo_loss_stats* stats, Gradients& sums) {
  const at::Tensor hidden_gradient = at::empty_like(hidden);
  LogitBuffer buffer(model, hidden.size(0));
  TokenLosses losses(inputs, hidden.size(0), options, model.device);
  for (const Chunk& c : chunks(model, hidden.size(0))) {
    const at::Tensor h = c.of(hidden), ids = c.of(targets);
    at::Tensor x = buffer.of(h);
    if (options.temperature != 1.0) x.div_(options.temperature);
    const auto scored = kernels::logit_stats(x, ids, /*with_entropy=*/false);
    const at::Tensor gradient = losses.gradients(scored.log_probs, c.begin).div_(options.temperature);
    const at::Tensor d = kernels::logits_to_gradient(x, ids, scored.normalizers, gradient, hidden.scalar_type());
    c.of(hidden_gradient).copy_(at::mm(d, model.head->weight));
    sums.add_product(*model.head, d, h);
  }
  losses.add_to(stats);
  return hidden_gradient;
}

void copy_out(const at::Tensor& values, float* out) {
  at::from_blob(out, {values.numel()}, at::kFloat).copy_(kernels::to_host(values));
}

}  // namespace mempo
