// An encoder's vectors do not depend on what lies beside a row; every wrong argument is a code and one line of text.
#include <ATen/ATen.h>

#include "tiny.h"

using namespace tiny;

namespace {

struct FreeEncoder {
  void operator()(mempo_encoder* e) const { mempo_encoder_free(e); }
};
using Encoder = std::unique_ptr<mempo_encoder, FreeEncoder>;

constexpr int64_t kHidden = 12;

mempo_encoder_config tiny_config() {
  mempo_encoder_config c{};
  c.vocab = 37, c.hidden = kHidden, c.intermediate = 20, c.layers = 2, c.heads = 3, c.positions = 16, c.token_types = 2;
  c.layer_norm_eps = 1e-12;
  c.normalize = 1;
  c.groups = 1;
  return c;
}

void set(mempo_encoder* encoder, Random& random, const std::string& name, std::vector<int64_t> shape) {
  at::Tensor values = at::empty(shape);
  float* data = values.data_ptr<float>();
  const bool scale = name.find("LayerNorm.weight") != std::string::npos;
  for (int64_t k = 0; k < values.numel(); ++k) data[k] = scale ? 1.0F + 0.3F * random.next() : 0.5F * random.next();
  OK(mempo_encoder_set_weight, encoder, name.c_str(), &values);
}

Encoder make_encoder(const mempo_encoder_config& c) {
  mempo_encoder* made = nullptr;
  OK(mempo_encoder_new, &c, "cpu", &made);
  Random random{5};
  const auto affine = [&](const std::string& name, int64_t out, int64_t in) {
    set(made, random, name + ".weight", in > 0 ? std::vector<int64_t>{out, in} : std::vector<int64_t>{out});
    set(made, random, name + ".bias", {out});
  };
  set(made, random, "embeddings.word_embeddings.weight", {c.vocab, c.hidden});
  set(made, random, "embeddings.position_embeddings.weight", {c.positions, c.hidden});
  set(made, random, "embeddings.token_type_embeddings.weight", {c.token_types, c.hidden});
  affine("embeddings.LayerNorm", c.hidden, 0);
  for (int64_t n = 0; n < c.layers; ++n) {
    const std::string layer = "encoder.layer." + std::to_string(n) + ".";
    for (const char* name : {"self.query", "self.key", "self.value", "output.dense"}) affine(layer + "attention." + name, c.hidden, c.hidden);
    affine(layer + "attention.output.LayerNorm", c.hidden, 0);
    affine(layer + "intermediate.dense", c.intermediate, c.hidden);
    affine(layer + "output.dense", c.hidden, c.intermediate);
    affine(layer + "output.LayerNorm", c.hidden, 0);
  }
  return Encoder(made);
}

std::vector<float> encode(mempo_encoder* encoder, const Batch& b) {
  std::vector<float> out(static_cast<size_t>(b.rows() * kHidden));
  OK(mempo_encoder_encode, encoder, b.rows(), b.offsets.data(), b.ids.data(), out.data());
  return out;
}

void rows_alone() {
  const std::vector<int64_t> lengths{1, 3, 3, 3, 16, 2, 7, 7, 1};
  const Batch all = random_batch(9, lengths);
  for (const mempo_activation activation : {MEMPO_GELU, MEMPO_GELU_TANH, MEMPO_RELU}) {
    for (const mempo_pooling pooling : {MEMPO_POOL_MEAN, MEMPO_POOL_FIRST}) {
      for (const int64_t groups : {1, 2, 20}) {
        mempo_encoder_config c = tiny_config();
        c.activation = activation, c.pooling = pooling, c.groups = groups;
        const Encoder encoder = make_encoder(c);
        const std::vector<float> together = encode(encoder.get(), all);
        for (int64_t r = 0; r < all.rows(); ++r) {
          Batch alone;
          alone.add({all.ids.begin() + all.offsets[r], all.ids.begin() + all.offsets[r + 1]});
          const std::vector<float> one = encode(encoder.get(), alone);
          float squares = 0;
          for (int64_t k = 0; k < kHidden; ++k) {
            EXPECT_NEAR(together[static_cast<size_t>(r * kHidden + k)], one[static_cast<size_t>(k)], 1e-6);
            squares += one[static_cast<size_t>(k)] * one[static_cast<size_t>(k)];
          }
          EXPECT_NEAR(squares, 1.0F, 1e-5);
        }
      }
    }
  }
}

void bfloat16() {
  mempo_encoder_config c = tiny_config();
  const Batch rows = random_batch(2, {4, 9});
  const std::vector<float> wide = encode(make_encoder(c).get(), rows);
  c.compute_dtype = MEMPO_BFLOAT16;
  const std::vector<float> narrow = encode(make_encoder(c).get(), rows);
  for (size_t k = 0; k < wide.size(); ++k) EXPECT_NEAR(narrow[k], wide[k], 0.03);
}

void configs() {
  const auto refused = [](const char* part, void (*change)(mempo_encoder_config&), const char* device = "cpu") {
    mempo_encoder_config c = tiny_config();
    change(c);
    mempo_encoder* made = nullptr;
    FAILS(MEMPO_INVALID, part, mempo_encoder_new, &c, device, &made);
    EXPECT(made == nullptr);
  };
  refused("vocab", [](mempo_encoder_config& c) { c.vocab = 0; });
  refused("layers", [](mempo_encoder_config& c) { c.layers = -1; });
  refused("multiple of heads", [](mempo_encoder_config& c) { c.heads = 5; });
  refused("positions", [](mempo_encoder_config& c) { c.positions = 0; });
  refused("groups", [](mempo_encoder_config& c) { c.groups = 0; });
  refused("layer_norm_eps", [](mempo_encoder_config& c) { c.layer_norm_eps = std::nan(""); });
  refused("activation", [](mempo_encoder_config& c) { c.activation = static_cast<mempo_activation>(3); });
  refused("pooling", [](mempo_encoder_config& c) { c.pooling = static_cast<mempo_pooling>(2); });
  refused("compute_dtype", [](mempo_encoder_config& c) { c.compute_dtype = static_cast<mempo_dtype>(2); });
  refused("device", [](mempo_encoder_config&) {}, "banana");
  mempo_encoder* made = nullptr;
  FAILS(MEMPO_INVALID, "null", mempo_encoder_new, nullptr, "cpu", &made);
}

void calls() {
  const Encoder encoder = make_encoder(tiny_config());
  std::vector<float> out(100);
  const auto fails = [&](const char* part, mempo_encoder* e, const std::vector<int64_t>& offsets, const std::vector<int32_t>& ids) {
    FAILS(MEMPO_INVALID, part, mempo_encoder_encode, e, static_cast<int64_t>(offsets.size()) - 1, offsets.data(), ids.data(), out.data());
  };
  fails("null", nullptr, {0, 1}, {1});
  fails("row", encoder.get(), {0}, {});
  fails("empty", encoder.get(), {0, 1, 1}, {1});
  fails("token id 37", encoder.get(), {0, 2}, {1, 37});
  fails("17 tokens", encoder.get(), {0, 17}, std::vector<int32_t>(17, 1));
  const at::Tensor wrong = at::ones({3, 3});
  FAILS(MEMPO_INVALID, "[3, 3] given", mempo_encoder_set_weight, encoder.get(), "encoder.layer.1.attention.self.key.weight", &wrong);
  FAILS(MEMPO_INVALID, "no tensor named pooler", mempo_encoder_set_weight, encoder.get(), "pooler.dense.weight", &wrong);
  FAILS(MEMPO_INVALID, "null", mempo_encoder_set_weight, nullptr, "x", &wrong);
  FAILS(MEMPO_INVALID, "null", mempo_encoder_set_weight, encoder.get(), "x", nullptr);
  mempo_encoder_free(nullptr);
}

}  // namespace

int main() {
  mempo_error error{};
  mempo_runtime_init(2, &error);
  rows_alone();
  bfloat16();
  configs();
  calls();
  EXPECT_EQUAL(mempo_live_handles(), 0);
  return failures();
}
