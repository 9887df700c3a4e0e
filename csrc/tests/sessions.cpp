// Generation: what a session computes step by step is what scoring computes in one go.
#include "tiny.h"

using namespace tiny;

namespace {

mempo_row_input input(int64_t row, bool sample = false, uint64_t seed = 0) { return {row, sample ? 1 : 0, 1.0, 1.0, 0, seed}; }

Session new_session(mempo_model* model, const std::vector<uint8_t>& valid = {}) {
  mempo_session* made = nullptr;
  OK(mempo_session_new, model, valid.empty() ? nullptr : valid.data(), static_cast<int64_t>(valid.size()), 0, 0, &made);
  return Session(made);
}

int64_t open(mempo_session* s) {
  int64_t row = -1;
  OK(mempo_session_open, s, &row);
  return row;
}

int64_t fork(mempo_session* s, int64_t row, int64_t length) {
  int64_t copied = -1;
  OK(mempo_session_fork, s, row, length, &copied);
  return copied;
}

// A row that a session writes.
struct Written {
  int64_t row;
  std::vector<int32_t> ids;
  size_t fed = 0;                 // ids that are in the cache
  std::vector<float> log_probs{};  // of the ids sampled last, at the end of ids
};

// Appends `given`, then samples `count` tokens one by one.
void write(mempo_session* s, Written& w, const std::vector<int32_t>& given, int count, uint64_t seed) {
  w.ids.insert(w.ids.end(), given.begin(), given.end());
  w.log_probs.clear();
  for (int k = 0; k < count; ++k) {
    const std::vector<int32_t> fresh(w.ids.begin() + static_cast<int64_t>(w.fed), w.ids.end());
    const mempo_sampled drawn = step(s, {input(w.row, true, seed + static_cast<uint64_t>(k))}, {fresh})[0];
    EXPECT(drawn.id >= 0);
    w.fed = w.ids.size();
    w.ids.push_back(drawn.id);
    w.log_probs.push_back(drawn.log_prob);
  }
}

void check_scores_agree(mempo_model* model, const Written& w) {
  Batch b;
  b.add(w.ids);
  const Scores s = score(model, b);
  const size_t first = s.log_probs.size() - w.log_probs.size();
  for (size_t k = 0; k < w.log_probs.size(); ++k) EXPECT_NEAR(w.log_probs[k], s.log_probs[first + k], 5e-5);
}

void decoding_equals_scoring(const Config& config) {
  const Model model = make(config, false);
  const Session s = new_session(model.get());
  Random random{3};
  Written a{open(s.get()), {}};
  write(s.get(), a, random_row(random, 9), 12, 100);
  check_scores_agree(model.get(), a);

  // A fork goes its own way, behind tokens from outside, and leaves the original alone.
  Written b = a;
  b.row = fork(s.get(), a.row, static_cast<int64_t>(a.fed));
  write(s.get(), b, {1, 2, 3, 4, 5}, 6, 200);
  check_scores_agree(model.get(), b);
  write(s.get(), a, {}, 4, 300);
  check_scores_agree(model.get(), a);

  // A fork outlives what it was copied from.
  Written c = a;
  c.row = fork(s.get(), a.row, static_cast<int64_t>(a.fed));
  OK(mempo_session_release, s.get(), a.row);
  write(s.get(), c, {8}, 3, 400);
  check_scores_agree(model.get(), c);

  // A fork of an empty row is an empty row.
  Written d{fork(s.get(), open(s.get()), 0), {}};
  write(s.get(), d, {7}, 5, 500);
  check_scores_agree(model.get(), d);
}

// Rows of different lengths in one step, some with and some without a draw, in any order.
void rows_do_not_see_each_other(const Config& config) {
  const Model model = make(config, false);
  const Session together = new_session(model.get()), alone = new_session(model.get());
  Random random{5};
  std::vector<mempo_row_input> inputs;
  std::vector<std::vector<int32_t>> ids;
  for (int64_t length : {5, 1, 17, 2}) {
    inputs.push_back(input(open(together.get()), length != 2, static_cast<uint64_t>(length)));
    ids.push_back(random_row(random, length));
  }
  const auto first = step(together.get(), inputs, ids);
  std::swap(inputs[0], inputs[2]);
  inputs[3].sample = 1;
  const auto second = step(together.get(), inputs, {{1, 2, 3}, {4}, {5}, {6, 7}});
  const std::vector<std::vector<int32_t>> more{{5}, {4}, {1, 2, 3}, {6, 7}};
  const size_t place[] = {2, 1, 0, 3};
  for (size_t r = 0; r < 4; ++r) {
    const int64_t row = open(alone.get());
    const uint64_t seed = ids[r].size();
    const auto one = step(alone.get(), {input(row, r != 3, seed)}, {ids[r]})[0];
    const auto two = step(alone.get(), {input(row, true, seed)}, {more[r]})[0];
    EXPECT_EQUAL(first[r].id, r == 3 ? -1 : one.id);
    EXPECT_NEAR(first[r].log_prob, one.log_prob, 5e-5);
    EXPECT_EQUAL(second[place[r]].id, two.id);
    EXPECT_NEAR(second[place[r]].log_prob, two.log_prob, 5e-5);
  }
}

// A cache of many pages, filled in uneven pieces.
void long_rows() {
  const Model model = make(qwen2(), false);
  const Session s = new_session(model.get());
  Random random{9};
  const std::vector<int32_t> text = random_row(random, 1100);
  const int64_t row = open(s.get());
  int64_t done = 0;
  for (int64_t piece : {1, 254, 1, 1, 3, 250, 2, 1, 500, 12, 74}) {
    step(s.get(), {input(row)}, {{text.begin() + done, text.begin() + done + piece}});
    done += piece;
    const int64_t copy = fork(s.get(), row, done);
    const mempo_sampled drawn = step(s.get(), {input(copy, true, 1)}, {{text[static_cast<size_t>(done)]}})[0];
    OK(mempo_session_release, s.get(), copy);
    std::vector<int32_t> ids(text.begin(), text.begin() + done + 1);
    ids.push_back(drawn.id);
    Batch whole;
    whole.add(ids);
    EXPECT_NEAR(drawn.log_prob, score(model.get(), whole).log_probs.back(), 5e-5);
  }
  EXPECT_EQUAL(done, 1099);
}

void only_valid_ids() {
  const Model model = make(llama(), false);
  std::vector<uint8_t> valid(37, 0);
  valid[3] = valid[11] = 1;
  const Session s = new_session(model.get(), valid), short_list = new_session(model.get(), {0, 0, 1});
  int redraws = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto drawn = step(s.get(), {input(open(s.get()), true, seed)}, {{1, 2, 3}})[0];
    EXPECT(drawn.id == 3 || drawn.id == 11);
    EXPECT(std::isfinite(drawn.log_prob));
    redraws += drawn.redraws;
    EXPECT_EQUAL(step(short_list.get(), {input(open(short_list.get()), true, seed)}, {{1, 2, 3}})[0].id, 2);
  }
  EXPECT(redraws > 60);
}

// A step that fails, for whatever reason, leaves every row as it was.
void failed_steps_change_nothing() {
  const Model model = make(qwen3(), false);
  const Session s = new_session(model.get()), calm = new_session(model.get());
  const int64_t row = open(s.get()), other = open(s.get()), gone = open(s.get()), same = open(calm.get());
  OK(mempo_session_release, s.get(), gone);
  step(s.get(), {input(row)}, {{1, 2, 3}});
  step(calm.get(), {input(same)}, {{1, 2, 3}});
  mempo_sampled out[2];
  const auto fails = [&](const char* part, std::vector<mempo_row_input> inputs, std::vector<int64_t> offsets, std::vector<int32_t> ids) {
    FAILS(MEMPO_INVALID, part, mempo_session_step, s.get(), static_cast<int64_t>(inputs.size()), inputs.data(), offsets.data(), ids.data(), out);
  };
  fails("37", {input(row), input(other)}, {0, 2, 3}, {4, 5, 37});
  fails("-1", {input(row), input(other)}, {0, 2, 3}, {4, 5, -1});
  fails("empty", {input(row), input(other)}, {0, 2, 2}, {4, 5});
  fails("twice", {input(row), input(row)}, {0, 1, 2}, {4, 5});
  fails("no row", {input(row), input(gone)}, {0, 1, 2}, {4, 5});
  fails("no row", {input(row), input(99)}, {0, 1, 2}, {4, 5});
  fails("offset", {input(row), input(other)}, {0, 5, 2}, {4, 5});
  fails("offset", {input(row)}, {1, 2}, {4, 5});
  fails("temperature", {{row, 1, -1.0, 1.0, 0, 0}}, {0, 1}, {4});
  fails("temperature", {{row, 1, std::nan(""), 1.0, 0, 0}}, {0, 1}, {4});
  fails("top_p", {{row, 1, 1.0, std::nan(""), 0, 0}}, {0, 1}, {4});
  fails("top_k", {{row, 1, 1.0, 1.0, -1, 0}}, {0, 1}, {4});
  fails("row", {}, {0}, {});
  const auto a = step(s.get(), {input(row, true, 5)}, {{4}})[0], b = step(calm.get(), {input(same, true, 5)}, {{4}})[0];
  EXPECT_EQUAL(a.id, b.id);
  EXPECT_EQUAL(a.log_prob, b.log_prob);
}

// Weights that are no numbers must not make a draw from nowhere.
void no_draw_from_nan() {
  const Config config = llama();
  const Model model = make(config, false);
  const std::vector<float> broken(24, std::nanf(""));
  OK(mempo_model_write, model.get(), MEMPO_MASTER, "model.norm.weight", broken.data(), 24);
  const Session s = new_session(model.get()), limited = new_session(model.get(), std::vector<uint8_t>(30, 1));
  const mempo_row_input sampled = input(open(s.get()), true), greedy{open(limited.get()), 1, 0.0, 1.0, 0, 0};
  const int64_t offsets[] = {0, 1};
  const int32_t id = 1;
  mempo_sampled out;
  FAILS(MEMPO_INTERNAL, "not finite", mempo_session_step, s.get(), 1, &sampled, offsets, &id, &out);
  FAILS(MEMPO_INTERNAL, "not finite", mempo_session_step, limited.get(), 1, &greedy, offsets, &id, &out);
}

}  // namespace

int main() {
  mempo_error error{};
  mempo_runtime_init(1, &error);
  for (const Config& config : {qwen2(), qwen3(), llama()}) {
    decoding_equals_scoring(config);
    rows_do_not_see_each_other(config);
  }
  long_rows();
  only_valid_ids();
  failed_steps_change_nothing();
  no_draw_from_nan();
  EXPECT_EQUAL(mempo_live_handles(), 0);
  return failures();
}
