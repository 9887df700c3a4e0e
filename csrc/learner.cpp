// Scoring without gradient, the gradient of one micro-batch, and the AdamW step.
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "head.h"
#include "loss.h"

namespace mempo {

namespace {

void check_temperature(double temperature) {
  require(std::isfinite(temperature) && temperature > 0, "the temperature must be a number above 0");
}

// Where the scored tokens lie: token p is predicted by the hidden state of token p − 1.
struct Targets {
  at::Tensor sources;  // [N] int64, index of the predicting token
  at::Tensor ids;      // [N] int64
};

Targets targets_of(const Transformer& model, const PackedBatch& batch, int64_t count, const int64_t* positions) {
  require(count > 0, "no position to score");
  size_t row = 0;
  for (int64_t k = 0; k < count; ++k) {
    require(positions[k] >= 0 && positions[k] < batch.offsets.back(), "a position is outside the batch");
    require(k == 0 || positions[k] > positions[k - 1], "positions must ascend");
    while (positions[k] >= batch.offsets[row + 1]) ++row;
    require(positions[k] > batch.offsets[row], "the first token of a row cannot be scored");
  }
  const at::Tensor where = at::from_blob(const_cast<int64_t*>(positions), {count}, at::kLong).clone().to(model.device);
  return {where - 1, batch.ids.index_select(0, where)};
}

at::Tensor predicting_states(const Transformer& model, const PackedBatch& batch, const at::Tensor& embedded,
                             const Targets& targets) {
  const auto attention = std::make_shared<RowAttention>(batch.offsets);
  return model.hidden_states(embedded, batch, attention).index_select(0, targets.sources);
}

void copy_out(const at::Tensor& values, float* out) {
  at::from_blob(out, {values.numel()}, at::kFloat).copy_(values);
}

// sum[ids[t]] += rows[t], in the same order every time: index_add_ on CUDA has none.
void add_rows(at::Tensor& sum, const at::Tensor& ids, const at::Tensor& rows) {
  if (sum.is_cpu()) {
    sum.index_add_(0, ids, rows);
  } else {
    sum.index_put_(c10::List<std::optional<at::Tensor>>({ids}), rows, /*accumulate=*/true);
  }
}

// Global L2 norm of the summed gradient.
double gradient_norm(Weights& weights) {
  std::vector<at::Tensor> norms;
  for (Parameter& p : weights.all()) {
    if (p.gradient.defined()) norms.push_back(at::linalg_vector_norm(p.gradient));
  }
  return at::linalg_vector_norm(at::stack(norms)).item<double>();
}

void drop_gradient(Weights& weights) {
  for (Parameter& p : weights.all()) {
    p.gradient.reset();
    p.weight.mutable_grad().reset();
  }
}

// Takes the memory that a step needs, so that one without memory has changed nothing.
void make_moments(Weights& weights) {
  for (Parameter& p : weights.all()) {
    p.gradient_sum();
    if (!p.first_moment.defined()) p.first_moment = at::zeros_like(p.master);
    if (!p.second_moment.defined()) p.second_moment = at::zeros_like(p.master);
  }
}

// What brings a gradient to a norm of at most `most`; torch.nn.utils.clip_grad_norm_ keeps the same distance from zero.
double clip_factor(double norm, double most) { return most > 0 ? std::min(most / (norm + 1e-6), 1.0) : 1.0; }

void scale_gradient(Weights& weights, const at::Tensor& factor) {
  for (Parameter& p : weights.all()) p.gradient.mul_(factor);
}

void adamw_step(Transformer& model, const at::Tensor& step, const mempo_update_options& o) {
  std::vector<at::Tensor> masters, gradients, first, second, steps;
  for (Parameter& p : model.weights.all()) {
    masters.push_back(p.master);
    gradients.push_back(p.gradient);
    first.push_back(p.first_moment);
    second.push_back(p.second_moment);
    steps.push_back(step);
  }
  at::_fused_adamw_(masters, gradients, first, second, {}, steps, o.learning_rate, o.beta1, o.beta2, o.weight_decay,
                    o.eps, /*amsgrad=*/false, /*maximize=*/false);
  for (Parameter& p : model.weights.all()) {
    if (p.weight.scalar_type() != at::kFloat) p.weight.detach().copy_(p.master);
  }
}

}  // namespace

}  // namespace mempo

using namespace mempo;

int mempo_score(mempo_model* model, int64_t rows, const int64_t* offsets, const int32_t* ids, int64_t position_count,
                const int64_t* positions, double temperature, float* log_probs, float* entropies, mempo_error* error) {
  return guarded(error, [&] {
    check_temperature(temperature);
    at::NoGradGuard no_grad;
    const PackedBatch batch = present(model)->pack(rows, offsets, ids);
    const Targets targets = targets_of(*model, batch, position_count, positions);
    const at::Tensor hidden = predicting_states(*model, batch, model->embed(batch), targets);
    const auto scores = token_log_probs_and_entropy(*model, hidden, targets.ids, temperature);
    copy_out(scores.log_probs, log_probs);
    copy_out(scores.entropy, entropies);
  });
}

int mempo_forward_backward(mempo_model* model, int64_t rows, const int64_t* offsets, const int32_t* ids,
                           int64_t position_count, const int64_t* positions, const mempo_loss_inputs* inputs,
                           const mempo_loss_options* options, mempo_loss_stats* stats, mempo_error* error) {
  return guarded(error, [&] {
    require(present(model)->weights.trainable(), "the model was not loaded for training");
    check_temperature(options->temperature);
    at::AutoGradMode with_grad(true);
    const PackedBatch batch = model->pack(rows, offsets, ids);
    const Targets targets = targets_of(*model, batch, position_count, positions);
    const at::Tensor embedded = model->embed(batch).requires_grad_(true);
    const at::Tensor hidden = predicting_states(*model, batch, embedded, targets);
    const at::Tensor log_probs = token_log_probs(*model, hidden, targets.ids, options->temperature);
    const LossTensors in = loss_tensors(position_count, *inputs, options->kind, model->device);
    const at::Tensor loss = weighted_loss(log_probs, in, *options, stats);
    torch::autograd::backward({loss}, {});
    for (Parameter& p : model->weights.all()) p.collect_gradient();
    // The table of embeddings gets its gradient here: only the rows of tokens that occur.
    add_rows(model->embedding->gradient_sum(), batch.ids, embedded.grad().to(at::kFloat));
  });
}

int mempo_update(mempo_model* model, const mempo_update_options* options, double* grad_norm, int* skipped,
                 mempo_error* error) {
  return guarded(error, [&] {
    require(present(model)->weights.trainable(), "the model was not loaded for training");
    at::NoGradGuard no_grad;
    require(model->head->gradient.defined(), "there is no gradient to update with");
    *grad_norm = gradient_norm(model->weights);
    *skipped = std::isfinite(*grad_norm) ? 0 : 1;
    if (*skipped == 0) {
      make_moments(model->weights);
      const auto number = [&](double value) {
        return at::scalar_tensor(value, at::TensorOptions().dtype(at::kFloat).device(model->device));
      };
      const double factor = clip_factor(*grad_norm, options->clip_norm);
      const at::Tensor scale = number(factor), step = number(static_cast<double>(model->update_count + 1));
      if (factor < 1.0) scale_gradient(model->weights, scale);
      adamw_step(*model, step, *options);
      ++model->update_count;
    }
    drop_gradient(model->weights);
  });
}

int mempo_drop_gradient(mempo_model* model, mempo_error* error) {
  return guarded(error, [&] { drop_gradient(present(model)->weights); });
}
