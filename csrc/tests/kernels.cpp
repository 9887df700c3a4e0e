// The CPU forms of the fused operations against plain ATen operations in float64, values and
// gradients, over odd sizes and strides.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <stdexcept>

#include "check.h"
#include "kernels.h"
#include "packed_matrix.h"
#include "vector.h"
#include "written_out.h"

namespace kernels = mempo::kernels;

namespace {

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

at::Tensor wide(const at::Tensor& x) { return x.detach().to(at::kDouble).requires_grad_(true); }

// The norm written out, differentiable.
at::Tensor norm(const at::Tensor& x, const at::Tensor& w) { return x * (x.square().mean(-1, true) + 1e-6).rsqrt() * w; }

void norm_matches(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor wide_x = wide(x), wide_w = wide(w), wanted = norm(wide_x, wide_w), upstream = at::randn(x.sizes());
  torch::autograd::backward({wanted}, {upstream.to(at::kDouble)});
  const auto check = [&](const auto& forward, const auto& backward) {
    EXPECT_NEAR(distance(forward(x, w, 1e-6), wanted), 0, 2e-5);
    at::Tensor for_w = at::ones_like(w);
    EXPECT_NEAR(distance(backward(x, w, 1e-6, upstream, for_w), wide_x.grad()), 0, 2e-4);
    EXPECT_NEAR(distance(for_w, wide_w.grad() + 1), 0, 2e-4);
  };
  check(kernels::rms_norm, kernels::rms_norm_backward);
  check(kernels::plain::rms_norm, kernels::plain::rms_norm_backward);
}

void norms_match() {
  for (const int64_t n : {1, 2, 16, 33, 64, 577}) {
    norm_matches(at::randn({37, n}), at::randn({n}));
    norm_matches(at::randn({11, 5, n}).narrow(1, 1, 3), at::randn({n}));  // heads of a wider projection: rows with strides
  }
  norm_matches(at::zeros({3, 8}), at::randn({8}));
  norm_matches(at::randn({3, 8}).mul(1e4), at::randn({8}));
}

void rotation_matches() {
  for (const int64_t half : {1, 8, 17, 32}) {
    const at::Tensor x = at::randn({9, 7, 2 * half}), angles = at::randn({9, half}).mul(30);
    const at::Tensor cos = angles.cos(), sin = angles.sin();
    const at::Tensor a = x.narrow(1, 2, 4).select(-1, 0), b = x.narrow(1, 2, 4).select(-1, half);  // the first pair of each head
    const at::Tensor wanted = a * cos.narrow(1, 0, 1) - b * sin.narrow(1, 0, 1);
    for (const auto& rotate : {kernels::rotate_, kernels::plain::rotate_}) {
      const at::Tensor turned = x.clone();
      rotate(turned.narrow(1, 2, 4), cos, sin, 1);
      EXPECT_NEAR(distance(turned.narrow(1, 2, 4).select(-1, 0), wanted), 0, 1e-5);
      EXPECT_NEAR(distance(turned.narrow(1, 0, 2), x.narrow(1, 0, 2)), 0, 0);
      EXPECT_NEAR(distance(turned.narrow(1, 2, 4).norm(), x.narrow(1, 2, 4).norm()), 0, 1e-4);
      rotate(turned.narrow(1, 2, 4), cos, sin, -1);
      EXPECT_NEAR(distance(turned, x), 0, 1e-5);
    }
  }
}

void gate_matches() {
  for (const int64_t n : {1, 15, 16, 100}) {
    const at::Tensor x = at::randn({23, 2 * n}).mul(10), in = wide(x), upstream = at::randn({23, n});
    const at::Tensor wanted = in.narrow(1, 0, n) * in.narrow(1, 0, n).sigmoid() * in.narrow(1, n, n);
    torch::autograd::backward({wanted}, {upstream.to(at::kDouble)});
    EXPECT_NEAR(distance(kernels::swiglu(x), wanted), 0, 1e-4);
    EXPECT_NEAR(distance(kernels::plain::swiglu(x), wanted), 0, 1e-4);
    EXPECT_NEAR(distance(kernels::swiglu_backward(x, upstream), in.grad()), 0, 2e-4);
    EXPECT_NEAR(distance(kernels::plain::swiglu_backward(x, upstream), in.grad()), 0, 2e-4);
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
    kernels::logits_to_gradient(gradient, targets, fused.normalizers, upstream, at::kFloat);
    kernels::plain::logits_to_gradient(wanted, targets, plain.normalizers, upstream.to(at::kDouble), at::kDouble);
    EXPECT_NEAR(distance(gradient, wanted), 0, 1e-5);
  }
}

struct AttentionCase {
  int64_t heads, kv_heads, d;
  std::vector<std::pair<int64_t, int64_t>> rows;  // past and new tokens
};

void attention_matches(const AttentionCase& c) {
  const int64_t page = 8, layers = 3, layer = 1;
  int64_t tokens = 0;
  std::vector<std::vector<at::Tensor>> pages;  // of each row at the layer, [2, kv_heads, page, d]
  std::vector<at::Tensor> keys, values;        // the past in one piece
  kernels::PagedRows paged{page, {}};
  for (const auto& [past, length] : c.rows) {
    kernels::PagedRow row{{}, past, tokens, length};
    std::vector<at::Tensor> own;
    for (int64_t done = 0; done < past + length; done += page) {
      const at::Tensor whole = at::randn({layers, 2, c.kv_heads, page, c.d});
      own.push_back(whole[layer]);
      row.pages.push_back(whole.mutable_data_ptr<float>());
    }
    const at::Tensor all = at::cat(own, 2).narrow(2, 0, past);
    keys.push_back(all[0]);
    values.push_back(all[1]);
    pages.push_back(own);
    if (past == 0) row.pages.clear();
    paged.rows.push_back(row);
    tokens += length;
  }
  const at::Tensor q = at::randn({tokens, c.heads + 1, c.d}).narrow(1, 0, c.heads);
  const at::Tensor kv = at::randn({tokens, 2 * c.kv_heads, c.d}), k = kv.narrow(1, 0, c.kv_heads), v = kv.narrow(1, c.kv_heads, c.kv_heads);
  at::Tensor out = at::full({tokens, c.heads * c.d}, 777.0);
  kernels::paged_attention_cpu(q, k, v, paged, layer, out);
  for (size_t r = 0; r < paged.rows.size(); ++r) {
    const kernels::PagedRow& row = paged.rows[r];
    const auto [past, length] = c.rows[r];
    const auto of = [begin = row.begin, length = length](const at::Tensor& x) { return x.narrow(0, begin, length); };
    const auto behind = [&](const at::Tensor& before, const at::Tensor& x) { return at::cat({before, of(x).transpose(0, 1)}, 1); };
    const at::Tensor wanted = written_out(of(q), behind(keys[r], k), behind(values[r], v), past);
    EXPECT_NEAR(distance(of(out), wanted), 0, 1e-5);
  }
}

// Every other row keeps its keys and values, behind what its pages hold; whole, and by ranges of heads.
void appending_matches() {
  const int64_t page = 4, layers = 3, layer = 1, queries = 3, kv_heads = 2, d = 10, heads = queries + 2 * kv_heads;
  const std::vector<std::pair<int64_t, int64_t>> lengths{{0, 1}, {3, 2}, {4, 1}, {6, 11}, {0, 9}};
  kernels::PagedRows kept{page, {}};
  std::vector<at::Tensor> pages;  // of each kept row, [pages, layers, 2, kv_heads, page, d]
  int64_t tokens = 0;
  for (const auto& [past, length] : lengths) {
    if (tokens % 2 == 0) {
      pages.push_back(at::randn({(past + length + page - 1) / page, layers, 2, kv_heads, page, d}));
      kernels::PagedRow row{{}, past, tokens, length};
      for (int64_t n = 0; n < pages.back().size(0); ++n) row.pages.push_back(pages.back()[n].mutable_data_ptr<float>());
      kept.rows.push_back(row);
    }
    tokens += length;
  }
  const at::Tensor given = at::randn({tokens, heads + 1, d}), angles = at::randn({tokens, d / 2}).mul(30), cos = angles.cos(), sin = angles.sin();
  at::Tensor wanted = given.clone();
  kernels::plain::rotate_(wanted.narrow(1, 0, queries + kv_heads), cos, sin, 1);
  const auto whole = [&](const at::Tensor& x) { kernels::rotate_and_append_cpu(x, kv_heads, cos, sin, kept, layer); };
  const auto ranges = [&](const at::Tensor& x) {
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{4, 7}, {0, 4}}) kernels::rotate_and_append_heads(x, kv_heads, cos, sin, kept, layer, begin, end);
  };
  const auto check = [&](const auto& rotate_and_append) {
    std::vector<at::Tensor> before;
    for (const at::Tensor& own : pages) before.push_back(own.clone());
    const at::Tensor found = given.clone();
    rotate_and_append(found.narrow(1, 0, heads));
    EXPECT_NEAR(distance(found, wanted), 0, 1e-5);
    for (size_t r = 0; r < pages.size(); ++r) {
      const kernels::PagedRow& row = kept.rows[r];
      for (int64_t t = 0; t < row.tokens; ++t) {
        const int64_t place = row.past + t;
        const at::Tensor token = found[row.begin + t].narrow(0, queries, 2 * kv_heads).view({2, kv_heads, d});
        before[r][place / page][layer].select(2, place % page).copy_(token);
      }
      EXPECT_NEAR(distance(pages[r], before[r]), 0, 0);
      pages[r].copy_(at::randn(pages[r].sizes()));
    }
  };
  check(whole);
  check(ranges);
}

// The loss written out as operations that autograd follows, as verl has it.
at::Tensor written_loss(const at::Tensor& now, const at::Tensor& old, const at::Tensor& ref, const at::Tensor& advantage, const kernels::LossConstants& c) {
  const at::Tensor ratio = (now - old).clamp(-20, 20).exp(), plain = -advantage * ratio;
  at::Tensor loss = at::maximum(plain, -advantage * ratio.clamp(1 - c.clip_low, 1 + c.clip_high));
  if (c.dual_clip > 0) loss = at::where(advantage.lt(0), at::minimum(-advantage * c.dual_clip, loss), loss);
  const at::Tensor d = ref - now, bounded = d.clamp(-20, 20);
  switch (c.estimator) {
    case kernels::KL::k1: return loss - c.kl_coef * d;
    case kernels::KL::abs: return loss + c.kl_coef * d.abs();
    case kernels::KL::k2: return loss + c.kl_coef * d.square() / 2;
    case kernels::KL::low_var: break;
  }
  return loss + c.kl_coef * (bounded.exp() - bounded - 1).clamp(-10, 10);
}

void policy_loss_matches() {
  const int64_t n = 400;
  const auto numbers = [&] { return at::randn({n}, at::kDouble); };
  for (const auto estimator : {kernels::KL::k1, kernels::KL::abs, kernels::KL::k2, kernels::KL::low_var}) {
    for (const double dual_clip : {0.0, 3.0}) {
      const kernels::LossConstants c{0.2, 0.28, dual_clip, estimator, 0.3};
      const at::Tensor now = numbers().mul(4).requires_grad_(true), old = now.detach() + numbers().mul(numbers().exp()), ref = now.detach() + numbers().mul(8);
      const at::Tensor advantage = numbers().mul(at::rand({n}, at::kDouble).gt(0.1));
      const at::Tensor wanted = written_loss(now, old, ref, advantage, c);
      torch::autograd::backward({wanted.sum()}, {});
      for (int64_t k = 0; k < n; ++k) {
        const auto at = [&](const at::Tensor& x) { return x[k].item<double>(); };
        const auto loss = kernels::policy_loss(at(now), at(old), at(ref), at(advantage), c);
        EXPECT_NEAR(loss.policy + loss.kl, at(wanted), 1e-9 * (1 + std::fabs(at(wanted))));
        EXPECT_NEAR(loss.gradient, at(now.grad()), 1e-9 * (1 + std::fabs(at(now.grad()))));
      }
    }
  }
}

// A draw is the inverse of the cumulative distribution at the seed's number, up to rounding at the edges.
void sampling_matches() {
  for (const int64_t vocab : {1, 2, 37, 4096, 4097, 12000}) {
    const at::Tensor logits = at::randn({50, vocab}).mul(3);
    std::vector<kernels::Draw> draws;
    for (uint64_t r = 0; r < 50; ++r) draws.push_back({r % 5 == 0 ? 0.0 : 0.3 * static_cast<double>(r % 5), r, -1, 0, 0});
    kernels::sample(logits, {}, draws);
    for (int64_t r = 0; r < 50; ++r) {
      const kernels::Draw& d = draws[static_cast<size_t>(r)];
      const at::Tensor p = logits[r].to(at::kDouble).div(d.temperature == 0 ? 1 : d.temperature).softmax(0);
      EXPECT_NEAR(d.log_prob, std::log(p[d.id].item<double>()), 2e-5);
      if (d.temperature == 0) {
        EXPECT_EQUAL(d.id, logits[r].argmax().item<int64_t>());
        continue;
      }
      const double upper = p.cumsum(0)[d.id].item<double>(), u = kernels::uniform(d.seed, 0);
      EXPECT(u < upper + 1e-5 && u >= upper - p[d.id].item<double>() - 1e-5);
      EXPECT_EQUAL(d.redraws, 0);
    }
  }
}

void only_valid_ids_are_drawn() {
  at::Tensor logits = at::zeros({64, 10});
  logits.select(1, 3).fill_(50);  // nearly all mass on an id that is not valid
  logits.narrow(0, 0, 32).select(1, 3).fill_(1);
  const at::Tensor valid = at::ones({9}, at::kByte);  // id 9 has no entry
  valid[3] = 0;
  std::vector<kernels::Draw> draws;
  for (uint64_t r = 0; r < 64; ++r) draws.push_back({1, r, -1, 0, 0});
  kernels::sample(logits, valid, draws);
  int redrawn = 0;
  for (size_t r = 0; r < 64; ++r) {
    EXPECT(draws[r].id != 3 && draws[r].id >= 0 && draws[r].id < 9);
    if (r < 32) redrawn += draws[r].redraws;
    if (r >= 32) EXPECT_EQUAL(draws[r].redraws, kernels::kMaxRedraws);
  }
  EXPECT(redrawn > 3 && redrawn < 60);
}

void broken_logits_are_refused() {
  for (const float broken : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    at::Tensor logits = at::zeros({2, 30});
    logits[1][7] = broken;
    std::vector<kernels::Draw> draws(2, {1, 5, -1, 0, 0});
    bool refused = false;
    try {
      kernels::sample(logits, {}, draws);
    } catch (const std::runtime_error&) {
      refused = true;
    }
    EXPECT(refused);
  }
}

// Products with packed weights, set and added, into a part of a wider tensor; one that has no outputs changes nothing.
void packed_products_match() {
  using mempo::PackedMatrix;
  if (!PackedMatrix::available()) return;  // a processor or a libtorch without such products
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{16, 0}, {5, 1}, {16, 16}, {7, 64}, {16, 70}}) {
    const at::Tensor weight = at::randn({100, 45}).narrow(0, 20, n), bias = at::randn({n}), x = at::randn({m, 45});
    const at::Tensor wanted = at::mm(x.to(at::kDouble), weight.to(at::kDouble).t());
    const at::Tensor wide = at::full({m, n + 9}, 7.0), out = wide.narrow(1, 4, n);
    PackedMatrix(weight, at::Tensor()).multiply(x, out, /*add=*/false);
    if (n > 0) EXPECT_NEAR(distance(out, wanted), 0, 2e-5);
    PackedMatrix(weight, bias).multiply(x, out, /*add=*/true);
    if (n > 0) EXPECT_NEAR(distance(out, 2 * wanted + bias), 0, 5e-5);
    EXPECT_NEAR(distance(at::cat({wide.narrow(1, 0, 4), wide.narrow(1, n + 4, 5)}, 1), at::full({1}, 7.0)), 0, 0);
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
  norms_match();
  rotation_matches();
  gate_matches();
  logit_statistics_match();
  appending_matches();
  for (const AttentionCase& c : std::vector<AttentionCase>{
           {1, 1, 16, {{0, 1}}}, {3, 1, 64, {{5, 1}, {0, 3}, {60, 1}}}, {9, 3, 64, {{31, 2}, {32, 1}, {7, 16}, {8, 12}}},
           {14, 2, 128, {{40, 4}}}, {4, 2, 40, {{7, 1}, {8, 1}}}, {2, 2, 10, {{9, 3}}}, {5, 1, 80, {{1, 1}}}}) {
    attention_matches(c);
  }
  exponential_is_close();
  packed_products_match();
  policy_loss_matches();
  sampling_matches();
  only_valid_ids_are_drawn();
  broken_logits_are_refused();
  return failures();
}
