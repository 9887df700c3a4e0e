// The optimiser's step and the gradient of an embedding: ATen has fast forms for the CPU.
#include "cuda_forms.h"

namespace mempo::kernels {

void adamw_(const std::vector<AdamwParameter>& parameters, const AdamwOptions& o) {
  if (parameters.empty()) return;
  if (const auto* on = cuda::kernels_for(parameters[0].master)) return cuda::adamw_(*on, parameters, o);
  std::vector<at::Tensor> masters, gradients, first, second, steps;
  // Takes no memory on a CPU: a step that fails for want of it would have changed some of the parameters already.
  auto number = static_cast<float>(o.step);
  const at::TensorOptions like = parameters[0].master.options();
  const at::Tensor step = like.device().is_cpu() ? at::from_blob(&number, {}, like) : at::scalar_tensor(number, like);
  for (const AdamwParameter& p : parameters) {
    masters.push_back(p.master);
    gradients.push_back(p.gradient);
    first.push_back(p.first_moment);
    second.push_back(p.second_moment);
    steps.push_back(step);
  }
  at::_fused_adamw_(masters, gradients, first, second, {}, steps, o.learning_rate, o.beta1, o.beta2, o.weight_decay, o.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
  for (const AdamwParameter& p : parameters) {
    if (p.weight.scalar_type() != at::kFloat) p.weight.copy_(p.master);
  }
}

void add_rows_(const at::Tensor& sums, const at::Tensor& ids, const at::Tensor& rows) {
  if (const auto* on = cuda::kernels_for(rows)) return cuda::add_rows_(*on, sums, ids, rows);
  const at::Tensor wide = rows.to(at::kFloat);
  if (wide.is_cpu()) {
    sums.index_add_(0, ids, wide);
  } else {  // index_add_ on CUDA has no order
    sums.index_put_(c10::List<std::optional<at::Tensor>>({ids}), wide, /*accumulate=*/true);
  }
}

}  // namespace mempo::kernels
