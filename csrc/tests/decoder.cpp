// Decoding by a team of threads: what it draws has the log-probabilities of scoring.
#include "decoder.h"

#include "tiny.h"

using namespace tiny;

namespace {

// A vocabulary that makes a tiny model's head as large as the copies of a decoder must be.
constexpr int64_t kVocab = 700000;

Config wide(Config config) {
  config.c.vocab = kVocab;
  return config;
}

Config with_adapters(Config config) {
  config.c.adapters = {3, 1.5, MEMPO_Q_PROJ | MEMPO_V_PROJ | MEMPO_UP_PROJ | MEMPO_DOWN_PROJ};
  return config;
}

Model make_adapted(const Config& config) {
  Model model = make(config, false);
  Random random{17};
  for (const Named& weight : adapters_of(config.c)) {
    std::vector<float> values(static_cast<size_t>(weight.count));
    for (float& v : values) v = 0.3F * random.next();
    OK(mempo_model_write, model.get(), MEMPO_MASTER, weight.name.c_str(), values.data(), weight.count);
  }
  return model;
}

// Rows that begin with pieces of different lengths and go on together, one of them without a draw at first; then all
// log-probabilities of what was drawn are computed in one go.
void decoding_equals_scoring(mempo_model* model, size_t count) {
  mempo_session* made = nullptr;
  OK(mempo_session_new, model, nullptr, 0, 0, 0, &made);
  const Session s(made);
  Random random{count};
  std::vector<mempo_row_input> inputs;
  std::vector<std::vector<int32_t>> texts, fresh;
  std::vector<float> drawn_log_probs;
  for (size_t r = 0; r < count; ++r) {
    inputs.push_back({0, 1, 1.0, 1.0, 0, 10 * r});
    OK(mempo_session_open, s.get(), &inputs.back().row);
    texts.push_back(random_row(random, 1 + random.below(90), kVocab));
  }
  fresh = texts;
  for (int k = 0; k < 4; ++k) {
    const bool silent = k == 1;
    inputs[1].sample = silent ? 0 : 1;
    const auto drawn = step(s.get(), inputs, fresh);
    for (size_t r = 0; r < count; ++r) {
      ++inputs[r].seed;
      fresh[r] = {silent && r == 1 ? 5 : drawn[r].id};
      texts[r].push_back(fresh[r][0]);
      drawn_log_probs.push_back(drawn[r].log_prob);
    }
  }
  Batch b;
  for (size_t r = 0; r < count; ++r) {
    b.add(texts[r]);
    b.positions.resize(b.positions.size() - texts[r].size() + 1);
    for (int64_t k = 4; k >= 1; --k) b.positions.push_back(b.offsets.back() - k);
  }
  const Scores wanted = score(model, b);
  for (size_t r = 0; r < count; ++r) {
    for (size_t k = 0; k < 4; ++k) {
      if (k != 1 || r != 1) EXPECT_NEAR(drawn_log_probs[k * count + r], wanted.log_probs[r * 4 + k], 5e-5);
    }
  }
}

void check(const Model& model) {
  EXPECT(mempo::Decoder::of(*model, true) != nullptr);
  for (const size_t rows : {5, 11, 16}) decoding_equals_scoring(model.get(), rows);
}

void only_where_it_is_of_use() {
  EXPECT(mempo::Decoder::of(*make(llama(), false), true) == nullptr);
  Config grouped = wide(llama());
  grouped.c.groups = 2;
  EXPECT(mempo::Decoder::of(*make(grouped, false), true) == nullptr);
  EXPECT(!mempo::Decoder::suits(4) && mempo::Decoder::suits(5) && mempo::Decoder::suits(16) && !mempo::Decoder::suits(17));
}

}  // namespace

int main() {
  if (!mempo::PackedMatrix::available()) return 0;  // a processor or a libtorch without such products
  mempo_error error{};
  // Shares of all sizes, with more threads than heads among them.
  for (const int threads : {3, 1, 13}) {
    mempo_runtime_init(threads, &error);
    check(make(wide(threads == 1 ? qwen2() : qwen3()), false));
    check(make_adapted(with_adapters(wide(threads == 13 ? qwen2() : llama()))));
  }
  only_where_it_is_of_use();
  EXPECT_EQUAL(mempo_live_handles(), 0);
  return failures();
}
