#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels.h"

namespace mempo {

namespace {

bool is_valid(const at::Tensor& valid, int64_t id) {
  return !valid.defined() || (id < valid.numel() && valid[id].item<uint8_t>() != 0);
}

int64_t likeliest(const at::Tensor& logits, const at::Tensor& valid) {
  const int64_t best = logits.argmax().item<int64_t>();
  if (is_valid(valid, best)) return best;
  const int64_t known = std::min<int64_t>(valid.numel(), logits.numel());
  const at::Tensor rest = logits.narrow(0, 0, known).masked_fill(valid.narrow(0, 0, known).eq(0), -std::numeric_limits<float>::infinity());
  return rest.argmax().item<int64_t>();
}

void require_finite(double value) {
  if (!std::isfinite(value)) throw std::runtime_error(kernels::kBrokenLogits);
}

// The first id whose cumulative mass exceeds u times the whole; an id of no mass is never taken.
int64_t draw(const at::Tensor& cumulative, double u) {
  const double whole = cumulative[-1].item<double>();
  require_finite(whole);
  return at::searchsorted(cumulative, at::Scalar(u * whole), /*out_int32=*/false, /*right=*/true).item<int64_t>();
}

mempo_sampled sample_row(const at::Tensor& logits, const SamplingRule& rule, const at::Tensor& valid) {
  int32_t redraws = 0;
  int64_t id;
  if (rule.temperature == 0) {
    id = likeliest(logits, valid);
  } else {
    const at::Tensor cumulative = filtered_distribution(logits, rule).to(at::kDouble).cumsum(0);
    for (id = draw(cumulative, kernels::uniform(rule.seed, 0)); !is_valid(valid, id) && redraws < kernels::kMaxRedraws;) {
      id = draw(cumulative, kernels::uniform(rule.seed, static_cast<uint64_t>(++redraws)));
    }
    if (!is_valid(valid, id)) id = likeliest(logits, valid);
  }
  const at::Tensor scaled = rule.temperature == 0 ? logits : logits.div(rule.temperature);
  const float log_prob = (scaled[id] - scaled.logsumexp(0)).item<float>();
  require_finite(log_prob);
  return {static_cast<int32_t>(id), log_prob, redraws};
}

}  // namespace

void check_rule(const SamplingRule& rule) {
  require(std::isfinite(rule.temperature) && rule.temperature >= 0, "the temperature must be a number from 0 up");
  require(rule.top_k >= 0, "top_k must not be negative");
  require(rule.top_p >= 0 && rule.top_p <= 1, "top_p must lie between 0 and 1");
}

at::Tensor filtered_distribution(const at::Tensor& logits, const SamplingRule& rule) {
  at::Tensor x = rule.temperature == 1.0 ? logits : logits.div(rule.temperature);
  const float minus_infinity = -std::numeric_limits<float>::infinity();
  if (rule.top_k > 0 && rule.top_k < x.numel()) {
    const at::Tensor smallest_kept = std::get<0>(x.topk(rule.top_k)).min();
    x = x.masked_fill(x.lt(smallest_kept), minus_infinity);
  }
  if (rule.top_p > 0 && rule.top_p < 1) {
    // In ascending order, ids whose cumulative mass stays within 1 − top_p go; the likeliest never does.
    const auto [sorted, order] = x.sort(/*dim=*/-1, /*descending=*/false);
    at::Tensor out = sorted.softmax(0).cumsum(0).le(1 - rule.top_p);
    out[-1] = false;
    x = x.masked_fill(at::zeros_like(out).scatter(0, order, out), minus_infinity);
  }
  return x.softmax(0);
}

std::vector<mempo_sampled> sample(const at::Tensor& logits, const std::vector<SamplingRule>& rules, const at::Tensor& valid) {
  std::vector<mempo_sampled> sampled;
  if (!kernels::can_sample(logits) || std::any_of(rules.begin(), rules.end(), filters)) {
    for (size_t r = 0; r < rules.size(); ++r) sampled.push_back(sample_row(logits[static_cast<int64_t>(r)], rules[r], valid));
    return sampled;
  }
  std::vector<kernels::Draw> draws;
  for (const SamplingRule& rule : rules) draws.push_back({rule.temperature, rule.seed, -1, 0, 0});
  kernels::sample(logits, valid, draws);
  for (const kernels::Draw& d : draws) sampled.push_back({static_cast<int32_t>(d.id), d.log_prob, d.redraws});
  return sampled;
}

}  // namespace mempo

int mempo_filtered_distribution(const float* logits, int64_t vocab, double temperature, int64_t top_k, double top_p,
                                float* out, mempo_error* error) {
  return mempo::guarded(error, [&] {
    mempo::require(vocab > 0, "vocab must be above 0");
    mempo::require(temperature > 0, "the temperature must be above 0");
    mempo::check_rule({temperature, top_k, top_p, 0});
    const at::Tensor x = at::from_blob(const_cast<float*>(logits), {vocab}, at::kFloat);
    at::from_blob(out, {vocab}, at::kFloat).copy_(mempo::filtered_distribution(x, {temperature, top_k, top_p, 0}));
  });
}
