// Memory that runs out at any allocation of a call: each is an error of its own code, and nothing of the call stays.
#include <c10/core/CPUAllocator.h>

#include <new>

#include "tiny.h"

using namespace tiny;

namespace {

// libtorch's own allocator, which finds no memory after so many allocations.
class Failing final : public c10::Allocator {
 public:
  explicit Failing(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (left == 0) throw std::bad_alloc();
    if (left > 0) --left;
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { inner_->copy_data(to, from, bytes); }

  int left = -1;  // -1: no end

 private:
  c10::Allocator* inner_;
};

Failing& allocator() {
  static Failing failing(c10::GetCPUAllocator());
  return failing;
}

// Runs a call again and again, each time with memory for one allocation more, until it succeeds; `failed` runs after
// each failure. Returns how often it failed.
template <typename Call, typename After>
int until_enough(const Call& call, const After& failed) {
  for (int allocations = 0; allocations < 2000; ++allocations) {
    mempo_error error{};
    allocator().left = allocations;
    const int code = call(&error);
    allocator().left = -1;
    if (code == MEMPO_OK) return allocations;
    if (code != MEMPO_OUT_OF_MEMORY || std::strcmp(error.message, "out of memory") != 0) {
      report(__FILE__, __LINE__, "code " + std::to_string(code) + " after " + std::to_string(allocations) + " allocations: " + error.message);
    }
    failed();
  }
  report(__FILE__, __LINE__, "the call never succeeds");
  return 0;
}

void check_same(mempo_model* found, mempo_model* wanted, const mempo_model_config& c, mempo_kind kind) {
  for (const Named& weight : weights_of(c)) {
    const std::vector<float> a = read(found, kind, weight), b = read(wanted, kind, weight);
    if (a != b) report(__FILE__, __LINE__, weight.name + " differs in kind " + std::to_string(kind));
  }
}

void model_is_made_or_not() {
  Config config = qwen3();
  config.c.trainable = 1;
  mempo_model* made = nullptr;
  const auto call = [&](mempo_error* error) { return mempo_model_new(config.get(), "cpu", &made, error); };
  EXPECT(until_enough(call, [&] { EXPECT(made == nullptr && mempo_live_handles() == 0); }) > 10);
  mempo_model_free(made);
}

void learning(mempo_checkpointing checkpointing, bool optimizer_on_host = false) {
  Config config = qwen2();
  config.c.optimizer_on_host = optimizer_on_host;
  const Model model = make(config, true, checkpointing), calm = make(config, true, checkpointing);
  const Batch b = random_batch(1, {5, 1, 7});
  const Columns columns(score(model.get(), b), 2);
  const mempo_loss_inputs inputs = columns.get();
  mempo_loss_options options = plain_loss();
  options.kl_estimator = MEMPO_LOW_VAR_KL;
  options.kl_coef = 0.1;
  mempo_loss_stats stats{};
  const auto gradient = [&](mempo_model* m, mempo_error* error) {
    return mempo_forward_backward(m, b.rows(), b.offsets.data(), b.ids.data(), b.parents.data(), b.starts.data(), b.group_count(), b.groups.data(), b.count(), b.positions.data(), &inputs, &options, &stats,
                                  error);
  };
  const auto call = [&](mempo_error* error) { return gradient(model.get(), error); };
  EXPECT(until_enough(call, [&] { OK(mempo_drop_gradient, model.get()); }) > 50);
  OK(gradient, calm.get());
  check_same(model.get(), calm.get(), config.c, MEMPO_GRADIENT);

  const mempo_update_options update{1e-2, 0.9, 0.999, 1e-8, 0.1, 0.5};
  double norm[2] = {0, 0};
  int skipped = 0;
  const auto step = [&](mempo_error* error) { return mempo_update(model.get(), &update, &norm[0], &skipped, error); };
  EXPECT(until_enough(step, [&] { EXPECT_EQUAL(mempo_model_update_count(model.get()), 0); }) > 5);
  OK(mempo_update, calm.get(), &update, &norm[1], &skipped);
  EXPECT_EQUAL(norm[0], norm[1]);
  for (mempo_kind kind : {MEMPO_MASTER, MEMPO_FIRST_MOMENT, MEMPO_SECOND_MOMENT}) check_same(model.get(), calm.get(), config.c, kind);
}

void generating() {
  const Model model = make(qwen3(), false);
  const Batch prompts = random_batch(3, {250, 6}), more = random_batch(4, {9, 2});
  mempo_sampled drawn[2][2] = {}, unused[2];
  for (int memory_fails = 0; memory_fails < 2; ++memory_fails) {
    mempo_session* made = nullptr;
    OK(mempo_session_new, model.get(), nullptr, 0, 0, 0, &made);
    const Session s(made);
    mempo_row_input inputs[2] = {{0, 0, 1, 0.9, 5, 7}, {0, 0, 1, 1, 0, 8}};
    for (auto& input : inputs) OK(mempo_session_open, s.get(), &input.row);
    OK(mempo_session_step, s.get(), 2, inputs, prompts.offsets.data(), prompts.ids.data(), unused);
    inputs[0].sample = inputs[1].sample = 1;
    const auto step = [&](mempo_error* error) {
      return mempo_session_step(s.get(), 2, inputs, more.offsets.data(), more.ids.data(), drawn[memory_fails], error);
    };
    if (memory_fails == 0) {
      OK(mempo_session_step, s.get(), 2, inputs, more.offsets.data(), more.ids.data(), drawn[0]);
      continue;
    }
    EXPECT(until_enough(step, [] {}) > 30);
    int64_t copied = -1;
    const auto fork = [&](mempo_error* error) { return mempo_session_fork(s.get(), inputs[0].row, 259, &copied, error); };
    EXPECT(until_enough(fork, [&] { EXPECT_EQUAL(copied, -1); }) > 0);
  }
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQUAL(drawn[1][k].id, drawn[0][k].id);
    EXPECT_EQUAL(drawn[1][k].log_prob, drawn[0][k].log_prob);
  }
}

void scoring() {
  const Model model = make(llama(), false);
  const Batch b = random_batch(5, {8, 3});
  const Scores wanted = score(model.get(), b);
  Scores found = wanted;
  const auto call = [&](mempo_error* error) {
    return mempo_score(model.get(), b.rows(), b.offsets.data(), b.ids.data(), b.count(), b.positions.data(), 1, 0, found.log_probs.data(),
                       found.entropies.data(), error);
  };
  EXPECT(until_enough(call, [] {}) > 20);
  EXPECT(found.log_probs == wanted.log_probs && found.entropies == wanted.entropies);
}

}  // namespace

int main() {
  mempo_error error{};
  mempo_runtime_init(1, &error);
  c10::SetCPUAllocator(&allocator(), 200);
  model_is_made_or_not();
  for (mempo_checkpointing checkpointing : {MEMPO_KEEP_ALL, MEMPO_RECOMPUTE_MLP, MEMPO_RECOMPUTE_LAYER}) learning(checkpointing);
  learning(MEMPO_KEEP_ALL, true);
  generating();
  scoring();
  EXPECT_EQUAL(mempo_live_handles(), 0);
  return failures();
}
