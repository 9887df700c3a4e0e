// Adapters: their gradients, what they add, and that nothing else is trained.
#include <ATen/ATen.h>

#include "slopes.h"
#include "transformer.h"

using namespace tiny;

namespace {

Config with_adapters(Config config, unsigned targets, int64_t rank = 3) {
  config.c.adapters = {rank, 1.5, targets};
  return config;
}

// Random numbers for A, and for B too unless it is to be zero, as it is at first.
Model make_adapted(const Config& config, bool random_up = true, mempo_checkpointing checkpointing = MEMPO_KEEP_ALL, mempo_dtype dtype = MEMPO_FLOAT32) {
  Model model = make(config, true, checkpointing, dtype);
  Random random{17};
  for (const Named& weight : adapters_of(config.c)) {
    const bool up = weight.name.find("lora_B") != std::string::npos;
    std::vector<float> values(static_cast<size_t>(weight.count));
    for (float& v : values) v = up && !random_up ? 0.0F : 0.3F * random.next();
    OK(mempo_model_write, model.get(), MEMPO_MASTER, weight.name.c_str(), values.data(), weight.count);
  }
  return model;
}

void same_bits(const std::vector<float>& found, const std::vector<float>& wanted) {
  EXPECT_EQUAL(found.size(), wanted.size());
  for (size_t k = 0; k < wanted.size(); ++k) EXPECT_EQUAL(found[k], wanted[k]);
}

Scores score_without(mempo_model* model, const Batch& b) {
  Scores s{std::vector<float>(b.positions.size()), std::vector<float>(b.positions.size())};
  OK(mempo_score, model, b.rows(), b.offsets.data(), b.ids.data(), b.count(), b.positions.data(), 1, 1, s.log_probs.data(), s.entropies.data());
  return s;
}

// Adapters whose B is zero, and adapters that are left out, give the model alone.
void adding_nothing_changes_nothing(const Config& config, mempo_dtype dtype) {
  const Batch b = random_batch(91, {9, 1, 30, 4});
  const Config adapted = with_adapters(config, MEMPO_ALL_PROJECTIONS);
  const Model plain = make(config, true, MEMPO_KEEP_ALL, dtype), zero = make_adapted(adapted, false, MEMPO_KEEP_ALL, dtype), random = make_adapted(adapted, true, MEMPO_KEEP_ALL, dtype);
  const Scores wanted = score(plain.get(), b);
  same_bits(score(zero.get(), b).log_probs, wanted.log_probs);
  same_bits(score(zero.get(), b).entropies, wanted.entropies);
  same_bits(score_without(random.get(), b).log_probs, wanted.log_probs);
  for (const mempo::Parameter* frozen : {random->embedding, random->head, random->layers[1].down.weight, random->layers[0].post_norm}) EXPECT(!frozen->master.defined());
  EXPECT(std::fabs(score(random.get(), b).log_probs[3] - wanted.log_probs[3]) > 1e-3);
}

// The same gradients whatever the backward pass computes again.
void checkpointing_changes_nothing(const Config& config, mempo_checkpointing checkpointing) {
  const Model plain = make_adapted(config), saving = make_adapted(config, true, checkpointing);
  const Batch b = random_batch(21, {9, 30, 4});
  const Columns columns(score(plain.get(), b), 22);
  add_gradient(plain.get(), b, columns);
  add_gradient(saving.get(), b, columns);
  for (const Named& weight : adapters_of(config.c)) same_bits(read(saving.get(), MEMPO_GRADIENT, weight), read(plain.get(), MEMPO_GRADIENT, weight));
}

// An update moves every adapter and no weight of the model; merged, the weights are those of the model as it computes.
void only_adapters_move(const Config& config) {
  const Model model = make_adapted(config), merged = make(config);
  const Batch b = random_batch(41, {9, 14});
  const Columns columns(score(model.get(), b), 42);
  std::vector<std::vector<float>> before;
  for (const Named& weight : weights_of(config.c)) before.push_back(read(model.get(), MEMPO_MASTER, weight));
  const Named first = adapters_of(config.c)[0];
  const std::vector<float> start = read(model.get(), MEMPO_MASTER, first);
  const mempo_update_options options{1e-2, 0.9, 0.999, 1e-8, 0.1, 0.01};
  double norm = 0;
  int skipped = 0;
  add_gradient(model.get(), b, columns);
  const auto& sums = model->weights.gradients().sums();
  const auto made = std::count_if(sums.begin(), sums.end(), [](const at::Tensor& sum) { return sum.defined(); });
  EXPECT_EQUAL(static_cast<size_t>(made), model->weights.trained().size());
  OK(mempo_update, model.get(), &options, &norm, &skipped);
  EXPECT(skipped == 0 && norm > 0.01);  // the gradient is clipped, and only where there is one
  size_t n = 0;
  for (const Named& weight : weights_of(config.c)) {
    same_bits(read(model.get(), MEMPO_MASTER, weight), before[n++]);
    for (float v : read(model.get(), MEMPO_SECOND_MOMENT, weight)) EXPECT_EQUAL(v, 0.0F);
    const std::vector<float> values = read(model.get(), MEMPO_MERGED, weight);
    OK(mempo_model_write, merged.get(), MEMPO_MASTER, weight.name.c_str(), values.data(), weight.count);
  }
  EXPECT(std::fabs(read(model.get(), MEMPO_MASTER, first)[0] - start[0]) > 1e-3);
  const Scores found = score_without(merged.get(), b), wanted = score(model.get(), b);
  for (size_t k = 0; k < wanted.log_probs.size(); ++k) EXPECT_NEAR(found.log_probs[k], wanted.log_probs[k], 2e-5);
}

// The adapters of stacked projections, of which one has none: by the formula in float64, beside the weight and
// merged into it.
void adapters_add_to_their_rows() {
  mempo::Weights weights(at::kCPU, at::kFloat, true);
  const mempo::Projection p = mempo::add_projection(weights, {{"first", 40, MEMPO_Q_PROJ}, {"second", 24, MEMPO_K_PROJ}, {"third", 8, MEMPO_V_PROJ}}, 32, true, {3, 1.5, MEMPO_K_PROJ | MEMPO_V_PROJ});
  for (const mempo::Parameter* one : {p.weight, p.bias, p.adapter.down, p.adapter.parts[0].up, p.adapter.parts[1].up}) one->weight.copy_(at::randn_like(one->weight));
  EXPECT_EQUAL(weights.trained().size(), size_t{3});
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
  const auto rows = [&](const std::string& name) { return wide(weights.view(MEMPO_MASTER, name)); };
  for (const int64_t tokens : {1, 7, 40}) {
    const at::Tensor x = at::randn({tokens, 32});
    at::Tensor wanted = at::mm(wide(x), wide(p.weight->weight).t()).add_(wide(p.bias->weight));
    wanted.narrow(1, 40, 24).add_(at::mm(at::mm(wide(x), rows("second.lora_A.weight").t()), rows("second.lora_B.weight").t()), 1.5);
    wanted.narrow(1, 64, 8).add_(at::mm(at::mm(wide(x), rows("third.lora_A.weight").t()), rows("third.lora_B.weight").t()), 1.5);
    mempo::PackedBatch batch;
    EXPECT_NEAR(wide(mempo::project(batch, x, p)).sub(wanted).abs().max().item<double>(), 0, 1e-4);
    batch.adapters = false;
    EXPECT(wide(mempo::project(batch, x, p)).sub(wanted).abs().max().item<double>() > 1);
    const at::Tensor merged = at::mm(wide(x), wide(mempo::merged_weight(p)).t()).add_(wide(p.bias->weight));
    EXPECT_NEAR(merged.sub(wanted).abs().max().item<double>(), 0, 1e-4);
  }
}

void wrong_adapters_are_refused() {
  mempo_model* made = nullptr;
  Config config = with_adapters(qwen2(), 0);
  FAILS(MEMPO_INVALID, "targets", mempo_model_new, config.get(), "cpu", &made);
  config.c.adapters.targets = 128;
  FAILS(MEMPO_INVALID, "targets", mempo_model_new, config.get(), "cpu", &made);
  config.c.adapters = {-1, 1, MEMPO_Q_PROJ};
  FAILS(MEMPO_INVALID, "rank", mempo_model_new, config.get(), "cpu", &made);
  config.c.adapters = {1, std::nan(""), MEMPO_Q_PROJ};
  FAILS(MEMPO_INVALID, "scale", mempo_model_new, config.get(), "cpu", &made);

  const Model model = make_adapted(with_adapters(qwen2(), MEMPO_V_PROJ));
  const std::vector<float> values(24);
  FAILS(MEMPO_INVALID, "not trained", mempo_model_write, model.get(), MEMPO_FIRST_MOMENT, "model.norm.weight", values.data(), 24);
  FAILS(MEMPO_INVALID, "kind", mempo_model_write, model.get(), MEMPO_MERGED, "model.layers.0.self_attn.v_proj.lora_A.weight", values.data(), 72);
  std::vector<float> out(72);
  FAILS(MEMPO_INVALID, "no tensor", mempo_model_read, model.get(), MEMPO_MASTER, "model.layers.0.self_attn.q_proj.lora_A.weight", out.data(), 72);
}

}  // namespace

int main() {
  mempo_error error{};
  mempo_runtime_init(1, &error);
  for (const Config& config : {qwen2(), qwen3(), llama()}) {
    for (const unsigned targets : {unsigned{MEMPO_ALL_PROJECTIONS}, unsigned{MEMPO_K_PROJ | MEMPO_UP_PROJ}}) {
      const Config adapted = with_adapters(config, targets);
      for (const mempo_loss_options& options : {plain_loss(), likelihood()}) gradients_are_slopes(make_adapted(adapted).get(), adapters_of(adapted.c), options);
      only_adapters_move(adapted);
    }
    for (const mempo_dtype dtype : {MEMPO_FLOAT32, MEMPO_BFLOAT16}) adding_nothing_changes_nothing(config, dtype);
    for (const mempo_checkpointing checkpointing : {MEMPO_RECOMPUTE_MLP, MEMPO_RECOMPUTE_LAYER}) checkpointing_changes_nothing(with_adapters(config, MEMPO_ALL_PROJECTIONS), checkpointing);
  }
  adapters_add_to_their_rows();
  wrong_adapters_are_refused();
  EXPECT_EQUAL(mempo_live_handles(), 0);
  return failures();
}
