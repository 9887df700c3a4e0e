// Scoring without gradient, the gradient of one micro-batch, and the AdamW step.
#include <algorithm>
#include <cmath>

#include "head.h"
#include "kernels.h"
#include "loss.h"

namespace mempo {

namespace {

// Global L2 norm of the summed gradient.
double gradient_norm(Weights& weights) {
  std::vector<at::Tensor> norms;
  for (Parameter& p : weights.all()) {
    if (p.gradient.defined()) norms.push_back(at::linalg_vector_norm(p.gradient));
  }
  return at::linalg_vector_norm(at::stack(norms)).item<double>();
}

void drop_gradient(Weights& weights) {
  for (Parameter& p : weights.all()) p.gradient.reset();
}

// The rows of a batch as the caller's tree.
Tree tree_of(const PackedBatch& batch, const int64_t* parents, const int64_t* starts) {
  Tree tree{batch.offsets, {}, {}};
  for (int64_t r = 0; r < batch.rows(); ++r) {
    const int64_t parent = parents[r], start = starts[r];
    const auto invalid = [&](const std::string& what) { return "row " + std::to_string(r) + " " + what; };
    require(parent >= -1 && parent < r, invalid("goes on behind a row that does not come before it"));
    require(parent >= 0 || start == 0, invalid("starts at " + std::to_string(start) + " behind nothing"));
    if (parent >= 0) {
      const int64_t first = tree.starts[static_cast<size_t>(parent)], length = batch.offsets[parent + 1] - batch.offsets[parent];
      require(start > first && start <= first + length, invalid("does not go on behind a token of row " + std::to_string(parent)));
    }
    tree.parents.push_back(parent);
    tree.starts.push_back(start);
  }
  return tree;
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
    require(position_count > 0, "no position to score");
    const Targets targets = targets_of(*model, batch, position_count, positions);
    const std::vector<int64_t> nothing(static_cast<size_t>(rows), 0), nobody(static_cast<size_t>(rows), -1);
    TreeAttention attention(tree_of(batch, nobody.data(), nothing.data()));
    const at::Tensor predicting = model->hidden_states(batch, attention).index_select(0, targets.sources);
    const std::vector<double> temperatures(static_cast<size_t>(position_count), temperature);
    const auto scores = token_log_probs_and_entropy(*model, model->normalized(predicting), targets.ids, temperatures);
    copy_out(scores.log_probs, log_probs);
    copy_out(scores.entropy, entropies);
  });
}

int mempo_forward_backward(mempo_model* model, int64_t rows, const int64_t* offsets, const int32_t* ids,
                           const int64_t* parents, const int64_t* starts, int64_t position_count,
                           const int64_t* positions, const mempo_loss_inputs* inputs, const mempo_loss_options* options,
                           mempo_loss_stats* stats, mempo_error* error) {
  return guarded(error, [&] {
    require(present(model)->weights.trainable(), "the model was not loaded for training");
    check_temperature(options->temperature);
    at::NoGradGuard no_grad;
    const PackedBatch batch = model->pack(rows, offsets, ids, {starts, starts + rows});
    require(position_count > 0, "no position to learn");
    const Targets targets = targets_of(*model, batch, position_count, positions);
    TreeAttention attention(tree_of(batch, parents, starts));
    Activations kept;
    const at::Tensor hidden = model->hidden_states(batch, attention, &kept);
    const at::Tensor last = hidden.index_select(0, targets.sources);
    const at::Tensor for_normed = head_loss(*model, model->normalized(last), targets.ids, {*inputs, options->kind}, *options, stats);
    Parameter* norm = model->final_norm;
    const at::Tensor for_last = kernels::rms_norm_backward(last, norm->weight, model->config.rms_norm_eps, for_normed, norm->gradient_sum());
    // The predicting tokens are distinct: each token of a row predicts its next one only.
    const at::Tensor for_hidden = at::zeros_like(hidden).index_copy_(0, targets.sources, for_last);
    model->backward(for_hidden, batch, attention, kept);
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
