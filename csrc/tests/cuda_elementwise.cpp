// The CUDA forms of the norm, the rotary embedding and the gated activation, on a GPU in software, against plain ATen
// operations in float64.
#include "emulated.h"
#include "kernels.h"

namespace kernels = mempo::kernels;
using emulated::distance;
using emulated::in_every_order;
using emulated::rounding;
using emulated::same_bits;

namespace {

const std::vector<at::ScalarType> kTypes{at::kFloat, at::kBFloat16};

at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }

// The gradient of the weight is added to what is there; x, the upstream gradient and the weight are of one dtype.
void norm_matches(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& upstream) {
  const auto found = in_every_order([&] {
    at::Tensor sum = at::ones({x.size(-1)}), none;
    const at::Tensor y = kernels::rms_norm(x, weight, 1e-6), dx = kernels::rms_norm_backward(x, weight, 1e-6, upstream, sum);
    EXPECT(same_bits(dx, kernels::rms_norm_backward(x, weight, 1e-6, upstream, none)));  // of a weight that is not trained
    return std::vector<at::Tensor>{y, dx, sum};
  });
  const double unit = rounding(x.scalar_type());
  const at::Tensor scale = (wide(x).square().mean(-1, true) + 1e-6).rsqrt(), normed = wide(x) * scale, g = wide(upstream) * wide(weight);
  EXPECT_EQUAL(found[0].scalar_type(), x.scalar_type());
  EXPECT(distance(found[0], normed * wide(weight), 1e-6, 2 * unit) <= 1);
  const at::Tensor mean = (g * normed).mean(-1, true), size = x.numel() == 0 ? mean : (g.abs() + normed.abs() * mean.abs()).amax() * scale;
  EXPECT(distance((wide(found[1]) - scale * (g - normed * mean)) / size, at::zeros_like(wide(x)), 2 * unit, 0) <= 1);
  const at::Tensor products = (wide(upstream) * normed).reshape({-1, x.size(-1)});
  EXPECT(distance((wide(found[2]) - 1 - products.sum(0)) / (1 + products.abs().sum(0)), at::zeros({x.size(-1)}), 1e-5, 0) <= 1);
}

void norms_match() {
  for (const auto type : kTypes) {
    const auto random = [&](at::IntArrayRef shape) { return at::randn(shape).to(type); };
    for (const int64_t n : {1, 2, 8, 16, 33, 64, 577, 896}) {
      norm_matches(random({5, n}), random({n}), random({5, n}));
      const auto heads = [&] { return random({3, 5, n}).narrow(1, 1, 3); };  // of a wider projection: rows with strides
      norm_matches(heads(), random({n}), heads());
      norm_matches(random({4, n + 1}).narrow(1, 1, n), random({n}), random({4, n}));  // rows that no wide access reaches
      norm_matches(random({0, n}), random({n}), random({0, n}));
    }
    norm_matches(random({200, 40}), random({40}), random({200, 40}));  // sums of several parts
    norm_matches(at::zeros({3, 8}).to(type), random({8}), random({3, 8}));
    norm_matches(at::randn({3, 8}).mul(1e18).to(type), random({8}), random({3, 8}));
    norm_matches(at::randn({3, 8}).mul(1e-30).to(type), random({8}), random({3, 8}));
  }
}

void rotation_matches() {
  for (const auto type : kTypes) {
    for (const int64_t half : {1, 5, 32, 64}) {
      const at::Tensor x = at::randn({5, 7, 2 * half}).to(type), angles = at::randn({5, half}).mul(30);
      const at::Tensor cos = angles.cos().to(type), sin = angles.sin().to(type);
      for (const float sign : {1.0F, -1.0F}) {
        const auto found = in_every_order([&] {
          const at::Tensor turned = x.clone();
          kernels::rotate_(turned.narrow(1, 2, 4), cos, sin, sign);
          return std::vector<at::Tensor>{turned};
        });
        at::Tensor wanted = wide(x);
        kernels::plain::rotate_(wanted.narrow(1, 2, 4), wide(cos), wide(sin), sign);
        EXPECT(distance(found[0], wanted, 3 * rounding(type), rounding(type)) <= 1);
        EXPECT(same_bits(found[0].narrow(1, 0, 2), x.narrow(1, 0, 2)));
      }
      in_every_order([&] {
        kernels::rotate_(x.narrow(0, 0, 0), cos.narrow(0, 0, 0), sin.narrow(0, 0, 0), 1);
        return std::vector<at::Tensor>{x};
      });
    }
  }
}

void gate_matches() {
  for (const auto type : kTypes) {
    for (const int64_t n : {1, 15, 16, 104}) {
      for (const int64_t rows : {0, 1, 23}) {
        at::Tensor x = at::randn({rows, 2 * n}).mul(10).to(type);
        const at::Tensor upstream = at::randn({rows, n}).to(type);
        if (rows > 0) x[0].copy_(at::full({2 * n}, 300.0));  // exp of it is no float32
        if (rows > 1) x[1].copy_(at::full({2 * n}, -300.0));
        const auto found = in_every_order([&] { return std::vector<at::Tensor>{kernels::swiglu(x), kernels::swiglu_backward(x, upstream)}; });
        EXPECT_EQUAL(found[0].scalar_type(), type);
        EXPECT(distance(found[0], kernels::plain::swiglu(wide(x)), 1e-6, 2 * rounding(type)) <= 1);
        EXPECT(distance(found[1], kernels::plain::swiglu_backward(wide(x), wide(upstream)), 1e-4, 2 * rounding(type)) <= 1);
      }
    }
  }
}

// Neither kernels of another interface nor tensors of two dtypes come to a launch.
void what_does_not_fit_is_refused() {
  const auto refuses = [](const auto& call) {
    try {
      call();
    } catch (const c10::Error&) {
      return true;
    }
    return false;
  };
  kernels::cuda::Kernels other = *mempo_cuda_kernels();
  other.interface = "another";
  EXPECT(refuses([&] { kernels::cuda::install(&other, c10::DeviceType::CPU); }));
  const emulated::GPU gpu;
  const at::Tensor x = at::randn({3, 8});
  EXPECT(refuses([&] { kernels::rms_norm(x, at::randn({8}).to(at::kBFloat16), 1e-6); }));
  EXPECT(refuses([&] { kernels::rms_norm(x, at::randn({7}), 1e-6); }));
  EXPECT(refuses([&] { kernels::swiglu_backward(x, at::randn({3, 5})); }));
  EXPECT(refuses([&] { kernels::rotate_(x.view({3, 1, 8}), at::randn({3, 3}), at::randn({3, 4}), 1); }));
}

}  // namespace

int main() {
  at::manual_seed(1);
  norms_match();
  rotation_matches();
  gate_matches();
  what_does_not_fit_is_refused();
  return failures();
}
