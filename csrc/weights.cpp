#include "weights.h"

#include <ATen/Context.h>

#include <algorithm>
#include <mutex>
#include <sstream>

#include "kernels.h"

namespace mempo {

namespace {

std::string shape_text(at::IntArrayRef shape) {
  std::ostringstream out;
  out << shape;
  return out.str();
}

at::Tensor& kind_of(Parameter& p, mempo_kind kind) {
  switch (kind) {
    case MEMPO_MASTER: return p.master;
    case MEMPO_FIRST_MOMENT: return p.first_moment;
    case MEMPO_SECOND_MOMENT: return p.second_moment;
    case MEMPO_GRADIENT:
    case MEMPO_MERGED: break;
  }
  throw InvalidArgument("unknown kind of tensor");
}

}  // namespace

at::Tensor& Gradients::of(const Parameter& p) {
  at::Tensor& sum = sums_[p.index];
  if (!sum.defined() && p.trained()) sum = at::zeros_like(p.weight, at::kFloat);
  return sum;
}

void Gradients::add_product(const Parameter& p, const at::Tensor& output, const at::Tensor& input) {
  if (!p.trained()) return;
  at::Tensor& sum = sums_[p.index];
  if (output.scalar_type() != at::kFloat) {
    of(p).add_(at::mm(output.t(), input));
  } else if (sum.defined()) {
    sum.addmm_(output.t(), input);
  } else {
    sum = at::mm(output.t(), input);
  }
}

void Gradients::add_bias(const Parameter& p, const at::Tensor& output) {
  if (p.trained()) of(p).add_(output.sum(0));
}

void Gradients::add_rows(const Parameter& p, const at::Tensor& ids, const at::Tensor& rows) {
  if (!p.trained()) return;
  kernels::add_rows_(of(p), ids, rows);
}

void Gradients::add(Gradients&& others) {
  for (size_t n = 0; n < sums_.size(); ++n) {
    if (!sums_[n].defined()) {
      sums_[n] = std::move(others.sums_[n]);
    } else if (others.sums_[n].defined()) {
      sums_[n].add_(others.sums_[n]);
    }
  }
}

bool Gradients::empty() const {
  return std::none_of(sums_.begin(), sums_.end(), [](const at::Tensor& sum) { return sum.defined(); });
}

Parameter* Weights::add(const std::vector<Part>& parts, bool frozen) {
  int64_t rows = 0;
  for (const Part& part : parts) rows += part.shape[0];
  std::vector<int64_t> shape = parts[0].shape;
  shape[0] = rows;

  Parameter& p = parameters_.emplace_back();
  p.index = parameters_.size() - 1;
  drop_gradients();
  p.weight = at::zeros(shape, at::TensorOptions().device(device_).dtype(dtype_));
  if (trainable_ && !frozen) {
    const at::Device where = optimizer_on_host_ ? at::kCPU : device_;
    const bool shared = dtype_ == at::kFloat && !optimizer_on_host_;
    p.master = shared ? p.weight : at::zeros(shape, at::TensorOptions().device(where).dtype(at::kFloat));
  }
  int64_t begin = 0;
  for (const Part& part : parts) {
    slices_[part.name] = Slice{&p, begin, part.shape[0], part.shape};
    begin += part.shape[0];
  }
  return &p;
}

const Weights::Slice& Weights::slice(const std::string& name) const {
  const auto found = slices_.find(name);
  require(found != slices_.end(), "the model has no tensor named " + name);
  return found->second;
}

int64_t Weights::numel(const std::string& name) const { return c10::multiply_integers(slice(name).shape); }

void Weights::set(const std::string& name, const at::Tensor& value) {
  const Slice& s = slice(name);
  require(value.defined(), name + ": the tensor given holds nothing");
  require(value.sizes() == at::IntArrayRef(s.shape),
          name + ": shape " + shape_text(value.sizes()) + " given, " + shape_text(s.shape) + " expected");
  if (s.parameter->trained()) s.parameter->master.narrow(0, s.begin, s.rows).copy_(value);
  s.parameter->weight.narrow(0, s.begin, s.rows).copy_(value);
}

void Weights::fill(const std::string& name, double mean, double deviation, uint64_t seed) {
  at::Tensor drawn = at::empty(slice(name).shape, at::TensorOptions().device(device_).dtype(at::kFloat));
  at::Generator generator = at::globalContext().defaultGenerator(device_);
  {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  }
  set(name, drawn.normal_(mean, deviation, generator));
}

at::Tensor Weights::view(mempo_kind kind, const std::string& name) {
  const Slice& s = slice(name);
  if (kind == MEMPO_MASTER && !s.parameter->trained()) return s.parameter->weight.narrow(0, s.begin, s.rows);
  const at::Tensor& whole = kind == MEMPO_GRADIENT ? gradients_.sums()[s.parameter->index] : kind_of(*s.parameter, kind);
  return whole.defined() ? whole.narrow(0, s.begin, s.rows) : at::Tensor();
}

at::Tensor Weights::make(mempo_kind kind, const std::string& name) {
  require(trainable_, "the model was not loaded for training");
  Parameter& p = *slice(name).parameter;
  require(p.trained(), name + " is not trained: only adapters are");
  at::Tensor& whole = kind_of(p, kind);
  if (!whole.defined()) whole = at::zeros_like(p.master);
  return view(kind, name);
}

std::vector<Parameter*> Weights::trained() {
  std::vector<Parameter*> found;
  for (Parameter& p : parameters_) {
    if (p.trained()) found.push_back(&p);
  }
  return found;
}

void Weights::write_master(const std::string& name, const at::Tensor& value) {
  const Slice& s = slice(name);
  set(name, value.view(s.shape));
}

}  // namespace mempo
