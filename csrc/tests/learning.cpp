// Gradients, updates and what is left when memory runs out.
#include "slopes.h"

using namespace tiny;

// Allocations above this size fail, so that running out of memory can be seen; freed memory is not held back.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() { return "max_allocation_size_mb=8:allocator_may_return_null=1:quarantine_size_mb=1"; }

namespace {

std::vector<std::vector<float>> all(mempo_model* model, const mempo_model_config& c, mempo_kind kind) {
  std::vector<std::vector<float>> values;
  for (const Named& weight : weights_of(c)) values.push_back(read(model, kind, weight));
  return values;
}

float largest(const std::vector<std::vector<float>>& values) {
  float most = 0;
  for (const auto& tensor : values) {
    for (float v : tensor) most = std::max(most, std::fabs(v));
  }
  return most;
}

void check_same(const std::vector<std::vector<float>>& found, const std::vector<std::vector<float>>& wanted, double tolerance) {
  for (size_t n = 0; n < wanted.size(); ++n) {
    for (size_t k = 0; k < wanted[n].size(); ++k) EXPECT_NEAR(found[n][k], wanted[n][k], tolerance);
  }
}

void checkpointing_changes_nothing(const Config& config, mempo_checkpointing checkpointing) {
  const Model plain = make(config), saving = make(config, true, checkpointing);
  const Batch b = random_batch(21, {9, 30, 4});
  const Columns columns(score(plain.get(), b), 22);
  mempo_loss_options options = plain_loss();
  options.kl_estimator = MEMPO_LOW_VAR_KL;
  options.kl_coef = 0.1;
  const mempo_loss_stats a = add_gradient(plain.get(), b, columns, options), c = add_gradient(saving.get(), b, columns, options);
  EXPECT_EQUAL(a.policy, c.policy);
  EXPECT_EQUAL(a.kl, c.kl);
  const auto wanted = all(plain.get(), config.c, MEMPO_GRADIENT);
  EXPECT(largest(wanted) > 1e-3);
  check_same(all(saving.get(), config.c, MEMPO_GRADIENT), wanted, 0);
}

// Two micro-batches add up to the whole; a gradient that was dropped leaves nothing behind.
void gradients_add_up(const Config& config, mempo_checkpointing checkpointing) {
  const Model whole = make(config, true, checkpointing), split = make(config, true, checkpointing);
  const Batch both = random_batch(31, {9, 14});
  const Columns columns(score(whole.get(), both), 32);
  add_gradient(whole.get(), both, columns);
  add_gradient(split.get(), both, columns);
  OK(mempo_drop_gradient, split.get());
  EXPECT_EQUAL(largest(all(split.get(), config.c, MEMPO_GRADIENT)), 0.0F);
  size_t done = 0;
  for (size_t r = 0; r < 2; ++r) {
    Batch one;
    one.add({both.ids.begin() + both.offsets[r], both.ids.begin() + both.offsets[r + 1]});
    const size_t end = done + one.positions.size();
    Columns part = columns;
    for (auto* column : {&part.old, &part.ref, &part.advantages, &part.weights}) *column = {column->begin() + done, column->begin() + end};
    add_gradient(split.get(), one, part);
    done = end;
  }
  check_same(all(split.get(), config.c, MEMPO_GRADIENT), all(whole.get(), config.c, MEMPO_GRADIENT), 1e-6);
}

// A gradient that is not finite is dropped: weights, moments and count stay.
void broken_gradients_are_skipped() {
  const Config config = qwen2();
  const Model model = make(config);
  const Batch b = random_batch(41, {9, 14});
  Columns columns(score(model.get(), b), 42);
  const mempo_update_options options{1e-2, 0.9, 0.999, 1e-8, 0.1, 1};
  double norm = 0;
  int skipped = 0;
  add_gradient(model.get(), b, columns);
  OK(mempo_update, model.get(), &options, &norm, &skipped);
  EXPECT(skipped == 0 && norm > 0);
  EXPECT_EQUAL(mempo_model_update_count(model.get()), 1);
  EXPECT_EQUAL(largest(all(model.get(), config.c, MEMPO_GRADIENT)), 0.0F);

  const mempo_kind kinds[] = {MEMPO_MASTER, MEMPO_FIRST_MOMENT, MEMPO_SECOND_MOMENT};
  std::vector<std::vector<std::vector<float>>> before;
  for (mempo_kind kind : kinds) before.push_back(all(model.get(), config.c, kind));
  columns.advantages[5] = std::nanf("");
  add_gradient(model.get(), b, columns);
  OK(mempo_update, model.get(), &options, &norm, &skipped);
  EXPECT_EQUAL(skipped, 1);
  EXPECT_EQUAL(mempo_model_update_count(model.get()), 1);
  for (size_t n = 0; n < 3; ++n) check_same(all(model.get(), config.c, kinds[n]), before[n], 0);
  EXPECT_EQUAL(largest(all(model.get(), config.c, MEMPO_GRADIENT)), 0.0F);
}

int64_t resident() {
  int64_t current = 0, peak = 0;
  OK(mempo_memory, "cpu", &current, &peak);
  return current;
}

// A forward pass whose backward pass never runs frees what it kept.
void failed_forward_passes_leak_nothing(mempo_checkpointing checkpointing) {
  const Model model = make(qwen3(), true, checkpointing);
  const Batch b = random_batch(51, {200, 150});
  const Columns columns(score(model.get(), b), 52);
  mempo_loss_options unknown = plain_loss();
  unknown.kl_estimator = static_cast<mempo_kl_estimator>(9);
  mempo_loss_stats stats{};
  int64_t before = 0;
  for (int n = 0; n < 60; ++n) {
    if (n == 20) before = resident();
    FAILS(MEMPO_INVALID, "KL", add_gradient, model.get(), b, columns, unknown, &stats);
  }
  EXPECT(resident() - before < int64_t{8} << 20);
}

// One row of a step finds no memory: no row has moved, and smaller steps go on.
void out_of_memory_while_generating() {
  const Model model = make(Config(64), false);
  mempo_session* made = nullptr;
  OK(mempo_session_new, model.get(), nullptr, 0, 1024, 0, &made);
  const Session s(made);
  int64_t rows[2] = {0, 0};
  for (int64_t& row : rows) OK(mempo_session_open, s.get(), &row);
  const Batch first = random_batch(71, {5, 900}), second = random_batch(72, {3, 1200});
  const mempo_row_input quiet[] = {{rows[0], 0, 1, 1, 0, 0}, {rows[1], 0, 1, 1, 0, 0}};
  mempo_sampled out[2];
  OK(mempo_session_step, s.get(), 2, quiet, first.offsets.data(), first.ids.data(), out);
  FAILS(MEMPO_OUT_OF_MEMORY, "cache is full", mempo_session_step, s.get(), 2, quiet, second.offsets.data(), second.ids.data(), out);
  const mempo_row_input greedy{rows[0], 1, 0, 1, 0, 0};
  OK(mempo_session_step, s.get(), 1, &greedy, second.offsets.data(), second.ids.data(), out);
  Batch whole;
  std::vector<int32_t> ids(first.ids.begin(), first.ids.begin() + 5);
  ids.insert(ids.end(), second.ids.begin(), second.ids.begin() + 3);
  ids.push_back(out[0].id);
  whole.add(ids);
  EXPECT_NEAR(out[0].log_prob, score(model.get(), whole).log_probs.back(), 5e-5);
}

void learns_in_bfloat16() {
  const Model model = make(qwen3(), true, MEMPO_KEEP_ALL, MEMPO_BFLOAT16);
  const Batch b = random_batch(81, {12, 12});
  const double before = score(model.get(), b).log_probs[3];
  const mempo_update_options options{1e-3, 0.9, 0.999, 1e-8, 0, 1};
  for (int n = 0; n < 20; ++n) {
    Columns columns(score(model.get(), b), 82);
    std::fill(columns.advantages.begin(), columns.advantages.end(), 1.0F);
    add_gradient(model.get(), b, columns);
    double norm = 0;
    int skipped = 0;
    OK(mempo_update, model.get(), &options, &norm, &skipped);
  }
  EXPECT(score(model.get(), b).log_probs[3] > before + 0.1);
}

}  // namespace

int main() {
  mempo_error error{};
  mempo_runtime_init(1, &error);
  for (const Config& config : {qwen2(), qwen3(), llama()}) {
    for (const mempo_loss_options& options : {plain_loss(), likelihood()}) gradients_are_slopes(make(config).get(), weights_of(config.c), options);
    for (mempo_checkpointing checkpointing : {MEMPO_RECOMPUTE_MLP, MEMPO_RECOMPUTE_LAYER}) checkpointing_changes_nothing(config, checkpointing);
  }
  for (mempo_checkpointing checkpointing : {MEMPO_KEEP_ALL, MEMPO_RECOMPUTE_MLP, MEMPO_RECOMPUTE_LAYER}) {
    gradients_add_up(qwen2(), checkpointing);
    failed_forward_passes_leak_nothing(checkpointing);
  }
  out_of_memory_while_generating();
  broken_gradients_are_skipped();
  learns_in_bfloat16();
  EXPECT_EQUAL(mempo_live_handles(), 0);
  return failures();
}
