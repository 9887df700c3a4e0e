// CPU form of sampling from the whole distribution: three passes over a row, no sorted or cumulative copy of it.
#include <ATen/Parallel.h>

#include <cmath>
#include <stdexcept>

#include "cuda_logits.h"
#include "kernels.h"
#include "rows.h"
#include "vector.h"

namespace mempo::kernels {

namespace {

// A row of logits as a distribution at a temperature: the mass of each block of ids, and of all.
class Distribution {
 public:
  Distribution(const float* logits, int64_t vocab, double temperature)
      : logits_(logits), vocab_(vocab), shift_(largest(logits, vocab)), factor_(static_cast<float>(1 / temperature)) {
    for (int64_t j = 0; j < vocab; j += kSumBlock) {
      masses_.push_back(sum_exp(logits + j, std::min(kSumBlock, vocab - j), shift_, factor_));
      whole_ += masses_.back();
    }
    if (!std::isfinite(whole_)) throw std::runtime_error(kBrokenLogits);
  }

  // The first id whose cumulative mass exceeds u times the whole; an id of no mass is never taken.
  int64_t draw(double u) const {
    double rest = u * whole_;
    size_t block = 0;
    while (block + 1 < masses_.size() && rest >= masses_[block]) rest -= masses_[block++];
    const int64_t begin = static_cast<int64_t>(block) * kSumBlock, end = std::min(begin + kSumBlock, vocab_);
    int64_t last = begin;  // rounding may leave a little mass behind the last id
    for (int64_t j = begin; j < end; ++j) {
      const double mass = exponential((logits_[j] - shift_) * factor_);
      if (mass < kNoMass) continue;
      last = j;
      if (rest < mass) return j;
      rest -= mass;
    }
    return last;
  }

  float log_prob(int64_t id) const {
    return static_cast<float>(static_cast<double>(logits_[id] - shift_) * factor_ - std::log(whole_));
  }

 private:
  const float* logits_;
  int64_t vocab_;
  float shift_, factor_;
  std::vector<double> masses_;
  double whole_ = 0;
};

// Which ids may be drawn: all where there are no bytes.
struct Valid {
  const uint8_t* bytes;
  int64_t count;
  bool operator()(int64_t id) const { return bytes == nullptr || (id < count && bytes[id] != 0); }
};

int64_t likeliest(const float* logits, int64_t vocab, const Valid& is_valid) {
  int64_t best = -1;
  for (int64_t j = 0; j < vocab; ++j) {
    if (is_valid(j) && (best < 0 || logits[j] > logits[best])) best = j;
  }
  return best;
}

void sample_row(const float* logits, int64_t vocab, const Valid& is_valid, Draw& draw) {
  const bool greedy = draw.temperature == 0;
  const Distribution distribution(logits, vocab, greedy ? 1 : draw.temperature);
  draw.redraws = 0;
  draw.id = greedy ? likeliest(logits, vocab, is_valid) : distribution.draw(uniform(draw.seed, 0));
  while (!is_valid(draw.id) && draw.redraws < kMaxRedraws) {
    draw.id = distribution.draw(uniform(draw.seed, static_cast<uint64_t>(++draw.redraws)));
  }
  if (!is_valid(draw.id)) draw.id = likeliest(logits, vocab, is_valid);
  draw.log_prob = distribution.log_prob(draw.id);
}

}  // namespace

bool can_sample(const at::Tensor& logits) { return on_cpu(logits) || cuda::kernels_for(logits) != nullptr; }

void sample(const at::Tensor& logits, const at::Tensor& valid, std::vector<Draw>& draws) {
  if (const auto* on = cuda::kernels_for(logits)) return cuda::sample(*on, logits, valid, draws);
  TORCH_CHECK(on_cpu(logits), "sampling has no form for these logits");
  const int64_t vocab = logits.size(1);
  const float* x = logits.const_data_ptr<float>();
  const Valid is_valid{valid.defined() ? valid.const_data_ptr<uint8_t>() : nullptr, valid.defined() ? valid.numel() : 0};
  at::parallel_for(0, static_cast<int64_t>(draws.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) sample_row(x + r * vocab, vocab, is_valid, draws[static_cast<size_t>(r)]);
  });
}

}  // namespace mempo::kernels
