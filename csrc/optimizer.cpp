#include "optimizer.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <optional>

#include "kernels.h"

namespace mempo {

namespace {

// Takes the memory that a step needs, so that one without memory has changed nothing.
void make_moments(const std::vector<Parameter*>& parameters, Gradients& gradients) {
  for (Parameter* p : parameters) {
    gradients.of(*p);
    if (!p->first_moment.defined()) p->first_moment = at::zeros_like(p->master);
    if (!p->second_moment.defined()) p->second_moment = at::zeros_like(p->master);
  }
}

// What brings a gradient to a norm of at most `most`; torch.nn.utils.clip_grad_norm_ keeps the same distance from zero.
double clip_factor(double norm, double most) { return most > 0 ? std::min(most / (norm + 1e-6), 1.0) : 1.0; }

kernels::AdamwOptions step_of(int64_t number, const mempo_update_options& o) {
  return {o.learning_rate, o.beta1, o.beta2, o.weight_decay, o.eps, number};
}

void device_step(const std::vector<Parameter*>& parameters, Gradients& gradients, int64_t number, const mempo_update_options& o) {
  std::vector<kernels::AdamwParameter> all;
  for (Parameter* p : parameters) all.push_back({p->master, gradients.of(*p), p->first_moment, p->second_moment, p->weight});
  kernels::adamw_(all, step_of(number, o));
}

}  // namespace

double gradient_norm(const Gradients& gradients) {
  std::vector<at::Tensor> norms;
  for (const at::Tensor& sum : gradients.sums()) {
    if (sum.defined()) norms.push_back(at::linalg_vector_norm(sum));
  }
  return at::linalg_vector_norm(at::stack(norms)).item<double>();
}

void adamw_step(Weights& weights, double norm, int64_t number, const mempo_update_options& o) {
  const std::vector<Parameter*> parameters = weights.trained();
  Gradients& gradients = weights.gradients();
  make_moments(parameters, gradients);
  std::optional<HostStep> on_host;
  if (weights.optimizer_on_host()) on_host.emplace(weights.device(), parameters, gradients, number);
  const double factor = clip_factor(norm, o.clip_norm);
  const at::Tensor scale = at::scalar_tensor(factor, at::TensorOptions().dtype(at::kFloat).device(weights.device()));
  if (factor < 1.0) {
    for (const Parameter* p : parameters) gradients.of(*p).mul_(scale);
  }
  on_host ? on_host->run(o) : device_step(parameters, gradients, number, o);
}

void Mark::set() {
  if (device_.is_cpu()) return;
  if (event_ == nullptr) event_ = std::make_unique<c10::Event>(device_.type());
  event_->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void Mark::wait() const {
  if (event_ != nullptr) event_->synchronize();
}

HostStep::HostStep(at::Device device, const std::vector<Parameter*>& parameters, Gradients& gradients, int64_t number, int64_t piece)
    : number_(number) {
  int64_t longest = 0;
  for (Parameter* p : parameters) {
    for (int64_t begin = 0; begin < p->master.numel(); begin += piece) {
      pieces_.push_back({p, gradients.of(*p), begin, std::min(piece, p->master.numel() - begin)});
      longest = std::max(longest, pieces_.back().count);
    }
  }
  const auto buffer = [&](at::ScalarType dtype) {
    return at::empty({longest}, at::TensorOptions().dtype(dtype).pinned_memory(!device.is_cpu()));
  };
  for (int n = 0; n < 2; ++n) lanes_.push_back({buffer(at::kFloat), buffer(parameters[0]->weight.scalar_type()), Mark(device), Mark(device)});
}

void HostStep::run(const mempo_update_options& o) {
  fetch(pieces_[0], lanes_[0]);
  for (size_t n = 0; n < pieces_.size(); ++n) {
    const Piece& piece = pieces_[n];
    Lane& lane = lanes_[n % 2];
    if (n + 1 < pieces_.size()) fetch(pieces_[n + 1], lanes_[(n + 1) % 2]);
    lane.came.wait();
    const at::Tensor master = piece.of(piece.parameter->master);
    kernels::adamw_({{master, lane.down.narrow(0, 0, piece.count), piece.of(piece.parameter->first_moment),
                      piece.of(piece.parameter->second_moment), master}},
                    step_of(number_, o));
    send(piece, lane);
  }
  for (const Lane& lane : lanes_) lane.went.wait();
}

void HostStep::fetch(const Piece& piece, Lane& lane) const {
  lane.down.narrow(0, 0, piece.count).copy_(piece.of(piece.gradient), /*non_blocking=*/true);
  lane.came.set();
}

void HostStep::send(const Piece& piece, Lane& lane) const {
  lane.went.wait();  // the buffer still holds the piece before the last one
  const at::Tensor narrow = lane.up.narrow(0, 0, piece.count);
  narrow.copy_(piece.of(piece.parameter->master));
  piece.of(piece.parameter->weight).copy_(narrow, /*non_blocking=*/true);
  lane.went.set();
}

}  // namespace mempo
