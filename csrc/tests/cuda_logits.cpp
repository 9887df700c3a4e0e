// The CUDA forms of what is computed from logits, on a GPU in software, against ATen in float64 and against the CPU forms.
#include "emulated.h"

#include <limits>
#include <stdexcept>

#include "cuda_logits.h"

namespace kernels = mempo::kernels;
namespace cuda = mempo::kernels::cuda;
using emulated::distance;
using emulated::in_every_order;
using emulated::rounding;

namespace {

const cuda::Kernels& table() { return *mempo_cuda_kernels(); }

void statistics_match(const at::Tensor& logits) {
  const int64_t rows = logits.size(0), vocab = logits.size(1);
  const at::Tensor targets = at::randint(0, vocab, {rows}, at::kLong);
  const auto found = in_every_order([&] {
    const auto stats = kernels::logit_stats(logits, targets, true);
    return std::vector<at::Tensor>{stats.log_probs, stats.normalizers, stats.entropies, kernels::logit_stats(logits, targets, false).normalizers};
  });
  const at::Tensor wide = logits.to(at::kDouble);
  const auto wanted = kernels::plain::logit_stats(wide, targets, true);
  // Entropies do not change when logits are shifted, but their formula needs small numbers.
  const at::Tensor small = wide.numel() > 0 ? wide - wide.amax(1, true) : wide;
  const at::Tensor entropies = kernels::plain::logit_stats(small, targets, true).entropies;
  EXPECT(distance(found[0], wanted.log_probs, 2e-5, 2e-6) <= 1);
  EXPECT(distance(found[1], wanted.normalizers, 2e-5, 2e-6) <= 1);
  EXPECT(distance(found[2], entropies, 3e-5, 2e-6) <= 1);
  EXPECT(emulated::same_bits(found[1], found[3]));
}

// In float32 in place, and in bfloat16 in the memory of the logits.
void gradient_matches(const at::Tensor& logits) {
  const int64_t rows = logits.size(0), vocab = logits.size(1);
  const at::Tensor targets = at::randint(0, vocab, {rows}, at::kLong), upstream = at::randn({rows}), normalizers = logits.logsumexp(1);
  at::Tensor wide = logits.to(at::kDouble);
  const at::Tensor wanted = kernels::plain::logits_to_gradient(wide, targets, normalizers.to(at::kDouble), upstream.to(at::kDouble), at::kDouble);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto found = in_every_order([&] {
      at::Tensor x = logits.clone();
      const at::Tensor gradient = kernels::logits_to_gradient(x, targets, normalizers, upstream, dtype);
      EXPECT(gradient.numel() == 0 || gradient.data_ptr() == x.data_ptr());
      return std::vector<at::Tensor>{gradient};
    });
    EXPECT_EQUAL(found[0].scalar_type(), dtype);
    EXPECT(distance(found[0], wanted, 1e-6, rounding(dtype)) <= 1);
  }
}

void logits_match() {
  for (const int64_t vocab : {1, 17, 2047, 2048, 6000}) {
    statistics_match(at::randn({2, vocab}).mul(6));
    gradient_matches(at::randn({2, vocab}).mul(6));
  }
  statistics_match(at::randn({2, 3000}).mul(1e4));
  statistics_match(at::full({2, 3000}, -3e38));
  statistics_match(at::randn({1, 700}).mul(50).sub(3e4));
  gradient_matches(at::randn({2, 3000}).mul(1e4));
  statistics_match(at::empty({0, 10}));
  gradient_matches(at::empty({0, 10}));
  const emulated::GPU gpu;
  at::Tensor broken = at::zeros({2, 30});
  broken[1][7] = std::numeric_limits<float>::quiet_NaN();
  const auto stats = kernels::logit_stats(broken, at::zeros({2}, at::kLong), false);
  EXPECT(std::isfinite(stats.log_probs[0].item<float>()) && std::isnan(stats.log_probs[1].item<float>()));
}

void losses_match(int64_t n, kernels::KL estimator, double dual_clip, bool likelihood) {
  const kernels::LossConstants constants{0.2, 0.28, dual_clip, estimator, 0.3};
  const at::Tensor log_probs = at::randn({n}).mul(4), columns = at::randn({4, n + 3}).narrow(1, 2, n);
  columns[0].copy_(log_probs + at::randn({n}));
  columns[1].copy_(log_probs + at::randn({n}).mul(8));
  const auto found = in_every_order([&] {
    const at::Tensor sums = at::ones({5}, at::kDouble);
    const at::Tensor gradient = cuda::policy_losses(table(), log_probs, columns, likelihood, constants, sums);
    return std::vector<at::Tensor>{gradient, sums};
  });
  at::Tensor wanted = at::ones({5}, at::kDouble), gradients = at::empty({n});
  for (int64_t k = 0; k < n; ++k) {
    const auto at = [&](const at::Tensor& x) { return static_cast<double>(x[k].item<float>()); };
    const double weight = at(columns[3]);
    const auto loss = kernels::policy_loss(at(log_probs), at(columns[0]), at(columns[1]), at(columns[2]), constants);
    gradients[k] = static_cast<float>(likelihood ? -weight : weight * loss.gradient);
    if (likelihood) {
      wanted[4] -= weight * at(log_probs);
      continue;
    }
    wanted[0] += weight * loss.policy;
    wanted[1] += weight * loss.kl;
    wanted[2] += loss.clipped ? 1.0 : 0.0;
    wanted[3] = std::max(wanted[3].item<double>(), std::fabs(loss.log_ratio));
  }
  EXPECT(distance(found[0], gradients, 0, 1e-6) <= 1);
  EXPECT(distance(found[1], wanted, 1e-9, 1e-9) <= 1);
}

void policy_losses_match() {
  for (const int64_t n : {1, 5, 256, 700}) {
    losses_match(n, kernels::KL::low_var, 3, false);
    losses_match(n, kernels::KL::k1, 0, true);
  }
  losses_match(90, kernels::KL::k1, 0, false);
  losses_match(90, kernels::KL::abs, 3, false);
  losses_match(90, kernels::KL::k2, 0, false);
}

at::Tensor drawn(const at::Tensor& logits, const at::Tensor& valid, std::vector<kernels::Draw> draws) {
  kernels::sample(logits, valid, draws);
  const at::Tensor out = at::empty({logits.size(0), 3}, at::kDouble);
  for (size_t r = 0; r < draws.size(); ++r) {
    const double row[3] = {static_cast<double>(draws[r].id), draws[r].log_prob, static_cast<double>(draws[r].redraws)};
    out[static_cast<int64_t>(r)].copy_(at::tensor(at::ArrayRef<double>(row, 3), at::kDouble));
  }
  return out;
}

// The same token as the CPU form, but for draws that fall into the rounding of a cumulative sum: none does here.
void draws_match(const at::Tensor& logits, const at::Tensor& valid) {
  std::vector<kernels::Draw> draws;
  for (int64_t r = 0; r < logits.size(0); ++r) draws.push_back({r % 4 == 0 ? 0.0 : 0.4 * static_cast<double>(r % 4), static_cast<uint64_t>(r) * 77, -1, 0, 0});
  const at::Tensor wanted = drawn(logits, valid, draws);
  const at::Tensor found = in_every_order([&] { return std::vector<at::Tensor>{drawn(logits, valid, draws)}; })[0];
  EXPECT(at::equal(found.select(1, 0), wanted.select(1, 0)));
  EXPECT(at::equal(found.select(1, 2), wanted.select(1, 2)));
  EXPECT(distance(found.select(1, 1), wanted.select(1, 1), 2e-5, 0) <= 1);
}

void sampling_matches() {
  for (const int64_t vocab : {1, 37, 129, 9000}) draws_match(at::randn({4, vocab}).mul(3), {});
  draws_match(at::zeros({4, 300}), {});
  draws_match(at::randn({4, 500}).mul(1e4), {});
  const at::Tensor flat = at::zeros({8, 10}), peaked = at::zeros({8, 10}), valid = at::ones({9}, at::kByte);  // id 9 has no entry
  valid[3] = 0;
  flat.select(1, 3).fill_(1);
  peaked.select(1, 3).fill_(50);  // nearly all mass on an id that is not valid
  draws_match(flat, valid);
  draws_match(peaked, valid);
}

void broken_logits_are_refused() {
  const emulated::GPU gpu;
  for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const double temperature : {0.0, 1.0}) {
      at::Tensor logits = at::zeros({2, 30});
      logits[1][7] = broken;
      std::vector<kernels::Draw> draws(2, {temperature, 5, -1, 0, 0});
      bool refused = false;
      try {
        kernels::sample(logits, {}, draws);
      } catch (const std::runtime_error&) {
        refused = true;
      }
      EXPECT(refused);
    }
  }
}

}  // namespace

int main() {
  at::manual_seed(1);
  logits_match();
  policy_losses_match();
  sampling_matches();
  broken_logits_are_refused();
  return failures();
}
