// The output head: log-probabilities of given tokens without the full [tokens × vocabulary] matrix.
#pragma once

#include "transformer.h"

namespace mempo {

// log softmax(head(hidden) / temperature)[targets], float32 [N]; hidden [N, width], targets [N]
// int64. Logits exist for a chunk of rows at a time, in the backward pass too. The gradient of the
// head's weight goes straight into its gradient sum.
at::Tensor token_log_probs(const Transformer& model, const at::Tensor& hidden, const at::Tensor& targets,
                           double temperature);

struct LogProbsAndEntropy {
  at::Tensor log_probs, entropy;  // float32 [N]; nats
};
// The same without gradient, with the entropy of each distribution.
LogProbsAndEntropy token_log_probs_and_entropy(const Transformer& model, const at::Tensor& hidden,
                                               const at::Tensor& targets, double temperature);

// Logits in float32, [N, vocab].
at::Tensor logits(const Transformer& model, const at::Tensor& hidden);

}  // namespace mempo
