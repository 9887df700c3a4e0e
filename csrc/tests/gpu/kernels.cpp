// kernels.test: every fused operation on a device against the same in float32 or float64 on the CPU.
//
// usage: kernels.test --device cpu|cuda|cuda:N
//
// Prints a line "ok KERNEL DTYPE: FIGURES" or "FAIL ..." for each; exit code 0: all agree, 1: some do not, 2: wrong usage,
// 3: no such device. On the CPU the plain forms and the CPU forms are what is compared.
#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <cstring>

#include "attention.h"
#include "cached_attention.h"
#include "cuda_logits.h"
#include "device.h"
#include "emulated.h"
#include "kernels.h"
#include "mempo.h"
#include "transfer.h"

namespace kernels = mempo::kernels;

namespace {

int failed = 0;
at::Device device(at::kCPU);

const char* name_of(at::ScalarType type) { return type == at::kFloat ? "float32" : "bfloat16"; }

// Distances in units of what is allowed: at most 1 passes. `relative` is multiplied by the rounding of the dtype.
void compare(const std::string& kernel, at::ScalarType type, const std::vector<std::pair<at::Tensor, at::Tensor>>& found_and_wanted, double relative = 4) {
  const double rounding = type == at::kFloat ? 2e-6 : 0x1p-7;
  double worst = 0;
  for (const auto& [found, wanted] : found_and_wanted) {
    worst = std::max(worst, emulated::distance(found.to(at::kCPU), wanted, relative * rounding, relative * rounding));
  }
  const bool near = worst <= 1;
  failed += near ? 0 : 1;
  std::printf("%s %s %s: %.2g of the tolerance %.1e\n", near ? "ok" : "FAIL", kernel.c_str(), name_of(type), worst, relative * rounding);
  std::fflush(stdout);
}

// Numbers of a dtype as float32, and the same on the device.
struct Numbers {
  at::Tensor host, there;

  Numbers(at::IntArrayRef shape, at::ScalarType type, double scale = 1) : host(at::randn(shape).mul(scale).to(type).to(at::kFloat)), there(host.to(device, type)) {}
};

void norms(at::ScalarType type) {
  const Numbers x({300, 3584}, type), w({3584}, type), g({300, 3584}, type);
  at::Tensor wanted_w = at::zeros({3584}), found_w = at::zeros({3584}, wanted_w.options().device(device));
  const at::Tensor wanted = kernels::plain::rms_norm(x.host, w.host, 1e-6), found = kernels::rms_norm(x.there, w.there, 1e-6);
  const at::Tensor wanted_x = kernels::plain::rms_norm_backward(x.host, w.host, 1e-6, g.host, wanted_w);
  const at::Tensor found_x = kernels::rms_norm_backward(x.there, w.there, 1e-6, g.there, found_w);
  compare("rms_norm", type, {{found, wanted}});
  compare("rms_norm_backward", type, {{found_x, wanted_x}, {found_w.div(20), wanted_w.div(20)}});
}

void rotations(at::ScalarType type) {
  const Numbers x({200, 32, 128}, type), angle({200, 64}, at::kFloat, 30);
  const at::Tensor cos = angle.host.cos().to(type), sin = angle.host.sin().to(type), wanted = x.host.clone();
  kernels::plain::rotate_(wanted, cos.to(at::kFloat), sin.to(at::kFloat), 1);
  kernels::rotate_(x.there, cos.to(device), sin.to(device), 1);
  compare("rotate", type, {{x.there, wanted}});
}

void gates(at::ScalarType type) {
  const Numbers x({100, 2 * 2368}, type, 3), g({100, 2368}, type);
  compare("swiglu", type, {{kernels::swiglu(x.there), kernels::plain::swiglu(x.host)}});
  compare("swiglu_backward", type, {{kernels::swiglu_backward(x.there, g.there), kernels::plain::swiglu_backward(x.host, g.host)}});
}

// The vocabulary of Qwen2.5, and one that no wide access reaches.
void logits(int64_t vocab, at::ScalarType type) {
  const Numbers x({40, vocab}, at::kFloat, 5);
  const at::Tensor targets = at::randint(0, vocab, {40}, at::kLong), upstream = at::randn({40}), wide = x.host.to(at::kDouble);
  const auto wanted = kernels::plain::logit_stats(wide, targets, true);
  at::Tensor there = x.there.clone(), host = wide.clone();
  const auto found = kernels::logit_stats(there, targets.to(device), true);
  const at::Tensor gradient = kernels::plain::logits_to_gradient(host, targets, wanted.normalizers, upstream.to(at::kDouble), at::kDouble);
  const at::Tensor found_gradient = kernels::logits_to_gradient(there, targets.to(device), found.normalizers, upstream.to(device), type);
  const std::string size = " of " + std::to_string(vocab) + " ids";
  if (type == at::kFloat) compare("logit_stats" + size, type, {{found.log_probs, wanted.log_probs}, {found.normalizers, wanted.normalizers}, {found.entropies, wanted.entropies}}, 10);
  compare("logits_to_gradient" + size, type, {{found_gradient, gradient}});
}

void losses() {
  const auto* on = kernels::cuda::kernels_for(at::empty({0}, at::TensorOptions().device(device)));
  if (on == nullptr) return;
  const int64_t n = 3000;
  const kernels::LossConstants constants{0.2, 0.28, 3, kernels::KL::low_var, 0.1};
  const at::Tensor log_probs = at::randn({n}), columns = at::randn({4, n}), gradients = at::empty({n});
  at::Tensor sums = at::zeros({5}, at::kDouble);
  const auto at = [](const at::Tensor& x, int64_t k) { return static_cast<double>(x.const_data_ptr<float>()[k]); };
  for (int64_t k = 0; k < n; ++k) {
    const double weight = at(columns[3], k);
    const auto loss = kernels::policy_loss(at(log_probs, k), at(columns[0], k), at(columns[1], k), at(columns[2], k), constants);
    gradients[k] = static_cast<float>(weight * loss.gradient);
    sums[0] += weight * loss.policy;
    sums[1] += weight * loss.kl;
  }
  const at::Tensor there = at::zeros({5}, at::TensorOptions().dtype(at::kDouble).device(device));
  const at::Tensor found = kernels::cuda::policy_losses(*on, log_probs.to(device), columns.to(device), false, constants, there);
  compare("policy_loss", at::kFloat, {{found, gradients}, {there.narrow(0, 0, 2), sums.narrow(0, 0, 2)}});
}

// The same tokens as on the CPU; a draw may fall to either side of a rounding once in a great many.
void draws() {
  const int64_t rows = 64, vocab = 152064;
  const at::Tensor x = at::randn({rows, vocab}).mul(3), valid = at::ones({151000}, at::kByte);
  valid.narrow(0, 0, 70000).zero_();
  std::vector<kernels::Draw> wanted;
  for (int64_t r = 0; r < rows; ++r) wanted.push_back({r % 4 == 0 ? 0.0 : 0.4 * static_cast<double>(r % 4), static_cast<uint64_t>(r), -1, 0, 0});
  std::vector<kernels::Draw> found = wanted;
  kernels::sample(x, valid, wanted);
  kernels::sample(x.to(device), valid.to(device), found);
  int64_t others = 0;
  at::Tensor a = at::zeros({rows}), b = at::zeros({rows});
  for (int64_t r = 0; r < rows; ++r) {
    const auto n = static_cast<size_t>(r);
    if (found[n].id != wanted[n].id) ++others;
    else a[r] = found[n].log_prob, b[r] = wanted[n].log_prob;
  }
  compare("sample (" + std::to_string(others) + " of 64 rows differ)", at::kFloat, {{a, b}, {at::full({1}, others > 1 ? 1.0 : 0.0), at::zeros({1})}}, 10);
}

// Decoding of rows of many lengths, a branch of several tokens and a long stretch, into and over pages.
void paged(at::ScalarType type, int64_t heads, int64_t kv_heads, int64_t d) {
  const std::vector<std::pair<int64_t, int64_t>> lengths{{1, 1}, {63, 1}, {64, 1}, {65, 1}, {1000, 1}, {4095, 1}, {300, 7}, {200, 40}, {0, 100}};
  mempo::KVCache cache({1, kv_heads, d, at::TensorOptions().dtype(type).device(device)}, 0);
  mempo::KVCache host({1, kv_heads, d, at::TensorOptions().dtype(at::kFloat)}, 0);
  std::vector<mempo::Stretch> there, here;
  int64_t begin = 0;
  for (const auto& [past, tokens] : lengths) {
    auto &row = cache.find(cache.open()), &same = host.find(host.open());
    cache.reserve(row, past + tokens);
    host.reserve(same, past + tokens);
    const Numbers k({past, kv_heads, d}, type), v({past, kv_heads, d}, type);
    if (past > 0) cache.write(row, 0, k.there, v.there);
    if (past > 0) host.write(same, 0, k.host, v.host);
    row.length = same.length = past;
    there.push_back({&row, past, begin, tokens, true});
    here.push_back({&same, past, begin, tokens, true});
    begin += tokens;
  }
  const Numbers qkv({begin, heads + 2 * kv_heads, d}, type), angle({begin, d / 2}, at::kFloat, 30);
  const at::Tensor cos = angle.host.cos().to(type), sin = angle.host.sin().to(type);
  const at::Tensor rotated = qkv.host.clone();
  mempo::CachedAttention on_device(cache, there), on_host(host, here);
  on_device.rotate_(0, qkv.there, kv_heads, cos.to(device), sin.to(device));
  on_host.rotate_(0, rotated, kv_heads, cos.to(at::kFloat), sin.to(at::kFloat));
  std::vector<std::pair<at::Tensor, at::Tensor>> appended{{qkv.there, rotated}};
  for (size_t n = 0; n < lengths.size(); ++n) {
    for (const int64_t which : {0, 1}) {
      const int64_t length = lengths[n].first + lengths[n].second;
      appended.emplace_back(cache.gather(*there[n].row, 0, which, length), host.gather(*here[n].row, 0, which, length));
    }
  }
  const std::string shape = std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads of " + std::to_string(d);
  compare("rotate and append " + shape, type, appended);
  const auto attend = [&](mempo::CachedAttention& attention, const at::Tensor& x) {
    return attention.attend(0, x.narrow(1, 0, heads), x.narrow(1, heads, kv_heads), x.narrow(1, heads + kv_heads, kv_heads)).mixed;
  };
  // Both from what the device has rotated.
  const at::Tensor found = attend(on_device, qkv.there), wanted = attend(on_host, qkv.there.to(at::kCPU, at::kFloat));
  compare("paged attention " + shape, type, {{found, wanted}}, type == at::kFloat ? 20 : 4);
}

// Scoring and training over a tree of rows: a prompt, its continuations, and branches behind these.
void trees(at::ScalarType type, int64_t heads, int64_t kv_heads, int64_t d) {
  const mempo::Tree tree{{0, 200, 290, 400, 410, 411, 450}, {-1, 0, 0, 1, 1, -1}, {0, 200, 150, 260, 290, 0}};
  const int64_t tokens = tree.offsets.back();
  const Numbers q({tokens, heads, d}, type), k({tokens, kv_heads, d}, type), v({tokens, kv_heads, d}, type), g({tokens, heads * d}, type);
  mempo::TreeAttention here(tree), there(tree);
  const auto run = [&](mempo::TreeAttention& attention, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& upstream) {
    const auto attended = attention.attend(0, a, b, c);
    std::vector<at::Tensor> all{attended.mixed, at::empty_like(a), at::empty_like(b), at::empty_like(c)};
    attention.backward(upstream, a, b, c, attended, all[1], all[2], all[3]);
    return all;
  };
  const auto wanted = run(here, q.host, k.host, v.host, g.host), found = run(there, q.there, k.there, v.there, g.there), again = run(there, q.there, k.there, v.there, g.there);
  const std::string shape = std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads of " + std::to_string(d);
  compare("tree attention " + shape, type, {{found[0], wanted[0]}}, type == at::kFloat ? 20 : 4);
  compare("tree attention backward " + shape, type, {{found[1], wanted[1]}, {found[2], wanted[2]}, {found[3], wanted[3]}}, type == at::kFloat ? 40 : 8);
  const bool same = at::equal(found[1], again[1]) && at::equal(found[2], again[2]) && at::equal(found[3], again[3]);
  failed += same ? 0 : 1;
  std::printf("%s tree attention backward %s %s: %s bits the second time\n", same ? "ok" : "FAIL", shape.c_str(), name_of(type), same ? "the same" : "other");
}

// One step for parameters of odd sizes, with their narrow copies.
void adamw(at::ScalarType type) {
  const auto parameters = [&](at::Device where, at::ScalarType weight, const std::vector<at::Tensor>& numbers) {
    std::vector<kernels::AdamwParameter> all;
    for (size_t n = 0; n < numbers.size(); n += 4) {
      const auto at = [&](size_t k) { return numbers[n + k].to(where, /*non_blocking=*/false, /*copy=*/true); };
      const at::Tensor master = at(0);
      all.push_back({master, at(1), at(2), at(3).abs_(), weight == at::kFloat ? master : master.to(weight)});
    }
    return all;
  };
  std::vector<at::Tensor> numbers;
  for (const int64_t size : {3584 * 1000, 1, 4097}) {
    for (int n = 0; n < 4; ++n) numbers.push_back(at::randn({size}));
  }
  const auto here = parameters(at::kCPU, at::kFloat, numbers), there = parameters(device, type, numbers);
  const kernels::AdamwOptions options{1e-2, 0.9, 0.999, 0.1, 1e-8, 3};
  kernels::adamw_(here, options);
  kernels::adamw_(there, options);
  std::vector<std::pair<at::Tensor, at::Tensor>> all;
  for (size_t n = 0; n < here.size(); ++n) {
    for (const auto& member : {&kernels::AdamwParameter::master, &kernels::AdamwParameter::first_moment, &kernels::AdamwParameter::second_moment}) {
      all.emplace_back(there[n].*member, here[n].*member);
    }
    if (type != at::kFloat) all.emplace_back(there[n].weight, here[n].master);
  }
  compare("adamw", type, all);
}

// Many tokens of few ids, as in text.
void embedding_gradients(at::ScalarType type) {
  const Numbers rows({3000, 896}, type);
  const at::Tensor ids = at::randint(0, 200, {3000}, at::kLong), wanted = at::zeros({1000, 896}), found = at::zeros({1000, 896}).to(device);
  kernels::add_rows_(wanted, ids, rows.host);
  kernels::add_rows_(found, ids.to(device), rows.there);
  compare(std::string("embedding gradient of rows in ") + name_of(type), at::kFloat, {{found, wanted}}, 10);
}

void all() {
  at::manual_seed(1);
  at::NoGradGuard no_grad;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    norms(type);
    rotations(type);
    gates(type);
    logits(152064, type);
    logits(49153, type);
    paged(type, 28, 4, 128);
    paged(type, 9, 3, 64);
    paged(type, 8, 1, 256);
    trees(type, 28, 4, 128);
    trees(type, 9, 3, 64);
    adamw(type);
    embedding_gradients(type);
  }
  losses();
  draws();
}

// Says on stderr what went wrong with a call.
bool ok(int code, const mempo_error& error) {
  if (code != MEMPO_OK) std::fprintf(stderr, "kernels.test: %s\n", error.message);
  return code == MEMPO_OK;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3 || std::strcmp(arguments[1], "--device") != 0) {
    std::fprintf(stderr, "usage: kernels.test --device cpu|cuda|cuda:N\n");
    return 2;
  }
  mempo_error error{};
  const bool cpu = std::strcmp(arguments[2], "cpu") == 0;
  if (!cpu && !(ok(mempo_cuda_load(nullptr, &error), error) && ok(mempo_cuda_kernels_load(&error), error))) return 3;
  if (!ok(mempo_device_select(arguments[2], &error), error)) return 3;
  const int code = mempo::guarded(&error, [&] {
    device = mempo::device_named(arguments[2]);
    all();
  });
  if (!ok(code, error)) return 1;
  std::printf("kernels.test on %s: %d failed\n", arguments[2], failed);
  return failed == 0 ? 0 : 1;
}
