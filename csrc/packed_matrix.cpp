#include "packed_matrix.h"

// What libtorch brings of MKL and declares nowhere; null where it was built without.
extern "C" {
__attribute__((weak)) size_t cblas_sgemm_pack_get_size(int matrix, int m, int n, int k);
__attribute__((weak)) void cblas_sgemm_pack(int layout, int matrix, int transposed, int m, int n, int k, float factor, const float* from,
                                            int stride, float* to);
__attribute__((weak)) void cblas_sgemm_compute(int layout, int a_form, int b_form, int m, int n, int k, const float* a, int a_stride,
                                               const float* b, int b_stride, float factor, float* c, int c_stride);
}

namespace mempo {

namespace {

// Of MKL's header.
enum { kRowMajor = 101, kAsItIs = 111, kTransposed = 112, kPacked = 151, kSecondMatrix = 162 };

constexpr int kM = static_cast<int>(PackedMatrix::kRows);

}  // namespace

bool PackedMatrix::available() { return cblas_sgemm_pack_get_size != nullptr && cblas_sgemm_pack != nullptr && cblas_sgemm_compute != nullptr; }

PackedMatrix::PackedMatrix(const at::Tensor& weight, const at::Tensor& bias) : n_(weight.size(0)), k_(weight.size(1)), bias_(bias) {
  if (n_ == 0) return;
  const at::Tensor rows = weight.contiguous();
  const int n = static_cast<int>(n_), k = static_cast<int>(k_);
  packed_ = at::empty({static_cast<int64_t>(cblas_sgemm_pack_get_size(kSecondMatrix, kM, n, k))}, at::kByte);
  cblas_sgemm_pack(kRowMajor, kSecondMatrix, kTransposed, kM, n, k, 1.0F, rows.const_data_ptr<float>(), k, static_cast<float*>(packed_.mutable_data_ptr()));
}

void PackedMatrix::multiply(const at::Tensor& x, const at::Tensor& out, bool add) const {
  if (n_ == 0) return;
  cblas_sgemm_compute(kRowMajor, kAsItIs, kPacked, kM, static_cast<int>(n_), static_cast<int>(k_), x.const_data_ptr<float>(), static_cast<int>(x.stride(0)),
                      static_cast<const float*>(packed_.const_data_ptr()), static_cast<int>(k_), add ? 1.0F : 0.0F, out.mutable_data_ptr<float>(), static_cast<int>(out.stride(0)));
  if (bias_.defined()) out.add_(bias_);
}

}  // namespace mempo
