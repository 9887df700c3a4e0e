// The CUDA forms of the norm, the rotary embedding and the gated activation, on a GPU in software, against plain ATen
// operations in float64.
#include "emulated.h"
#include "kernels.h"

namespace kernels = mempo::kernels;
using emulated::distance;
using emulated::in_every_order;
using emulated::rounding;

namespace {

const std::vector<at::ScalarType> kTypes{at::kFloat, at::kBFloat16};

at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }

void norm_matches(const at::Tensor& x, const at::Tensor& weight) {
  const auto found = in_every_order([&] { return std::vector<at::Tensor>{kernels::rms_norm(x, weight, 1e-6)}; });
  const at::Tensor scaled = wide(x) * (wide(x).square().mean(-1, true) + 1e-6).rsqrt();
  EXPECT_EQUAL(found[0].scalar_type(), x.scalar_type());
  EXPECT(distance(found[0], scaled * wide(weight), 1e-6, 2 * rounding(x.scalar_type())) <= 1);
}

void norms_match() {
  for (const auto type : kTypes) {
    for (const int64_t n : {1, 2, 8, 16, 33, 64, 577, 896}) {
      const auto random = [&](at::IntArrayRef shape) { return at::randn(shape).to(type); };
      norm_matches(random({5, n}), random({n}));
      norm_matches(random({3, 5, n}).narrow(1, 1, 3), random({n}));          // heads of a wider projection: rows with strides
      norm_matches(random({4, n + 1}).narrow(1, 1, n), random({n}));         // rows that no wide access reaches
      norm_matches(random({0, n}), random({n}));
    }
    norm_matches(at::zeros({3, 8}).to(type), at::randn({8}).to(type));
    norm_matches(at::randn({3, 8}).mul(1e18).to(type), at::randn({8}).to(type));
    norm_matches(at::randn({3, 8}).mul(1e-30).to(type), at::randn({8}).to(type));
  }
}

}  // namespace

int main() {
  at::manual_seed(1);
  norms_match();
  return failures();
}
