// Every wrong argument is a code and one line of text, never a crash, and changes nothing.
#include <ATen/ATen.h>

#include <functional>

#include "tiny.h"

using namespace tiny;

namespace {

void refused(const char* part, const std::function<void(mempo_model_config&)>& change, const char* device = "cpu") {
  Config config = qwen3();
  config.get();
  change(config.c);
  mempo_model* made = nullptr;
  FAILS(MEMPO_INVALID, part, mempo_model_new, &config.c, device, &made);
  EXPECT(made == nullptr);
}

void configs() {
  using Change = mempo_model_config;
  refused("kv_heads", [](Change& c) { c.kv_heads = 3; });
  refused("kv_heads", [](Change& c) { c.kv_heads = 0; });
  refused("heads", [](Change& c) { c.heads = 0; });
  refused("vocab", [](Change& c) { c.vocab = 0; });
  refused("hidden", [](Change& c) { c.hidden = -1; });
  refused("intermediate", [](Change& c) { c.intermediate = 0; });
  refused("layers", [](Change& c) { c.layers = 0; });
  refused("head_dim", [](Change& c) { c.head_dim = 7; });
  refused("head_dim", [](Change& c) { c.head_dim = 0; });
  refused("inverse_frequencies", [](Change& c) { c.inverse_frequencies = nullptr; });
  refused("rms_norm_eps", [](Change& c) { c.rms_norm_eps = std::nan(""); });
  refused("compute_dtype", [](Change& c) { c.compute_dtype = static_cast<mempo_dtype>(2); });
  refused("device", [](Change&) {}, "banana");
  refused("device", [](Change&) {}, "meta");
  refused("device", [](Change&) {}, nullptr);
  mempo_model* made = nullptr;
  FAILS(MEMPO_INVALID, "null", mempo_model_new, nullptr, "cpu", &made);
}

void weights() {
  const Config config = qwen3();
  const Model model = make(config), fixed = make(config, false);
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  const at::Tensor fits = at::ones({32, 24}, at::kBFloat16), turned = at::ones({24, 32}), nothing;
  OK(mempo_model_set_weight, model.get(), name.c_str(), &fits);
  EXPECT_EQUAL(read(model.get(), MEMPO_MASTER, {name, 32 * 24})[5], 1.0F);
  FAILS(MEMPO_INVALID, "[24, 32] given, [32, 24] expected", mempo_model_set_weight, model.get(), name.c_str(), &turned);
  FAILS(MEMPO_INVALID, "no tensor named lm_tail", mempo_model_set_weight, model.get(), "lm_tail", &fits);
  FAILS(MEMPO_INVALID, name.c_str(), mempo_model_set_weight, model.get(), name.c_str(), &nothing);
  FAILS(MEMPO_INVALID, "null", mempo_model_set_weight, model.get(), name.c_str(), nullptr);
  FAILS(MEMPO_INVALID, "null", mempo_model_set_weight, model.get(), nullptr, &fits);
  FAILS(MEMPO_INVALID, "null", mempo_model_set_weight, nullptr, name.c_str(), &fits);
  EXPECT_EQUAL(read(model.get(), MEMPO_MASTER, {name, 32 * 24})[5], 1.0F);

  std::vector<float> values(1000);
  const auto read_fails = [&](const char* part, mempo_model* m, int kind, const char* what, int64_t count) {
    FAILS(MEMPO_INVALID, part, mempo_model_read, m, static_cast<mempo_kind>(kind), what, values.data(), count);
  };
  const auto write_fails = [&](const char* part, mempo_model* m, int kind, const char* what, int64_t count) {
    FAILS(MEMPO_INVALID, part, mempo_model_write, m, static_cast<mempo_kind>(kind), what, values.data(), count);
  };
  for (int64_t count : {-1, 0, 767, 769}) {
    read_fails("768", model.get(), MEMPO_MASTER, name.c_str(), count);
    write_fails("768", model.get(), MEMPO_FIRST_MOMENT, name.c_str(), count);
  }
  read_fails("no tensor named x", model.get(), MEMPO_GRADIENT, "x", 768);
  write_fails("no tensor named x", model.get(), MEMPO_MASTER, "x", 768);
  read_fails("kind", model.get(), 5, name.c_str(), 768);
  for (int kind : {4, 5}) write_fails("kind", model.get(), kind, name.c_str(), 768);  // merged weights are only read
  write_fails("training", fixed.get(), MEMPO_SECOND_MOMENT, name.c_str(), 768);
  read_fails("null", nullptr, MEMPO_MASTER, name.c_str(), 768);
  write_fails("null", nullptr, MEMPO_MASTER, name.c_str(), 768);
  // Moments and gradients that do not exist yet are zero.
  for (mempo_kind kind : {MEMPO_FIRST_MOMENT, MEMPO_SECOND_MOMENT, MEMPO_GRADIENT}) {
    values[3] = 9;
    OK(mempo_model_read, fixed.get(), kind, name.c_str(), values.data(), 768);
    EXPECT_EQUAL(values[3], 0.0F);
  }
}

// Packed batches that score and forward_backward must both refuse.
struct WrongBatch {
  const char* part;
  std::vector<int64_t> offsets;
  std::vector<int32_t> ids;
  std::vector<int64_t> positions;
  double temperature = 1;
};

void batches() {
  const std::vector<WrongBatch> wrong{
      {"row", {0}, {}, {1}},
      {"row 0 is empty", {0, 0, 3}, {1, 2, 3}, {1}},
      {"row 1 is empty", {0, 3, 3}, {1, 2, 3}, {1}},
      {"offset", {0, 3, 2}, {1, 2, 3}, {1}},
      {"offset", {1, 3}, {1, 2, 3}, {2}},
      {"offset", {-1, 3}, {1, 2, 3}, {1}},
      {"token id 37", {0, 3}, {1, 2, 37}, {1}},
      {"token id -1", {0, 3}, {-1, 2, 3}, {1}},
      {"position", {0, 3}, {1, 2, 3}, {}},
      {"outside", {0, 3}, {1, 2, 3}, {3}},
      {"outside", {0, 3}, {1, 2, 3}, {-1}},
      {"outside", {0, 3}, {1, 2, 3}, {1, INT64_MAX}},
      {"first token", {0, 3}, {1, 2, 3}, {0}},
      {"first token", {0, 2, 4}, {1, 2, 3, 4}, {1, 2}},
      {"ascend", {0, 3}, {1, 2, 3}, {2, 1}},
      {"ascend", {0, 3}, {1, 2, 3}, {1, 1}},
      {"ascend", {0, 3, 6}, {1, 2, 3, 4, 5, 6}, {4, 1}},
      {"temperature", {0, 3}, {1, 2, 3}, {1}, 0},
      {"temperature", {0, 3}, {1, 2, 3}, {1}, -1},
      {"temperature", {0, 3}, {1, 2, 3}, {1}, std::nan("")},
      {"temperature", {0, 3}, {1, 2, 3}, {1}, INFINITY},
  };
  const Model model = make(qwen3());
  const std::vector<float> ones(4, 1.0F);
  const mempo_loss_inputs inputs{ones.data(), ones.data(), ones.data(), ones.data()};
  const Batch alone = random_batch(1, {1, 1, 1});
  std::vector<float> log_probs(4), entropies(4);
  mempo_loss_stats stats{};
  for (const WrongBatch& b : wrong) {
    const auto rows = static_cast<int64_t>(b.offsets.size()) - 1, count = static_cast<int64_t>(b.positions.size());
    FAILS(MEMPO_INVALID, b.part, mempo_score, model.get(), rows, b.offsets.data(), b.ids.data(), count, b.positions.data(),
          b.temperature, 0, log_probs.data(), entropies.data());
    mempo_loss_options options = plain_loss();
    options.temperature = b.temperature;
    FAILS(MEMPO_INVALID, b.part, mempo_forward_backward, model.get(), rows, b.offsets.data(), b.ids.data(),
          alone.parents.data(), alone.starts.data(), 1, &rows, count, b.positions.data(), &inputs, &options, &stats);
  }
  const Batch good = random_batch(1, {3});
  FAILS(MEMPO_INVALID, "row", mempo_score, model.get(), -1, good.offsets.data(), good.ids.data(), 1, good.positions.data(), 1, 0,
        log_probs.data(), entropies.data());
  FAILS(MEMPO_INVALID, "null", mempo_score, nullptr, 1, good.offsets.data(), good.ids.data(), 1, good.positions.data(), 1, 0,
        log_probs.data(), entropies.data());
}

void losses() {
  const Model model = make(qwen3()), fixed = make(qwen3(), false);
  const Batch b = random_batch(1, {3});
  const std::vector<float> ones(4, 1.0F);
  const mempo_loss_inputs inputs{ones.data(), ones.data(), ones.data(), ones.data()};
  const auto step_fails = [&](const char* part, mempo_model* m, const mempo_loss_options& options) {
    mempo_loss_stats stats{};
    FAILS(MEMPO_INVALID, part, mempo_forward_backward, m, 1, b.offsets.data(), b.ids.data(), b.parents.data(), b.starts.data(), 1, b.groups.data(), b.count(),
          b.positions.data(), &inputs, &options, &stats);
  };
  mempo_loss_options unknown = plain_loss();
  unknown.kl_estimator = static_cast<mempo_kl_estimator>(4);
  step_fails("KL estimator", model.get(), unknown);
  mempo_loss_options no_kind = plain_loss();
  no_kind.kind = static_cast<mempo_loss_kind>(2);
  step_fails("kind of loss", model.get(), no_kind);
  step_fails("training", fixed.get(), plain_loss());
  step_fails("null", nullptr, plain_loss());

  std::vector<float> gradient(4);
  mempo_loss_stats stats{};
  const mempo_loss_options options = plain_loss();
  FAILS(MEMPO_INVALID, "KL estimator", mempo_token_loss, 4, ones.data(), &inputs, &unknown, &stats, gradient.data());
  FAILS(MEMPO_INVALID, "token", mempo_token_loss, 0, ones.data(), &inputs, &options, &stats, gradient.data());
  FAILS(MEMPO_INVALID, "token", mempo_token_loss, -1, ones.data(), &inputs, &options, &stats, gradient.data());
  const mempo_loss_options likely = likelihood();
  const mempo_loss_inputs weights{nullptr, nullptr, nullptr, ones.data()}, no_weights{ones.data(), ones.data(), ones.data(), nullptr};
  FAILS(MEMPO_INVALID, "missing", mempo_token_loss, 4, ones.data(), &weights, &options, &stats, gradient.data());
  for (const mempo_loss_options& o : {options, likely}) {
    FAILS(MEMPO_INVALID, "missing", mempo_token_loss, 4, ones.data(), &no_weights, &o, &stats, gradient.data());
  }
  OK(mempo_token_loss, 4, ones.data(), &weights, &likely, &stats, gradient.data());
  EXPECT_EQUAL(stats.negative_log_likelihood, -4.0);
  for (float g : gradient) EXPECT_EQUAL(g, -1.0F);
}

void updates() {
  const Model model = make(qwen3()), fixed = make(qwen3(), false);
  const mempo_update_options good{1e-3, 0.9, 0.999, 1e-8, 0.01, 1};
  double norm = 0;
  int skipped = 0;
  FAILS(MEMPO_INVALID, "no gradient", mempo_update, model.get(), &good, &norm, &skipped);
  FAILS(MEMPO_INVALID, "training", mempo_update, fixed.get(), &good, &norm, &skipped);
  FAILS(MEMPO_INVALID, "null", mempo_update, nullptr, &good, &norm, &skipped);
  OK(mempo_drop_gradient, model.get());
  OK(mempo_drop_gradient, fixed.get());
  FAILS(MEMPO_INVALID, "null", mempo_drop_gradient, nullptr);
  EXPECT_EQUAL(mempo_model_update_count(model.get()), 0);
}

void sessions() {
  const Model model = make(qwen3(), false);
  const uint8_t none[] = {0, 0, 0};
  mempo_session* made = nullptr;
  FAILS(MEMPO_INVALID, "valid", mempo_session_new, model.get(), none, 3, 0, 0, &made);
  FAILS(MEMPO_INVALID, "valid", mempo_session_new, model.get(), none, -1, 0, 0, &made);
  FAILS(MEMPO_INVALID, "null", mempo_session_new, nullptr, nullptr, 0, 0, 0, &made);
  EXPECT(made == nullptr);
  OK(mempo_session_new, model.get(), nullptr, 0, 0, 0, &made);
  const Session s(made);
  int64_t row = 0, copied = 0;
  OK(mempo_session_open, s.get(), &row);
  OK(mempo_session_release, s.get(), row);
  FAILS(MEMPO_INVALID, "no row", mempo_session_release, s.get(), row);
  FAILS(MEMPO_INVALID, "no row", mempo_session_fork, s.get(), row, 0, &copied);
  FAILS(MEMPO_INVALID, "no row", mempo_session_fork, s.get(), -7, 0, &copied);
  FAILS(MEMPO_INVALID, "null", mempo_session_open, nullptr, &row);
  FAILS(MEMPO_INVALID, "null", mempo_session_fork, nullptr, row, 0, &copied);
  FAILS(MEMPO_INVALID, "null", mempo_session_release, nullptr, row);
  FAILS(MEMPO_INVALID, "null", mempo_session_step, nullptr, 0, nullptr, nullptr, nullptr, nullptr);
  const int64_t again = row;
  OK(mempo_session_open, s.get(), &row);
  EXPECT(row != again);  // the number of a released row never comes back
}

void distributions() {
  const std::vector<float> logits{1, 2, 3};
  std::vector<float> out(3);
  const auto fails = [&](const char* part, int64_t vocab, double temperature, int64_t top_k, double top_p) {
    FAILS(MEMPO_INVALID, part, mempo_filtered_distribution, logits.data(), vocab, temperature, top_k, top_p, out.data());
  };
  fails("temperature", 3, 0, 0, 1);
  fails("temperature", 3, -1, 0, 1);
  fails("temperature", 3, std::nan(""), 0, 1);
  fails("vocab", 0, 1, 0, 1);
  fails("vocab", -1, 1, 0, 1);
  fails("top_k", 3, 1, -1, 1);
  fails("top_p", 3, 1, 0, -0.1);
  fails("top_p", 3, 1, 0, 1.1);
  fails("top_p", 3, 1, 0, std::nan(""));
}

void runtime() {
  FAILS(MEMPO_INVALID, "threads", mempo_runtime_init, 0);
  FAILS(MEMPO_INVALID, "cannot be loaded", mempo_cuda_load, "/nowhere/libtorch_cuda.so");
  FAILS(MEMPO_INVALID, "works without CUDA", mempo_cuda_load, "libm.so.6");  // a library that brings no CUDA
  int cuda = -1, devices = -1;
  mempo_cuda_driver(&cuda, &devices);
  EXPECT(cuda >= 0 && devices >= 0 && (cuda > 0 || devices == 0));
  OK(mempo_device_select, "cpu");
  FAILS(MEMPO_INVALID, "null", mempo_device_select, nullptr);
  int64_t current = 0, peak = 0;
  OK(mempo_memory, "cpu", &current, &peak);
  EXPECT(current > 0 && peak >= current);
  mempo_error error{};
  EXPECT(mempo_memory("banana", &current, &peak, &error) != MEMPO_OK);
  if (mempo_cuda_device_count() == 0) {
    EXPECT(mempo_device_select("cuda:0", &error) != MEMPO_OK);
    EXPECT(mempo_memory("cuda:0", &current, &peak, &error) != MEMPO_OK);
    EXPECT(mempo_memory_reset_peak("cuda:0", &error) != MEMPO_OK);
    Config config = qwen3();
    mempo_model* made = nullptr;
    EXPECT(mempo_model_new(config.get(), "cuda:0", &made, &error) != MEMPO_OK);
    EXPECT(made == nullptr && std::strchr(error.message, '\n') == nullptr);
  }
  // The caller may have no use for the text.
  EXPECT_EQUAL(mempo_runtime_init(0, nullptr), int{MEMPO_INVALID});
  mempo_model_free(nullptr);
  mempo_session_free(nullptr);
}

}  // namespace

int main() {
  mempo_error error{};
  mempo_runtime_init(1, &error);
  configs();
  weights();
  batches();
  losses();
  updates();
  sessions();
  distributions();
  runtime();
  EXPECT_EQUAL(mempo_live_handles(), 0);
  return failures();
}
