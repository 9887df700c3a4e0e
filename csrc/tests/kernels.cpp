// The CPU forms of the fused operations against plain ATen operations in float64, values and
// gradients, over odd sizes and strides.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "check.h"
#include "kernels.h"
#include "vector.h"

namespace kernels = mempo::kernels;

namespace {

using Operation = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Runs `fused` on float32 inputs and `plain` on the same in float64; compares results and gradients.
void compare(const std::vector<at::Tensor>& inputs, const Operation& fused, const Operation& plain, double tolerance) {
  std::vector<at::Tensor> narrow, wide;
  for (const at::Tensor& x : inputs) {
    narrow.push_back(x.detach().clone(at::MemoryFormat::Preserve).requires_grad_(true));
    wide.push_back(x.detach().to(at::kDouble).requires_grad_(true));
  }
  const at::Tensor y = fused(narrow), z = plain(wide);
  EXPECT_NEAR(distance(y, z), 0, tolerance);
  const at::Tensor upstream = at::randn(z.sizes(), z.options());
  torch::autograd::backward({y}, {upstream.to(at::kFloat)});
  torch::autograd::backward({z}, {upstream});
  for (size_t k = 0; k < inputs.size(); ++k) EXPECT_NEAR(distance(narrow[k].grad(), wide[k].grad()), 0, tolerance);
}

void norm_matches() {
  for (const int64_t n : {1, 2, 16, 33, 64, 577}) {
    const at::Tensor x = at::randn({37, n}), w = at::randn({n});
    const auto plain = [](const auto& in) {
      return in[0] * (in[0].square().mean(-1, true) + 1e-6).rsqrt() * in[1];
    };
    compare({x, w}, [](const auto& in) { return kernels::rms_norm(in[0], in[1], 1e-6); }, plain, 2e-4);
    // Heads cut out of a wider projection: rows with strides.
    const at::Tensor heads = at::randn({11, 5, n}), weight = at::randn({n});
    const auto cut = [](const at::Tensor& h) { return h.narrow(1, 1, 3); };
    compare({heads, weight}, [&](const auto& in) { return kernels::rms_norm(cut(in[0]), in[1], 1e-6); },
            [&](const auto& in) { return plain(std::vector<at::Tensor>{cut(in[0]), in[1]}); }, 2e-4);
  }
}

void rotation_matches() {
  for (const int64_t half : {1, 8, 17, 32}) {
    const at::Tensor x = at::randn({9, 7, 2 * half}), angles = at::randn({9, half}).mul(30);
    const at::Tensor cos = angles.cos(), sin = angles.sin();
    compare({x}, [&](const auto& in) { return kernels::rotate(in[0].narrow(1, 2, 4), cos, sin); },
            [&](const auto& in) {
              return kernels::plain::rotate(in[0].narrow(1, 2, 4), cos.to(at::kDouble), sin.to(at::kDouble));
            },
            1e-5);
  }
}

void gate_matches() {
  for (const int64_t n : {1, 15, 16, 100}) {
    const at::Tensor x = at::randn({23, 2 * n}).mul(10);
    compare({x}, [](const auto& in) { return kernels::swiglu(in[0]); },
            [](const auto& in) { return kernels::plain::swiglu(in[0]); }, 1e-4);
  }
}

void logit_statistics_match() {
  for (const int64_t vocab : {2, 17, 320, 9000}) {
    const at::Tensor logits = at::randn({13, vocab}).mul(6), targets = at::randint(0, vocab, {13}, at::kLong);
    const auto fused = kernels::logit_stats(logits, targets, true);
    const auto plain = kernels::plain::logit_stats(logits.to(at::kDouble), targets, true);
    EXPECT_NEAR(distance(fused.log_probs, plain.log_probs), 0, 2e-5);
    EXPECT_NEAR(distance(fused.normalizers, plain.normalizers), 0, 2e-5);
    EXPECT_NEAR(distance(fused.entropies, plain.entropies), 0, 2e-5);
    const at::Tensor upstream = at::randn({13});
    at::Tensor gradient = logits.clone(), wanted = logits.to(at::kDouble);
    kernels::logits_to_gradient(gradient, targets, fused.normalizers, upstream);
    kernels::plain::logits_to_gradient(wanted, targets, plain.normalizers, upstream.to(at::kDouble));
    EXPECT_NEAR(distance(gradient, wanted), 0, 1e-5);
  }
}

struct AttentionCase {
  int64_t heads, kv_heads, d;
  std::vector<std::pair<int64_t, int64_t>> rows;  // past and new tokens
};

// Softmax attention written out, in float64: token t of a row sees the past and the new up to t.
at::Tensor written_out(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values, int64_t past) {
  const int64_t n = q.size(0), heads = q.size(1), d = q.size(2), group = heads / keys.size(0);
  const at::Tensor k = keys.to(at::kDouble).repeat_interleave(group, 0), v = values.to(at::kDouble).repeat_interleave(group, 0);
  at::Tensor scores = at::matmul(q.to(at::kDouble).transpose(0, 1), k.transpose(1, 2)) / std::sqrt(static_cast<double>(d));
  const at::Tensor hidden = at::ones({n, past + n}, at::kBool).tril(past).logical_not();
  scores = scores.masked_fill(hidden, -1e30).softmax(-1);
  return at::matmul(scores, v).transpose(0, 1).reshape({n, heads * d});
}

void attention_matches(const AttentionCase& c) {
  int64_t tokens = 0;
  std::vector<at::Tensor> keys, values;
  std::vector<kernels::CacheSlot> slots;
  const int64_t capacity = 70;
  for (const auto& [past, length] : c.rows) {
    keys.push_back(at::randn({c.kv_heads, capacity, c.d}));
    values.push_back(at::randn({c.kv_heads, capacity, c.d}));
    slots.push_back({keys.back().data_ptr<float>(), values.back().data_ptr<float>(), capacity, past, tokens, length});
    tokens += length;
  }
  const at::Tensor q = at::randn({tokens, c.heads + 1, c.d}).narrow(1, 0, c.heads);
  const at::Tensor k = at::randn({tokens, c.kv_heads, c.d}), v = at::randn({tokens, c.kv_heads, c.d});
  at::Tensor out = at::full({tokens, c.heads * c.d}, 777.0);
  kernels::cached_attention_cpu(q, k, v, slots, out);
  for (size_t r = 0; r < slots.size(); ++r) {
    const auto [past, length] = c.rows[r];
    EXPECT_NEAR(distance(keys[r].narrow(1, past, length), k.narrow(0, slots[r].begin, length).transpose(0, 1)), 0, 0);
    const at::Tensor wanted = written_out(q.narrow(0, slots[r].begin, length), keys[r].narrow(1, 0, past + length), values[r].narrow(1, 0, past + length), past);
    EXPECT_NEAR(distance(out.narrow(0, slots[r].begin, length), wanted), 0, 1e-5);
  }
}

void exponential_is_close() {
  for (float x = -87; x < 88; x += 0.0137F) {
    const double wanted = std::exp(static_cast<double>(x));
    EXPECT_NEAR(kernels::exponential(x) / wanted, 1, 3e-7);
  }
  EXPECT(kernels::exponential(-1e30F) < 1e-37F);
}

}  // namespace

int main() {
  at::manual_seed(1);
  norm_matches();
  rotation_matches();
  gate_matches();
  logit_statistics_match();
  for (const AttentionCase& c : std::vector<AttentionCase>{
           {1, 1, 16, {{0, 1}}}, {3, 1, 64, {{5, 1}, {0, 3}, {60, 1}}}, {9, 3, 64, {{31, 2}, {32, 1}}},
           {14, 2, 128, {{40, 4}}}, {4, 2, 40, {{7, 1}, {8, 1}}}, {2, 2, 10, {{9, 3}}}, {5, 1, 80, {{1, 1}}}}) {
    attention_matches(c);
  }
  exponential_is_close();
  return failures();
}
