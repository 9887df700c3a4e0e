// The output head: log-probabilities of given tokens without the full [tokens × vocabulary] matrix.
#pragma once

#include "loss.h"
#include "transformer.h"

namespace mempo {

void check_temperature(double temperature);

// Where the scored tokens lie: token p is predicted by the hidden state of token p − 1.
struct Targets {
  at::Tensor sources;  // [N] int64, index of the predicting token
  at::Tensor ids;      // [N] int64

  Targets(const PackedBatch& batch, const std::vector<int64_t>& positions);
};

struct LogProbsAndEntropy {
  at::Tensor log_probs, entropy;  // float32 [N]; nats
};
// log softmax(head(hidden) / temperature)[targets] and the entropy of each distribution; hidden [N, width] after the last
// norm, targets [N] int64, one temperature for each. Logits exist for a chunk of rows at a time.
LogProbsAndEntropy token_log_probs_and_entropy(const Transformer& model, const at::Tensor& hidden,
                                               const at::Tensor& targets, const std::vector<double>& temperatures);

// The loss of the targets; returns its gradient in `hidden`, and adds that of the head's weight to `sums`. Chunk by chunk
// too: a token's loss reads no other token, so that its logits serve both passes and are computed once.
at::Tensor head_loss(const Transformer& model, const at::Tensor& hidden, const at::Tensor& targets, const LossInputs& inputs,
                     const mempo_loss_options& options, mempo_loss_stats* stats, Gradients& sums);

// Logits in float32, [N, vocab].
at::Tensor logits(const Transformer& model, const at::Tensor& hidden);

// Copies float32 numbers to the caller's memory.
void copy_out(const at::Tensor& values, float* out);

}  // namespace mempo
