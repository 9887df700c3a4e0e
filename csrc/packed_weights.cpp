#include "packed_weights.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace mempo {

namespace {

// An operation of libtorch that has no function of its own in ATen; none where it was built without MKL.
std::optional<c10::OperatorHandle> operation(const char* name) { return c10::Dispatcher::singleton().findSchema({name, ""}); }

at::Tensor call(const c10::OperatorHandle& op, torch::jit::Stack arguments) {
  op.callBoxed(arguments);
  return arguments.back().toTensor();
}

// Below so many rows the product is bound by reading the weight, however it is stored.
constexpr int64_t kFewestRows = 5;

}  // namespace

bool PackedWeights::available() { return operation("mkl::_mkl_linear").has_value() && operation("mkl::_mkl_reorder_linear_weight").has_value(); }

void PackedWeights::add(const Parameter& p) {
  static const auto pack = operation("mkl::_mkl_reorder_linear_weight");
  if (packed_.size() <= p.index) packed_.resize(p.index + 1);
  packed_[p.index] = call(*pack, {p.weight, kRows});
}

bool PackedWeights::suits(const Parameter& p, int64_t rows) const {
  return rows >= kFewestRows && rows <= kRows && p.index < packed_.size() && packed_[p.index].defined();
}

at::Tensor PackedWeights::product(const Parameter& p, const at::Tensor& x) const {
  static const auto multiply = operation("mkl::_mkl_linear");
  const int64_t rows = x.size(0);
  const at::Tensor full = rows == kRows ? x : at::constant_pad_nd(x, {0, 0, 0, kRows - rows});
  return call(*multiply, {full, packed_[p.index], p.weight, c10::IValue(), kRows}).narrow(0, 0, rows);
}

}  // namespace mempo
