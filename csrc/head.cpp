#include "head.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernels.h"

namespace mempo {

namespace {

// Rows of logits that exist at a time: few enough to stay in cache, enough for a fast product.
int64_t chunk_rows(const Transformer& model) {
  const int64_t elements = model.device.is_cpu() ? int64_t{1} << 23 : int64_t{1} << 27;
  return std::clamp<int64_t>(elements / model.config.vocab, 64, 4096);
}

at::Tensor scaled_logits(const Transformer& model, const at::Tensor& hidden, double temperature) {
  at::Tensor x = logits(model, hidden);
  return temperature == 1.0 ? x : x.div_(temperature);
}

struct Chunk {
  int64_t begin, length;
};

std::vector<Chunk> chunks(const Transformer& model, int64_t rows) {
  std::vector<Chunk> all;
  const int64_t step = chunk_rows(model);
  for (int64_t begin = 0; begin < rows; begin += step) all.push_back({begin, std::min(step, rows - begin)});
  return all;
}

// sum += a · b, whatever the dtype of the factors.
void add_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() == sum.scalar_type()) {
    sum.addmm_(a, b);
  } else {
    sum.add_(at::mm(a, b));
  }
}

struct TokenLogProbs : torch::autograd::Function<TokenLogProbs> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& targets, const Transformer* model, double temperature) {
    std::vector<at::Tensor> log_probs, normalizers;
    for (const Chunk& c : chunks(*model, hidden.size(0))) {
      const at::Tensor x = scaled_logits(*model, hidden.narrow(0, c.begin, c.length), temperature);
      const auto stats = kernels::logit_stats(x, targets.narrow(0, c.begin, c.length), /*with_entropy=*/false);
      normalizers.push_back(stats.normalizers);
      log_probs.push_back(stats.log_probs);
    }
    context->save_for_backward({hidden, targets, at::cat(normalizers)});
    context->saved_data["model"] = reinterpret_cast<int64_t>(model);
    context->saved_data["temperature"] = temperature;
    return at::cat(log_probs);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &hidden = saved[0], &targets = saved[1], &normalizers = saved[2];
    const auto* model = reinterpret_cast<const Transformer*>(context->saved_data["model"].toInt());
    const double temperature = context->saved_data["temperature"].toDouble();
    const at::Tensor weight = model->head->weight.detach();
    at::Tensor hidden_gradient = at::empty_like(hidden);
    for (const Chunk& c : chunks(*model, hidden.size(0))) {
      const at::Tensor h = hidden.narrow(0, c.begin, c.length);
      at::Tensor d = scaled_logits(*model, h, temperature);
      kernels::logits_to_gradient(d, targets.narrow(0, c.begin, c.length), normalizers.narrow(0, c.begin, c.length),
                                  gradients[0].narrow(0, c.begin, c.length).div(temperature));
      d = d.to(hidden.scalar_type());
      hidden_gradient.narrow(0, c.begin, c.length).copy_(at::mm(d, weight));
      add_product(model->head->gradient_sum(), d.t(), h);
    }
    return {hidden_gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor logits(const Transformer& model, const at::Tensor& hidden) {
  return at::linear(hidden, model.head->weight.detach()).to(at::kFloat);
}

at::Tensor token_log_probs(const Transformer& model, const at::Tensor& hidden, const at::Tensor& targets,
                           double temperature) {
  return TokenLogProbs::apply(hidden, targets, &model, temperature);
}

LogProbsAndEntropy token_log_probs_and_entropy(const Transformer& model, const at::Tensor& hidden,
                                               const at::Tensor& targets, double temperature) {
  std::vector<at::Tensor> log_probs, entropies;
  for (const Chunk& c : chunks(model, hidden.size(0))) {
    const at::Tensor x = scaled_logits(model, hidden.narrow(0, c.begin, c.length), temperature);
    const auto stats = kernels::logit_stats(x, targets.narrow(0, c.begin, c.length), /*with_entropy=*/true);
    log_probs.push_back(stats.log_probs);
    entropies.push_back(stats.entropies);
  }
  return {at::cat(log_probs), at::cat(entropies)};
}

}  // namespace mempo
