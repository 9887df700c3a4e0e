// Scoring without gradient, the gradient of one micro-batch, and the optimiser step.
#include <algorithm>
#include <cmath>

#include "head.h"
#include "kernels.h"
#include "loss.h"
#include "optimizer.h"

namespace mempo {

namespace {

// The rows of a group as the caller's tree.
Tree tree_of(const RowGroup& group, const int64_t* parents, const int64_t* starts) {
  Tree tree{group.offsets, {}, {}};
  for (int64_t r = group.begin; r < group.end; ++r) {
    const int64_t parent = parents[r], start = starts[r];
    const auto invalid = [&](const std::string& what) { return "row " + std::to_string(r) + " " + what; };
    require(parent == -1 || (parent >= group.begin && parent < r), invalid("goes on behind a row that does not come before it in its group"));
    require(parent >= 0 || start == 0, invalid("starts at " + std::to_string(start) + " behind nothing"));
    if (parent >= 0) {
      const auto place = static_cast<size_t>(parent - group.begin);
      const int64_t first = tree.starts[place], length = group.offsets[place + 1] - group.offsets[place];
      require(start > first && start <= first + length, invalid("does not go on behind a token of row " + std::to_string(parent)));
    }
    tree.parents.push_back(parent == -1 ? -1 : parent - group.begin);
    tree.starts.push_back(start);
  }
  return tree;
}

std::vector<int64_t> checked_groups(int64_t rows, int64_t count, const int64_t* ends) {
  require(count > 0 && ends[count - 1] == rows, "the last group does not end with the last row");
  for (int64_t n = 0; n < count; ++n) require(ends[n] > (n == 0 ? 0 : ends[n - 1]), "group " + std::to_string(n) + " is empty");
  return {ends, ends + count};
}

// What the loss of some rows adds up to.
struct Share {
  Gradients gradients;
  mempo_loss_stats stats{};
};

void forward_backward(const Transformer& model, const RowGroup& group, const Tree& tree, const LossInputs& inputs,
                      const mempo_loss_options& options, Share& share) {
  if (group.positions.empty()) return;
  const PackedBatch batch = model.pack(group, tree.starts);
  const Targets targets(batch, group.positions);
  TreeAttention attention(tree);
  Activations kept;
  const at::Tensor hidden = model.hidden_states(batch, attention, &kept);
  const at::Tensor last = hidden.index_select(0, targets.sources);
  const at::Tensor for_normed = head_loss(model, model.normalized(last), targets.ids, inputs.part(group.first_position), options, &share.stats, share.gradients);
  const Parameter& norm = *model.final_norm;
  const at::Tensor for_last = kernels::rms_norm_backward(last, norm.weight, model.config.rms_norm_eps, for_normed, share.gradients.of(norm));
  // The predicting tokens are distinct: each token of a row predicts its next one only.
  const at::Tensor for_hidden = at::zeros_like(hidden).index_copy_(0, targets.sources, for_last);
  model.backward(for_hidden, batch, attention, kept, share.gradients);
}

}  // namespace

}  // namespace mempo

using namespace mempo;

int mempo_score(mempo_model* model, int64_t rows, const int64_t* offsets, const int32_t* ids, int64_t position_count,
                const int64_t* positions, double temperature, int without_adapters, float* log_probs, float* entropies,
                mempo_error* error) {
  return guarded(error, [&] {
    check_temperature(temperature);
    at::NoGradGuard no_grad;
    const PackedRows given{rows, offsets, ids, position_count, positions};
    check_rows(given, present(model)->config.vocab);
    require(position_count > 0, "no position to score");
    const auto groups = cut_evenly(given, model->config.groups);
    run_groups(groups, [&](size_t, const RowGroup& group) {
      if (group.positions.empty()) return;
      const std::vector<int64_t> nothing(static_cast<size_t>(group.rows()), 0), nobody(static_cast<size_t>(group.rows()), -1);
      PackedBatch batch = model->pack(group, nothing);
      batch.adapters = without_adapters == 0;
      const Targets targets(batch, group.positions);
      TreeAttention attention({group.offsets, nobody, nothing});
      const at::Tensor predicting = model->hidden_states(batch, attention).index_select(0, targets.sources);
      const std::vector<double> temperatures(group.positions.size(), temperature);
      const auto scores = token_log_probs_and_entropy(*model, model->normalized(predicting), targets.ids, temperatures);
      copy_out(scores.log_probs, log_probs + group.first_position);
      copy_out(scores.entropy, entropies + group.first_position);
    });
  });
}

int mempo_forward_backward(mempo_model* model, int64_t rows, const int64_t* offsets, const int32_t* ids,
                           const int64_t* parents, const int64_t* starts, int64_t group_count, const int64_t* groups,
                           int64_t position_count, const int64_t* positions, const mempo_loss_inputs* inputs,
                           const mempo_loss_options* options, mempo_loss_stats* stats, mempo_error* error) {
  return guarded(error, [&] {
    require(present(model)->weights.trainable(), "the model was not loaded for training");
    check_temperature(options->temperature);
    at::NoGradGuard no_grad;
    const PackedRows given{rows, offsets, ids, position_count, positions};
    check_rows(given, model->config.vocab);
    require(position_count > 0, "no position to learn");
    const LossInputs columns(*inputs, options->kind);
    const auto cut = cut_rows(given, checked_groups(rows, group_count, groups));
    std::vector<Tree> trees;
    for (const RowGroup& group : cut) trees.push_back(tree_of(group, parents, starts));
    // The first group adds to the model's own sums, the others have theirs, which follow in a fixed order.
    Gradients& sums = model->weights.gradients();
    std::vector<Share> shares(cut.size(), Share{Gradients(sums.sums().size())});
    std::swap(shares[0].gradients, sums);
    run_groups(cut, [&](size_t n, const RowGroup& group) { forward_backward(*model, group, trees[n], columns, *options, shares[n]); });
    std::swap(shares[0].gradients, sums);
    *stats = {};
    for (size_t n = 0; n < shares.size(); ++n) {
      if (n > 0) sums.add(std::move(shares[n].gradients));
      add_stats(stats, shares[n].stats);
    }
  });
}

int mempo_update(mempo_model* model, const mempo_update_options* options, double* grad_norm, int* skipped,
                 mempo_error* error) {
  return guarded(error, [&] {
    require(present(model)->weights.trainable(), "the model was not loaded for training");
    at::NoGradGuard no_grad;
    require(!model->weights.gradients().empty(), "there is no gradient to update with");
    *grad_norm = gradient_norm(model->weights.gradients());
    *skipped = std::isfinite(*grad_norm) ? 0 : 1;
    if (*skipped == 0) {
      adamw_step(model->weights, *grad_norm, model->update_count + 1, *options);
      ++model->update_count;
    }
    model->weights.drop_gradients();
  });
}

int mempo_drop_gradient(mempo_model* model, mempo_error* error) {
  return guarded(error, [&] { present(model)->weights.drop_gradients(); });
}
