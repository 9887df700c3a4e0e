// Masters and moments in the host's memory: the same bits as on the device. Here the device is the host, too.
#include <ATen/ATen.h>

#include "optimizer.h"
#include "slopes.h"
#include "transformer.h"

using namespace tiny;

namespace {

std::vector<Named> trained_of(const mempo_model_config& c) { return c.adapters.rank > 0 ? adapters_of(c) : weights_of(c); }

void update(mempo_model* model, const mempo_update_options& options, double* norm, int* skipped) {
  OK(mempo_update, model, &options, norm, skipped);
}

// Several updates of a model and of one with its optimiser on the host, clipped and not, one of them skipped.
void updates_are_the_same(Config config, mempo_dtype dtype) {
  config.c.optimizer_on_host = 0;
  const Model plain = make(config, true, MEMPO_KEEP_ALL, dtype);
  config.c.optimizer_on_host = 1;
  const Model on_host = make(config, true, MEMPO_KEEP_ALL, dtype);
  Random random{3};
  for (const Named& weight : trained_of(config.c)) {
    if (config.c.adapters.rank == 0) break;
    std::vector<float> values(static_cast<size_t>(weight.count));
    for (float& v : values) v = 0.3F * random.next();
    for (mempo_model* m : {plain.get(), on_host.get()}) OK(mempo_model_write, m, MEMPO_MASTER, weight.name.c_str(), values.data(), weight.count);
  }
  const Batch b = random_batch(61, {9, 1, 14});
  const std::vector<float> before = read(plain.get(), MEMPO_MASTER, trained_of(config.c)[0]);
  for (int n = 0; n < 4; ++n) {
    const double clip = n % 2 == 0 ? 1e-3 : 0;
    const mempo_update_options options{1e-2, 0.9, 0.999, 1e-8, 0.1, clip};
    const Columns columns(score(plain.get(), b), 62 + static_cast<uint64_t>(n));
    double norms[2];
    int skipped[2];
    size_t k = 0;
    for (mempo_model* m : {plain.get(), on_host.get()}) {
      add_gradient(m, b, columns);
      if (n == 2) m->weights.gradients().of(*m->weights.trained()[0]).fill_(INFINITY);
      update(m, options, &norms[k], &skipped[k]);
      ++k;
    }
    EXPECT(n == 2 || norms[0] == norms[1]);
    EXPECT(skipped[0] == (n == 2 ? 1 : 0) && skipped[1] == skipped[0]);
  }
  EXPECT_EQUAL(mempo_model_update_count(on_host.get()), mempo_model_update_count(plain.get()));
  for (mempo_kind kind : {MEMPO_MASTER, MEMPO_FIRST_MOMENT, MEMPO_SECOND_MOMENT}) {
    for (const Named& weight : trained_of(config.c)) EXPECT(read(on_host.get(), kind, weight) == read(plain.get(), kind, weight));
  }
  for (const Named& weight : weights_of(config.c)) EXPECT(read(on_host.get(), MEMPO_MERGED, weight) == read(plain.get(), MEMPO_MERGED, weight));
  EXPECT(read(plain.get(), MEMPO_MASTER, trained_of(config.c)[0]) != before);
  EXPECT(score(on_host.get(), b).log_probs == score(plain.get(), b).log_probs);
  for (const mempo::Parameter* p : on_host->weights.trained()) EXPECT(!p->master.is_alias_of(p->weight));
}

mempo::Parameter random_parameter(size_t index, at::IntArrayRef shape, at::ScalarType dtype) {
  mempo::Parameter p;
  p.index = index;
  p.master = at::randn(shape);
  p.weight = p.master.to(dtype, /*non_blocking=*/false, /*copy=*/true);
  p.first_moment = at::randn(shape);
  p.second_moment = at::rand(shape);
  return p;
}

// Pieces that end within tensors and at their ends give what one call of AdamW over each whole tensor does.
void pieces_are_the_whole(at::ScalarType dtype) {
  const std::vector<std::vector<int64_t>> shapes{{64}, {100, 3}, {7}, {128}, {1}, {33, 65}, {63}};
  std::vector<mempo::Parameter> cut, whole;
  mempo::Gradients gradients(shapes.size());
  for (size_t n = 0; n < shapes.size(); ++n) {
    cut.push_back(random_parameter(n, shapes[n], dtype));
    mempo::Parameter copy = cut.back();
    for (at::Tensor* t : {&copy.weight, &copy.master, &copy.first_moment, &copy.second_moment}) *t = t->clone();
    whole.push_back(copy);
    gradients.of(cut.back()).copy_(at::randn(shapes[n]));
  }
  const mempo_update_options o{1e-2, 0.9, 0.99, 1e-8, 0.1, 0};
  std::vector<mempo::Parameter*> all;
  for (mempo::Parameter& p : cut) all.push_back(&p);
  mempo::HostStep(at::kCPU, all, gradients, 5, 64).run(o);
  for (size_t n = 0; n < shapes.size(); ++n) {
    mempo::Parameter& p = whole[n];
    at::_fused_adamw_({p.master}, {gradients.of(p)}, {p.first_moment}, {p.second_moment}, {}, {at::scalar_tensor(5.0F)}, o.learning_rate, o.beta1, o.beta2,
                      o.weight_decay, o.eps, false, false);
    EXPECT(at::equal(cut[n].master, p.master) && at::equal(cut[n].first_moment, p.first_moment) && at::equal(cut[n].second_moment, p.second_moment));
    EXPECT(at::equal(cut[n].weight, p.master.to(dtype)));
  }
}

}  // namespace

int main() {
  mempo_error error{};
  mempo_runtime_init(1, &error);
  for (const Config& config : {qwen2(), qwen3(), llama()}) {
    for (const mempo_dtype dtype : {MEMPO_FLOAT32, MEMPO_BFLOAT16}) {
      updates_are_the_same(config, dtype);
      Config adapted = config;
      adapted.c.adapters = {3, 1.5, MEMPO_ALL_PROJECTIONS};
      updates_are_the_same(adapted, dtype);
    }
  }
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) pieces_are_the_whole(dtype);
  EXPECT_EQUAL(mempo_live_handles(), 0);
  return failures();
}
