#include "weights.h"

#include <sstream>

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
    case MEMPO_GRADIENT: return p.gradient;
  }
  throw InvalidArgument("unknown kind of tensor");
}

}  // namespace

at::Tensor& Parameter::gradient_sum() {
  if (!gradient.defined()) gradient = at::zeros_like(master);
  return gradient;
}

void Parameter::add_product(const at::Tensor& output, const at::Tensor& input) {
  if (output.scalar_type() != at::kFloat) {
    gradient_sum().add_(at::mm(output.t(), input));
  } else if (gradient.defined()) {
    gradient.addmm_(output.t(), input);
  } else {
    gradient = at::mm(output.t(), input);
  }
}

void Parameter::add_rows(const at::Tensor& ids, const at::Tensor& rows) {
  const at::Tensor wide = rows.to(at::kFloat);
  if (wide.is_cpu()) {
    gradient_sum().index_add_(0, ids, wide);
  } else {  // index_add_ on CUDA has no order
    gradient_sum().index_put_(c10::List<std::optional<at::Tensor>>({ids}), wide, /*accumulate=*/true);
  }
}

Parameter* Weights::add(const std::vector<Part>& parts) {
  int64_t rows = 0;
  for (const Part& part : parts) rows += part.shape[0];
  std::vector<int64_t> shape = parts[0].shape;
  shape[0] = rows;

  Parameter& p = parameters_.emplace_back();
  p.weight = at::zeros(shape, at::TensorOptions().device(device_).dtype(dtype_));
  if (trainable_) {
    p.master = dtype_ == at::kFloat ? p.weight : at::zeros(shape, p.weight.options().dtype(at::kFloat));
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
  if (trainable_) s.parameter->master.narrow(0, s.begin, s.rows).copy_(value);
  s.parameter->weight.narrow(0, s.begin, s.rows).copy_(value);
}

at::Tensor Weights::view(mempo_kind kind, const std::string& name) {
  const Slice& s = slice(name);
  if (kind == MEMPO_MASTER && !trainable_) return s.parameter->weight.narrow(0, s.begin, s.rows);
  const at::Tensor& whole = kind_of(*s.parameter, kind);
  return whole.defined() ? whole.narrow(0, s.begin, s.rows) : at::Tensor();
}

at::Tensor Weights::make(mempo_kind kind, const std::string& name) {
  require(trainable_, "the model was not loaded for training");
  at::Tensor& whole = kind_of(*slice(name).parameter, kind);
  if (!whole.defined()) whole = at::zeros_like(slice(name).parameter->master);
  return view(kind, name);
}

void Weights::write_master(const std::string& name, const at::Tensor& value) {
  const Slice& s = slice(name);
  set(name, value.view(s.shape));
}

}  // namespace mempo
