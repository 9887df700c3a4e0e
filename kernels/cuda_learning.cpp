// CUDA forms of the optimiser's step and of the gradient of an embedding: checks, lists for the device, launches.
#include <cmath>

#include "cuda_forms.h"

namespace mempo::kernels::cuda {

namespace {

// A float32 tensor like the master.
float* like(const at::Tensor& master, const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kFloat && x.device() == master.device() && x.is_contiguous() && x.numel() == master.numel(),
              "what belongs to a parameter must be like its master copy");
  return x.mutable_data_ptr<float>();
}

void* copy_of(const AdamwParameter& p) {
  if (p.weight.scalar_type() == at::kFloat) return nullptr;  // the master itself
  TORCH_CHECK(p.weight.scalar_type() == at::kBFloat16 && p.weight.is_contiguous() && p.weight.numel() == p.master.numel(),
              "the copy of a parameter must be bfloat16 and like its master copy");
  return p.weight.mutable_data_ptr();
}

}  // namespace

void adamw_(const Kernels& kernels, const std::vector<AdamwParameter>& parameters, const AdamwOptions& o) {
  std::vector<AdamwTensor> tensors;
  int64_t blocks = 0;
  for (const AdamwParameter& p : parameters) {
    const int64_t count = p.master.numel();
    if (count == 0) continue;
    tensors.push_back({like(p.master, p.master), like(p.master, p.gradient), like(p.master, p.first_moment), like(p.master, p.second_moment),
                       copy_of(p), count, blocks});
    blocks += (count + kAdamwBlock - 1) / kAdamwBlock;
  }
  if (tensors.empty()) return;
  const at::Tensor& some = parameters[0].master;
  const auto bytes = static_cast<int64_t>(tensors.size() * sizeof(AdamwTensor));
  const at::Tensor list = at::from_blob(tensors.data(), {bytes}, at::kByte).to(some.device());
  const auto t = static_cast<double>(o.step);
  const auto single = [](double x) { return static_cast<float>(x); };
  const AdamwStep step{single(o.learning_rate), single(o.beta1), single(1 - o.beta1), single(o.beta2), single(1 - o.beta2), single(o.weight_decay), single(o.eps),
                       single(1 - std::pow(o.beta1, t)), single(std::sqrt(1 - std::pow(o.beta2, t)))};
  check(kernels.learning.adamw(static_cast<const AdamwTensor*>(list.const_data_ptr()), static_cast<int64_t>(tensors.size()), blocks, step,
                               stream_of(some)));
}

void add_rows_(const Kernels& kernels, const at::Tensor& sums, const at::Tensor& ids, const at::Tensor& given) {
  const at::Tensor rows = given.contiguous();
  if (rows.numel() == 0) return;
  TORCH_CHECK(sums.scalar_type() == at::kFloat && sums.is_contiguous() && sums.size(1) == rows.size(1) && ids.numel() == rows.size(0),
              "rows are added to rows of a float32 tensor that are as wide, by an id each");
  const auto [sorted, order] = at::sort(ids, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  check(kernels.learning.add_rows(elements_of(rows), rows.const_data_ptr(), sorted.const_data_ptr<int64_t>(), order.const_data_ptr<int64_t>(),
                                  rows.size(0), rows.size(1), sums.mutable_data_ptr<float>(), stream_of(rows)));
}

}  // namespace mempo::kernels::cuda
