#include "cuda_logits.h"

#include <stdexcept>

#include "transfer.h"

namespace mempo::kernels::cuda {

namespace {

void check_logits(const at::Tensor& logits) {
  TORCH_CHECK(logits.dim() == 2 && logits.is_contiguous() && logits.scalar_type() == at::kFloat, "logits must be float32 and contiguous");
}

}  // namespace

LogitStats logit_stats(const Kernels& kernels, const at::Tensor& logits, const at::Tensor& targets, bool with_entropy) {
  check_logits(logits);
  const int64_t rows = logits.size(0);
  LogitStats stats{at::empty({rows}, logits.options()), at::empty({rows}, logits.options()), {}};
  if (with_entropy) stats.entropies = at::empty({rows}, logits.options());
  if (rows == 0) return stats;
  check(kernels.logits.stats(logits.const_data_ptr<float>(), targets.const_data_ptr<int64_t>(), rows, logits.size(1), stats.log_probs.mutable_data_ptr<float>(),
                             stats.normalizers.mutable_data_ptr<float>(), with_entropy ? stats.entropies.mutable_data_ptr<float>() : nullptr, stream_of(logits)));
  return stats;
}

at::Tensor logits_to_gradient(const Kernels& kernels, at::Tensor& logits, const at::Tensor& targets, const at::Tensor& normalizers, const at::Tensor& gradient, at::ScalarType dtype) {
  check_logits(logits);
  const int64_t rows = logits.size(0), vocab = logits.size(1);
  const at::Tensor out = dtype == at::kFloat ? logits : logits.view(dtype).narrow(1, 0, vocab);
  if (rows == 0) return out;
  check(kernels.logits.to_gradient(elements_of(out), logits.mutable_data_ptr<float>(), targets.const_data_ptr<int64_t>(), normalizers.const_data_ptr<float>(),
                                   gradient.const_data_ptr<float>(), rows, vocab, stream_of(logits)));
  return out;
}

at::Tensor policy_losses(const Kernels& kernels, const at::Tensor& log_probs, const at::Tensor& columns, bool likelihood, const LossConstants& constants, const at::Tensor& sums) {
  const at::Tensor gradient = at::empty_like(log_probs);
  if (log_probs.numel() == 0) return gradient;
  TORCH_CHECK(log_probs.is_contiguous() && columns.stride(1) == 1 && columns.size(1) == log_probs.numel(), "each token needs a number in each column");
  const auto column = [&](int64_t n) { return columns.const_data_ptr<float>() + n * columns.stride(0); };
  check(kernels.logits.policy_losses({log_probs.const_data_ptr<float>(), column(0), column(1), column(2), column(3), log_probs.numel(), likelihood, constants,
                                      gradient.mutable_data_ptr<float>(), sums.mutable_data_ptr<double>()},
                                     stream_of(log_probs)));
  return gradient;
}

void sample_on_device(const Kernels& kernels, const at::Tensor& logits, const at::Tensor& valid, Draw* draws) {
  check_logits(logits);
  if (logits.size(0) == 0) return;
  check(kernels.sampling.draw(logits.const_data_ptr<float>(), logits.size(0), logits.size(1), valid.defined() ? valid.const_data_ptr<uint8_t>() : nullptr,
                              valid.defined() ? valid.numel() : 0, draws, stream_of(logits)));
}

void sample(const Kernels& kernels, const at::Tensor& logits, const at::Tensor& valid, std::vector<Draw>& draws) {
  Staging staging;
  const auto section = staging.add<Draw>(static_cast<int64_t>(draws.size()));
  staging.allocate(logits.device());
  std::copy(draws.begin(), draws.end(), staging.host(section));
  staging.upload();
  sample_on_device(kernels, logits, valid, staging.device(section));
  staging.download(section);
  std::copy_n(staging.host(section), draws.size(), draws.begin());
  for (const Draw& d : draws) {
    if (d.id < 0) throw std::runtime_error(kBrokenLogits);
  }
}

}  // namespace mempo::kernels::cuda
