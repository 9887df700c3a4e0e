// Choosing the next token from logits.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "guard.h"

namespace mempo {

struct SamplingRule {
  double temperature;  // 0 = the likeliest token
  int64_t top_k;       // 0 = all
  double top_p;        // 0 or 1 = all
  uint64_t seed;
};

// Refuses values that mean nothing.
void check_rule(const SamplingRule& rule);

// The distribution left by temperature, top-k and top-p, in that order: float32 [vocab], 0 where
// an id was taken out. logits: float32 [vocab].
at::Tensor filtered_distribution(const at::Tensor& logits, const SamplingRule& rule);

// Whether a rule takes ids out of the distribution.
inline bool filters(const SamplingRule& rule) { return rule.top_k > 0 || (rule.top_p > 0 && rule.top_p < 1); }

// Draws one token for each row of `logits` (float32 [S, vocab]). `valid` has one byte per id, 0 = never draw it, on the
// device of the logits; it may be undefined.
std::vector<mempo_sampled> sample(const at::Tensor& logits, const std::vector<SamplingRule>& rules, const at::Tensor& valid);

}  // namespace mempo
