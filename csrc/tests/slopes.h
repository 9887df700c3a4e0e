// Gradients of a batch, and the slopes that they must be.
#pragma once

#include "tiny.h"

namespace tiny {

inline int add_gradient(mempo_model* model, const Batch& b, const Columns& columns, const mempo_loss_options& options, mempo_loss_stats* stats,
                        mempo_error* error) {
  const mempo_loss_inputs inputs = columns.get(options.kind);
  return mempo_forward_backward(model, b.rows(), b.offsets.data(), b.ids.data(), b.parents.data(), b.starts.data(), b.group_count(), b.groups.data(), b.count(), b.positions.data(), &inputs, &options, stats,
                                error);
}

inline mempo_loss_stats add_gradient(mempo_model* model, const Batch& b, const Columns& columns, const mempo_loss_options& options = plain_loss()) {
  mempo_loss_stats stats{};
  OK(add_gradient, model, b, columns, options, &stats);
  return stats;
}

// At new = old the policy loss falls by weight · advantage per nat: its slope, measured on the log-probabilities. The
// negative log-likelihood does so everywhere, its advantages being 1.
inline double measured_loss(mempo_model* model, const Batch& b, const Columns& columns) {
  const Scores s = score(model, b);
  double loss = 0;
  for (size_t k = 0; k < s.log_probs.size(); ++k) loss -= double{columns.weights[k]} * columns.advantages[k] * s.log_probs[k];
  return loss;
}

// A few elements of every tensor of a list, moved up and down.
inline void gradients_are_slopes(mempo_model* model, const std::vector<Named>& weights, const mempo_loss_options& options) {
  const Batch b = random_batch(11, {7, 1, 12, 2});
  Columns columns(score(model, b), 12);
  const bool all_equal = options.kind == MEMPO_NEGATIVE_LOG_LIKELIHOOD;
  if (all_equal) std::fill(columns.advantages.begin(), columns.advantages.end(), 1.0F);
  const mempo_loss_stats stats = add_gradient(model, b, columns, options);
  EXPECT_EQUAL(stats.max_log_ratio, 0.0);
  EXPECT_EQUAL(stats.clipped, 0.0);
  EXPECT_NEAR(stats.negative_log_likelihood, all_equal ? measured_loss(model, b, columns) : 0.0, 1e-5);
  EXPECT(all_equal == (stats.policy == 0.0));
  Random random{13};
  for (const Named& weight : weights) {
    const std::vector<float> gradient = read(model, MEMPO_GRADIENT, weight), before = read(model, MEMPO_MASTER, weight);
    for (int n = 0; n < 3; ++n) {
      // Of the embeddings, one that the batch uses.
      const auto limit = static_cast<int32_t>(weight.name == "model.embed_tokens.weight" ? 24 : weight.count);
      const size_t k = static_cast<size_t>(random.below(limit) + (limit == weight.count ? 0 : 24 * b.ids[static_cast<size_t>(n)]));
      double loss[2];
      const float distance = 5e-3F;
      for (int side = 0; side < 2; ++side) {
        std::vector<float> moved = before;
        moved[k] += side == 0 ? -distance : distance;
        OK(mempo_model_write, model, MEMPO_MASTER, weight.name.c_str(), moved.data(), weight.count);
        loss[side] = measured_loss(model, b, columns);
      }
      OK(mempo_model_write, model, MEMPO_MASTER, weight.name.c_str(), before.data(), weight.count);
      const double slope = (loss[1] - loss[0]) / (2.0 * distance);
      if (std::fabs(slope - gradient[k]) > 2e-4 + 2e-2 * std::fabs(slope)) {
        report(__FILE__, __LINE__, weight.name + ": gradient " + std::to_string(gradient[k]) + ", slope " + std::to_string(slope));
      }
    }
  }
}

}  // namespace tiny
