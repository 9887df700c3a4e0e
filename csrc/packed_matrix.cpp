#include "packed_matrix.h"

#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <exception>

namespace mempo {

namespace {

// Outputs of one call: the inputs, read again for each, stay in the first cache, and a block's weights lie in one stretch.
constexpr int64_t kBlock = 64;

// out [m, n] = x [m, k] · block [k, n], or is added to.
void multiply_block(int64_t m, int64_t n, int64_t k, const float* x, int64_t x_stride, const float* block, float* out, int64_t out_stride, bool add) {
  at::native::cpublas::brgemm(m, n, k, x_stride, n, out_stride, add, x, block, out, /*is_vnni=*/false);
}

}  // namespace

bool PackedMatrix::available() {
  static const bool works = [] {
    const float x = 1, weight = 1;
    float out = 0;
    try {
      multiply_block(1, 1, 1, &x, 1, &weight, &out, 1, /*add=*/false);
    } catch (const std::exception&) {
      return false;  // the processor, or the libtorch that is loaded, has no such products
    }
    return out == 1;
  }();
  return works;
}

PackedMatrix::PackedMatrix(const at::Tensor& weight, const at::Tensor& bias) : n_(weight.size(0)), k_(weight.size(1)), bias_(bias) {
  packed_ = at::empty({n_ * k_});
  for (int64_t begin = 0; begin < n_; begin += kBlock) {
    const int64_t width = std::min(kBlock, n_ - begin);
    packed_.narrow(0, begin * k_, width * k_).view({k_, width}).copy_(weight.narrow(0, begin, width).t());
  }
}

void PackedMatrix::multiply(const at::Tensor& x, const at::Tensor& out, bool add) const {
  const float* inputs = x.const_data_ptr<float>();
  const float* blocks = packed_.const_data_ptr<float>();
  float* outputs = out.mutable_data_ptr<float>();
  for (int64_t begin = 0; begin < n_; begin += kBlock) {
    multiply_block(x.size(0), std::min(kBlock, n_ - begin), k_, inputs, x.stride(0), blocks + begin * k_, outputs + begin, out.stride(0), add);
  }
  if (bias_.defined()) out.add_(bias_);
}

}  // namespace mempo
