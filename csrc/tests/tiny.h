// Tiny random models and batches for the tests, made through the C API alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "mempo.h"

namespace tiny {

// A named weight and its number of elements.
struct Named {
  std::string name;
  int64_t count;
};

// A config together with the memory that it points to.
struct Config {
  mempo_model_config c{};
  std::vector<float> frequencies;

  explicit Config(int64_t head_dim = 8) {
    c.vocab = 37;
    c.hidden = 24;
    c.intermediate = 20;
    c.layers = 2;
    c.heads = 4;
    c.kv_heads = 2;
    c.head_dim = head_dim;
    c.rms_norm_eps = 1e-6;
    c.groups = 1;
    for (int64_t k = 0; k < head_dim / 2; ++k) frequencies.push_back(std::pow(10000.0F, -2.0F * k / head_dim));
  }

  const mempo_model_config* get() {
    c.inverse_frequencies = frequencies.data();
    return &c;
  }
};

inline Config qwen2() {
  Config config(6);  // head_dim = hidden / heads
  config.c.qkv_bias = config.c.tied_embeddings = 1;
  return config;
}

inline Config qwen3() {
  Config config(16);  // wider than hidden / heads
  config.c.qk_norm = 1;
  return config;
}

inline Config llama() {
  Config config(8);
  config.c.kv_heads = 4;
  config.c.output_bias = config.c.mlp_bias = config.c.qkv_bias = 1;
  return config;
}

inline std::vector<Named> weights_of(const mempo_model_config& c) {
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  std::vector<Named> all{{"model.embed_tokens.weight", c.vocab * c.hidden}, {"model.norm.weight", c.hidden}};
  const auto add = [&](bool present, const std::string& name, int64_t count) {
    if (present) all.push_back({name, count});
  };
  for (int64_t n = 0; n < c.layers; ++n) {
    const std::string layer = "model.layers." + std::to_string(n) + ".", attn = layer + "self_attn.", mlp = layer + "mlp.";
    add(true, layer + "input_layernorm.weight", c.hidden);
    add(true, layer + "post_attention_layernorm.weight", c.hidden);
    add(true, attn + "q_proj.weight", q * c.hidden);
    add(true, attn + "k_proj.weight", kv * c.hidden);
    add(true, attn + "v_proj.weight", kv * c.hidden);
    add(true, attn + "o_proj.weight", c.hidden * q);
    add(c.qkv_bias, attn + "q_proj.bias", q);
    add(c.qkv_bias, attn + "k_proj.bias", kv);
    add(c.qkv_bias, attn + "v_proj.bias", kv);
    add(c.output_bias, attn + "o_proj.bias", c.hidden);
    add(c.qk_norm, attn + "q_norm.weight", c.head_dim);
    add(c.qk_norm, attn + "k_norm.weight", c.head_dim);
    add(true, mlp + "gate_proj.weight", c.intermediate * c.hidden);
    add(true, mlp + "up_proj.weight", c.intermediate * c.hidden);
    add(true, mlp + "down_proj.weight", c.hidden * c.intermediate);
    add(c.mlp_bias, mlp + "gate_proj.bias", c.intermediate);
    add(c.mlp_bias, mlp + "up_proj.bias", c.intermediate);
    add(c.mlp_bias, mlp + "down_proj.bias", c.hidden);
  }
  add(!c.tied_embeddings, "lm_head.weight", c.vocab * c.hidden);
  return all;
}

// A and B of every target of the config's adapters.
inline std::vector<Named> adapters_of(const mempo_model_config& c) {
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  const struct {
    unsigned target;
    const char* name;
    int64_t in, out;
  } projections[] = {{MEMPO_Q_PROJ, "self_attn.q_proj", c.hidden, q}, {MEMPO_K_PROJ, "self_attn.k_proj", c.hidden, kv},
                     {MEMPO_V_PROJ, "self_attn.v_proj", c.hidden, kv}, {MEMPO_O_PROJ, "self_attn.o_proj", q, c.hidden},
                     {MEMPO_GATE_PROJ, "mlp.gate_proj", c.hidden, c.intermediate}, {MEMPO_UP_PROJ, "mlp.up_proj", c.hidden, c.intermediate},
                     {MEMPO_DOWN_PROJ, "mlp.down_proj", c.intermediate, c.hidden}};
  std::vector<Named> all;
  for (int64_t n = 0; n < c.layers; ++n) {
    for (const auto& p : projections) {
      if ((c.adapters.targets & p.target) == 0) continue;
      const std::string name = "model.layers." + std::to_string(n) + "." + p.name;
      all.push_back({name + ".lora_A.weight", c.adapters.rank * p.in});
      all.push_back({name + ".lora_B.weight", c.adapters.rank * p.out});
    }
  }
  return all;
}

// A stream of numbers in [-1, 1) (MMIX's generator, Knuth).
struct Random {
  uint64_t state;
  float next() {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1.0p-31F;
  }
  int32_t below(int32_t n) { return static_cast<int32_t>((next() + 1) / 2 * static_cast<float>(n)) % n; }
};

// Handles that free themselves.
struct Free {
  void operator()(mempo_model* m) const { mempo_model_free(m); }
  void operator()(mempo_session* s) const { mempo_session_free(s); }
};
using Model = std::unique_ptr<mempo_model, Free>;
using Session = std::unique_ptr<mempo_session, Free>;

inline void check_ok(const char* file, int line, int code, const mempo_error& error) {
  if (code != MEMPO_OK) report(file, line, "code " + std::to_string(code) + ": " + error.message);
}

// Runs a call that takes a mempo_error last and must succeed.
#define OK(function, ...)                                           \
  do {                                                              \
    mempo_error error_{};                                           \
    tiny::check_ok(__FILE__, __LINE__, function(__VA_ARGS__, &error_), error_); \
  } while (false)

inline void check_fails(const char* file, int line, int code, int wanted, const mempo_error& error, const char* part) {
  const std::string message = error.message;
  if (code != wanted || error.code != wanted) {
    report(file, line, "code " + std::to_string(code) + " (" + std::to_string(error.code) + " in the error), want " +
                           std::to_string(wanted) + ": " + message);
  }
  if (message.find(part) == std::string::npos) report(file, line, "message '" + message + "' lacks '" + part + "'");
  if (message.empty() || message.find('\n') != std::string::npos) report(file, line, "message '" + message + "' is not one line");
}

// Runs a call that must fail with `wanted` and a one-line message that holds `part`.
#define FAILS(wanted, part, function, ...)                                                      \
  do {                                                                                          \
    mempo_error error_{};                                                                       \
    const int code_ = function(__VA_ARGS__, &error_);                                           \
    tiny::check_fails(__FILE__, __LINE__, code_, wanted, error_, part);                         \
  } while (false)

inline Model make(Config config, bool trainable = true, mempo_checkpointing checkpointing = MEMPO_KEEP_ALL, mempo_dtype dtype = MEMPO_FLOAT32) {
  config.c.trainable = trainable;
  config.c.checkpointing = checkpointing;
  config.c.compute_dtype = dtype;
  mempo_model* made = nullptr;
  OK(mempo_model_new, config.get(), "cpu", &made);
  Model model(made);
  Random random{7};
  for (const Named& weight : weights_of(config.c)) {
    std::vector<float> values(static_cast<size_t>(weight.count));
    const bool norm = weight.name.find("norm") != std::string::npos;
    for (float& v : values) v = norm ? 1.0F + 0.3F * random.next() : 0.4F * random.next();
    OK(mempo_model_write, made, MEMPO_MASTER, weight.name.c_str(), values.data(), weight.count);
  }
  return model;
}

inline std::vector<float> read(mempo_model* model, mempo_kind kind, const Named& weight) {
  std::vector<float> values(static_cast<size_t>(weight.count));
  OK(mempo_model_read, model, kind, weight.name.c_str(), values.data(), weight.count);
  return values;
}

// Rows of tokens, packed; every token but the first of a row is scored.
struct Batch {
  std::vector<int64_t> offsets{0}, positions, parents, starts, groups{0};  // one group
  std::vector<int32_t> ids;

  int64_t rows() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t count() const { return static_cast<int64_t>(positions.size()); }

  // A row behind the first `start` tokens of another's path.
  void add(const std::vector<int32_t>& row, int64_t parent = -1, int64_t start = 0) {
    parents.push_back(parent);
    starts.push_back(start);
    for (size_t k = 1; k < row.size(); ++k) positions.push_back(offsets.back() + static_cast<int64_t>(k));
    ids.insert(ids.end(), row.begin(), row.end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
    groups.back() = rows();
  }
  int64_t group_count() const { return static_cast<int64_t>(groups.size()); }
};

inline std::vector<int32_t> random_row(Random& random, int64_t length, int32_t vocab = 37) {
  std::vector<int32_t> row;
  for (int64_t k = 0; k < length; ++k) row.push_back(random.below(vocab));
  return row;
}

inline Batch random_batch(uint64_t seed, const std::vector<int64_t>& lengths) {
  Random random{seed};
  Batch batch;
  for (int64_t length : lengths) batch.add(random_row(random, length));
  return batch;
}

struct Scores {
  std::vector<float> log_probs, entropies;
};

inline Scores score(mempo_model* model, const Batch& b, double temperature = 1) {
  Scores s{std::vector<float>(b.positions.size()), std::vector<float>(b.positions.size())};
  OK(mempo_score, model, b.rows(), b.offsets.data(), b.ids.data(), b.count(), b.positions.data(), temperature, 0,
     s.log_probs.data(), s.entropies.data());
  return s;
}

// Each row's tokens go on behind it; what was drawn for each.
inline std::vector<mempo_sampled> step(mempo_session* s, const std::vector<mempo_row_input>& inputs, const std::vector<std::vector<int32_t>>& ids) {
  Batch b;
  for (const auto& row : ids) b.add(row);
  std::vector<mempo_sampled> out(inputs.size());
  OK(mempo_session_step, s, b.rows(), inputs.data(), b.offsets.data(), b.ids.data(), out.data());
  return out;
}

inline mempo_loss_options likelihood() { return {MEMPO_NEGATIVE_LOG_LIKELIHOOD, 0, 0, 0, MEMPO_K1, 0, 1}; }
inline mempo_loss_options plain_loss() { return {MEMPO_POLICY_LOSS, 0.2, 0.2, 0, MEMPO_K1, 0, 1}; }

// Columns of the loss for a batch: advantages of both signs, weights that sum to about 1.
struct Columns {
  std::vector<float> old, ref, advantages, weights;

  Columns(const Scores& scores, uint64_t seed) : old(scores.log_probs), ref(scores.log_probs) {
    Random random{seed};
    for (size_t k = 0; k < old.size(); ++k) {
      advantages.push_back(random.next());
      weights.push_back(1.0F / static_cast<float>(old.size()));
    }
  }
  // What a kind of loss reads.
  mempo_loss_inputs get(mempo_loss_kind kind = MEMPO_POLICY_LOSS) const {
    if (kind == MEMPO_NEGATIVE_LOG_LIKELIHOOD) return {nullptr, nullptr, nullptr, weights.data()};
    return {old.data(), ref.data(), advantages.data(), weights.data()};
  }
};

}  // namespace tiny
