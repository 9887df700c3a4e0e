// A model on a GPU in software: generation, whose steps are captured and done again, scoring and learning give what they give
// on the CPU.
#include "emulated.h"
#include "slopes.h"
#include "tiny.h"

using namespace tiny;

namespace {

mempo_row_input drawing(int64_t row, double temperature, uint64_t seed) { return {row, 1, temperature, 1.0, 0, seed}; }

struct Generated {
  std::vector<int32_t> ids;
  std::vector<float> log_probs;
};

void append(Generated& all, const std::vector<mempo_sampled>& drawn) {
  for (const mempo_sampled& d : drawn) {
    all.ids.push_back(d.id);
    all.log_probs.push_back(d.log_prob);
  }
}

std::vector<mempo_sampled> step(mempo_session* session, const std::vector<mempo_row_input>& inputs, const Batch& batch) {
  std::vector<mempo_sampled> drawn(inputs.size());
  OK(mempo_session_step, session, batch.rows(), inputs.data(), batch.offsets.data(), batch.ids.data(), drawn.data());
  return drawn;
}

// Rows that begin with one prompt, over the border of a page, and come and go: steps of 5, 3 and 5 rows. Once a row is fed so
// many tokens that the pages outgrow a captured step's table, and once one filters its draw.
Generated generate(mempo_model* model, int turns) {
  mempo_session* made = nullptr;
  std::vector<uint8_t> valid(37, 1);
  valid[5] = 0;
  OK(mempo_session_new, model, valid.data(), 37, 0, 0, &made);
  const Session session(made);
  Generated all;
  Random random{3};
  Batch prompt;
  prompt.add(random_row(random, 60));
  std::vector<int64_t> rows(5);
  OK(mempo_session_open, made, rows.data());
  append(all, step(made, {drawing(rows[0], 1, 1)}, prompt));
  for (size_t n = 1; n < rows.size(); ++n) OK(mempo_session_fork, made, rows[0], 60 - static_cast<int64_t>(n), &rows[n]);
  const std::vector<int32_t> many = random_row(random, 80);
  std::vector<int32_t> last{3, 1, 4, 1, 6};
  for (int turn = 0; turn < turns; ++turn) {
    const size_t count = turn % 4 == 2 ? 3 : 5;
    Batch batch;
    std::vector<mempo_row_input> inputs;
    for (size_t n = 0; n < count; ++n) {
      batch.add(turn == 5 && n == 1 ? many : std::vector<int32_t>{last[n]});
      inputs.push_back(drawing(rows[n], n == 2 ? 0 : 0.8, static_cast<uint64_t>(turn) * 10 + n));
      if (turn == 8 && n == 0) inputs.back().top_k = 4;
    }
    const auto drawn = step(made, inputs, batch);
    for (size_t n = 0; n < count; ++n) last[n] = drawn[n].id;
    append(all, drawn);
  }
  return all;
}

void generation_matches(const Config& config, mempo_dtype dtype) {
  const Model model = make(config, false, MEMPO_KEEP_ALL, dtype);
  const Generated wanted = generate(model.get(), 9);
  const emulated::GPU gpu;
  const Generated found = generate(model.get(), 9);
  // In bfloat16 draws may fall to either side of a rounding.
  if (dtype == MEMPO_FLOAT32) EXPECT(found.ids == wanted.ids);
  const double tolerance = dtype == MEMPO_FLOAT32 ? 5e-5 : 0.1;
  for (size_t k = 0; k < wanted.ids.size() && found.ids[k] == wanted.ids[k]; ++k) EXPECT_NEAR(found.log_probs[k], wanted.log_probs[k], tolerance);
  EXPECT_EQUAL(found.ids[0], wanted.ids[0]);
}

// On a device that takes no graph the steps are run one by one.
void generation_without_graphs_matches(const Config& config) {
  namespace cuda = mempo::kernels::cuda;
  const Model model = make(config, false);
  const Generated wanted = generate(model.get(), 2);
  const emulated::GPU gpu;
  cuda::Kernels without = *mempo_cuda_kernels();
  static int tries;
  without.graphs.run_and_capture = [](void (*)(void*), void*, const void*) -> void* {
    ++tries;
    return nullptr;
  };
  cuda::install(&without, c10::DeviceType::CPU);
  EXPECT(generate(model.get(), 2).ids == wanted.ids);
  EXPECT_EQUAL(tries, 1);
}

void learning_matches(const Config& config) {
  const Model model = make(config), same = make(config);
  const Batch batch = random_batch(21, {9, 12, 4});
  const Scores wanted = score(model.get(), batch);
  const Columns columns(wanted, 22);
  mempo_loss_options options = plain_loss();
  options.kl_estimator = MEMPO_LOW_VAR_KL;
  options.kl_coef = 0.1;
  const mempo_loss_stats stats = add_gradient(model.get(), batch, columns, options);
  const emulated::GPU gpu;
  const Scores found = score(same.get(), batch);
  for (size_t k = 0; k < wanted.log_probs.size(); ++k) {
    EXPECT_NEAR(found.log_probs[k], wanted.log_probs[k], 2e-5);
    EXPECT_NEAR(found.entropies[k], wanted.entropies[k], 2e-5);
  }
  const mempo_loss_stats again = add_gradient(same.get(), batch, columns, options);
  EXPECT_NEAR(again.policy, stats.policy, 1e-6);
  EXPECT_NEAR(again.kl, stats.kl, 1e-6);
  EXPECT_NEAR(again.max_log_ratio, stats.max_log_ratio, 1e-4);
  EXPECT_EQUAL(again.clipped, stats.clipped);
  for (const Named& weight : weights_of(config.c)) {
    const auto a = read(model.get(), MEMPO_GRADIENT, weight), b = read(same.get(), MEMPO_GRADIENT, weight);
    for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(b[k], a[k], 2e-5);
  }
}

}  // namespace

int main() {
  generation_matches(qwen3(), MEMPO_FLOAT32);
  generation_matches(llama(), MEMPO_BFLOAT16);
  generation_without_graphs_matches(qwen2());
  learning_matches(qwen3());
  return failures();
}
