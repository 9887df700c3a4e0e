// Rows that begin alike: what is computed once for several rows is what each would compute alone.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "attention.h"
#include "tiny.h"

using namespace tiny;

namespace {

using Rows = std::vector<std::vector<int32_t>>;

// A random tree: whole rows, and for each the row it goes on from and where.
struct RandomTree {
  Rows whole;
  std::vector<int64_t> parents, starts;

  RandomTree(uint64_t seed, int rows) {
    Random random{seed};
    for (int r = 0; r < rows; ++r) {
      const int64_t parent = r == 0 ? -1 : random.below(r + 1) - 1;
      std::vector<int32_t> row;
      int64_t start = 0;
      if (parent >= 0) {  // leaves the parent behind one of the parent's own tokens
        const auto p = static_cast<size_t>(parent);
        start = starts[p] + 1 + random.below(static_cast<int32_t>(static_cast<int64_t>(whole[p].size()) - starts[p]));
        row.assign(whole[p].begin(), whole[p].begin() + start);
      }
      const std::vector<int32_t> own = random_row(random, 2 + random.below(r % 3 == 0 ? 40 : 9));
      row.insert(row.end(), own.begin(), own.end());
      whole.push_back(row);
      parents.push_back(parent);
      starts.push_back(start);
    }
  }

  std::vector<int32_t> own(size_t r) const { return {whole[r].begin() + starts[r], whole[r].end()}; }

  // As a tree; every own token but the first of a row is scored.
  Batch packed() const {
    Batch b;
    for (size_t r = 0; r < whole.size(); ++r) b.add(own(r), parents[r], starts[r]);
    return b;
  }
  // Each row whole, with the same tokens scored.
  Batch alone() const {
    Batch b;
    for (size_t r = 0; r < whole.size(); ++r) {
      b.add(whole[r]);
      const auto scored = static_cast<size_t>(starts[r]);  // those of the parents are not
      b.positions.erase(b.positions.end() - static_cast<int64_t>(whole[r].size()) + 1, b.positions.end() - static_cast<int64_t>(whole[r].size()) + 1 + static_cast<int64_t>(scored));
    }
    return b;
  }
};

std::vector<float> gradient(mempo_model* model, const Config& config, const Batch& b, const Columns& columns) {
  mempo_loss_options options = plain_loss();
  options.kl_estimator = MEMPO_K2;
  options.kl_coef = 0.1;
  const mempo_loss_inputs inputs = columns.get();
  mempo_loss_stats stats{};
  OK(mempo_forward_backward, model, b.rows(), b.offsets.data(), b.ids.data(), b.parents.data(), b.starts.data(), b.group_count(),
     b.groups.data(), b.count(), b.positions.data(), &inputs, &options, &stats);
  std::vector<float> all;
  for (const Named& weight : weights_of(config.c)) {
    const std::vector<float> one = read(model, MEMPO_GRADIENT, weight);
    all.insert(all.end(), one.begin(), one.end());
  }
  OK(mempo_drop_gradient, model);
  return all;
}

void gradients_are_those_of_whole_rows(const Config& config, uint64_t seed, int rows) {
  const Model model = make(config);
  const RandomTree tree(seed, rows);
  const Batch alone = tree.alone();
  const Columns columns(score(model.get(), alone), seed);
  const std::vector<float> shared = gradient(model.get(), config, tree.packed(), columns), wanted = gradient(model.get(), config, alone, columns);
  double difference = 0, size = 0;
  for (size_t k = 0; k < wanted.size(); ++k) {
    difference += std::pow(static_cast<double>(shared[k]) - wanted[k], 2);
    size += std::pow(static_cast<double>(wanted[k]), 2);
  }
  EXPECT(size > 1e-8);
  EXPECT_NEAR(std::sqrt(difference / size), 0, 1e-5);
}

void bad_trees_are_refused() {
  const Model model = make(qwen2());
  const auto refuse = [&](const char* part, std::vector<int64_t> parents, std::vector<int64_t> starts, std::vector<int64_t> groups = {3}) {
    Batch b = random_batch(1, {4, 3, 3});
    b.groups = std::move(groups);
    const Columns columns(score(model.get(), b), 2);
    const mempo_loss_inputs inputs = columns.get();
    const mempo_loss_options options = plain_loss();
    mempo_loss_stats stats{};
    FAILS(MEMPO_INVALID, part, mempo_forward_backward, model.get(), b.rows(), b.offsets.data(), b.ids.data(), parents.data(),
          starts.data(), b.group_count(), b.groups.data(), b.count(), b.positions.data(), &inputs, &options, &stats);
  };
  refuse("does not come before", {0, -1, -1}, {0, 0, 0});
  refuse("does not come before", {-1, 2, -1}, {0, 1, 0});
  refuse("does not come before", {-1, -2, -1}, {0, 0, 0});
  refuse("behind nothing", {-1, -1, -1}, {0, 2, 0});
  refuse("row 1", {-1, 0, -1}, {0, 0, 0});
  refuse("row 1", {-1, 0, -1}, {0, 5, 0});
  refuse("row 2", {-1, 0, 1}, {0, 3, 3});
  refuse("in its group", {-1, -1, 1}, {0, 0, 2}, {2, 3});
  refuse("last group", {-1, -1, -1}, {0, 0, 0}, {2});
  refuse("group 1 is empty", {-1, -1, -1}, {0, 0, 0}, {2, 2, 3});
}

// Two trees as two groups, side by side on two threads, against all rows whole and together.
void groups_add_up(const Config& config) {
  Config grouped = config;
  grouped.c.groups = 2;
  const Model model = make(grouped), together = make(config);
  const RandomTree first(31, 6), second(32, 9);
  Batch trees = first.packed(), alone = first.alone();
  const Batch more = second.packed(), more_alone = second.alone();
  const auto append = [](Batch& to, const Batch& from) {
    const int64_t rows = to.rows(), tokens = to.offsets.back();
    to.ids.insert(to.ids.end(), from.ids.begin(), from.ids.end());
    for (size_t r = 0; r < from.parents.size(); ++r) {
      to.parents.push_back(from.parents[r] < 0 ? -1 : from.parents[r] + rows);
      to.starts.push_back(from.starts[r]);
      to.offsets.push_back(tokens + from.offsets[r + 1]);
    }
    for (const int64_t position : from.positions) to.positions.push_back(tokens + position);
  };
  const int64_t rows = trees.rows();
  append(trees, more);
  append(alone, more_alone);
  alone.groups = {alone.rows()};
  trees.groups = {rows, trees.rows()};
  const Scores scores = score(model.get(), alone), wanted = score(together.get(), alone);
  for (size_t k = 0; k < scores.log_probs.size(); ++k) EXPECT_NEAR(scores.log_probs[k], wanted.log_probs[k], 2e-5);
  const Columns columns(wanted, 33);
  const auto a = gradient(model.get(), config, trees, columns), b = gradient(together.get(), config, alone, columns);
  for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 2e-5);
  const auto again = gradient(model.get(), config, trees, columns);
  EXPECT(a == again);
}

double distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

// The parts of the flash kernel, merged, against one chain of plain operations under autograd.
void attention_matches(uint64_t seed, int64_t heads, int64_t kv_heads, int64_t d) {
  const RandomTree random(seed, 9);
  const Batch b = random.packed();
  mempo::TreeAttention attention({b.offsets, b.parents, b.starts});
  const auto make_one = [&](int64_t n) { return at::randn({b.offsets.back(), n, d}); };
  const auto leaf = [](const at::Tensor& x) { return x.clone().requires_grad_(true); };
  const at::Tensor q = make_one(heads), k = make_one(kv_heads), v = make_one(kv_heads), upstream = make_one(heads).flatten(1);
  const at::Tensor leaf_q = leaf(q), leaf_k = leaf(k), leaf_v = leaf(v);
  const at::Tensor wanted = mempo::plain_tree_attention(leaf_q, leaf_k, leaf_v, {b.offsets, b.parents, b.starts});
  torch::autograd::backward({wanted}, {upstream});
  const mempo::Attended attended = attention.attend(0, q, k, v);
  EXPECT_NEAR(distance(attended.mixed, wanted), 0, 1e-5);
  const at::Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
  attention.backward(upstream, q, k, v, attended, dq, dk, dv);
  EXPECT_NEAR(distance(dq, leaf_q.grad()), 0, 2e-5);
  EXPECT_NEAR(distance(dk, leaf_k.grad()), 0, 2e-5);
  EXPECT_NEAR(distance(dv, leaf_v.grad()), 0, 2e-5);
}

// A session computes a tree piece by piece: rows that others go on from are kept, the rest is only scored.
void sessions_score_trees(const Config& config, uint64_t seed, int rows) {
  const Model model = make(config, false);
  const RandomTree tree(seed, rows);
  const Batch alone = tree.alone();
  const Scores wanted = score(model.get(), alone);
  mempo_session* made = nullptr;
  OK(mempo_session_new, model.get(), nullptr, 0, 0, 0, &made);
  const Session s(made);
  std::vector<int64_t> row_of(tree.whole.size());
  size_t done = 0;
  for (size_t r = 0; r < tree.whole.size(); ++r) {
    if (tree.parents[r] < 0) {
      OK(mempo_session_open, s.get(), &row_of[r]);
    } else {
      OK(mempo_session_fork, s.get(), row_of[static_cast<size_t>(tree.parents[r])], tree.starts[r], &row_of[r]);
    }
    Batch b;
    b.add(tree.own(r));
    const bool first = r % 2 == 0;  // once only scored, then kept; or the other way round
    for (const int keep : {first ? 0 : 1, first ? 1 : 0}) {
      const mempo_piece piece{row_of[r], tree.starts[r], keep, 1.0};
      Scores found{std::vector<float>(b.positions.size()), std::vector<float>(b.positions.size())};
      OK(mempo_session_score, s.get(), 1, &piece, b.offsets.data(), b.ids.data(), b.count(), b.positions.data(), found.log_probs.data(), found.entropies.data());
      for (size_t k = 0; k < b.positions.size(); ++k) {
        EXPECT_NEAR(found.log_probs[k], wanted.log_probs[done + k], 5e-5);
        EXPECT_NEAR(found.entropies[k], wanted.entropies[done + k], 5e-5);
      }
    }
    done += b.positions.size();
  }
  for (const int64_t row : row_of) OK(mempo_session_release, s.get(), row);
  int64_t page_tokens = 0, pages = -1, limit = -1;
  mempo_session_usage(s.get(), &page_tokens, &pages, &limit);
  EXPECT_EQUAL(pages, 0);
  EXPECT_EQUAL(limit, 0);
}

// Several pieces behind the same row in one call, each at a temperature of its own.
void pieces_share_a_row() {
  const Model model = make(qwen3(), false);
  mempo_session* made = nullptr;
  OK(mempo_session_new, model.get(), nullptr, 0, 0, 0, &made);
  const Session s(made);
  Random random{3};
  const std::vector<int32_t> text = random_row(random, 150);
  int64_t row = -1;
  OK(mempo_session_open, s.get(), &row);
  Batch whole;
  whole.add(text);
  const mempo_piece all{row, 0, 1, 1.0};
  OK(mempo_session_score, s.get(), 1, &all, whole.offsets.data(), whole.ids.data(), 0, nullptr, nullptr, nullptr);
  const int64_t lengths[] = {150, 0, 64, 65, 149, 3}, own[] = {5, 40, 17, 16, 2, 90};
  Batch together;
  std::vector<mempo_piece> pieces;
  for (int k = 0; k < 6; ++k) {
    together.add(random_row(random, own[k]));
    pieces.push_back({row, lengths[k], 0, 0.5 + 0.25 * k});
  }
  Scores found{std::vector<float>(together.positions.size()), std::vector<float>(together.positions.size())};
  OK(mempo_session_score, s.get(), 6, pieces.data(), together.offsets.data(), together.ids.data(), together.count(), together.positions.data(), found.log_probs.data(), found.entropies.data());
  size_t done = 0;
  for (size_t k = 0; k < 6; ++k) {
    std::vector<int32_t> ids(text.begin(), text.begin() + lengths[k]);
    ids.insert(ids.end(), together.ids.begin() + together.offsets[k], together.ids.begin() + together.offsets[k + 1]);
    Batch b;
    b.add(ids);
    const Scores wanted = score(model.get(), b, pieces[k].temperature);
    const auto count = static_cast<size_t>(own[k] - 1);
    for (size_t n = 0; n < count; ++n) {
      EXPECT_NEAR(found.log_probs[done + n], wanted.log_probs[wanted.log_probs.size() - count + n], 5e-5);
      EXPECT_NEAR(found.entropies[done + n], wanted.entropies[wanted.entropies.size() - count + n], 5e-5);
    }
    done += count;
  }
  const mempo_piece wrong[] = {{row, 151, 0, 1}, {row, 149, 1, 1}, {row, -1, 0, 1}, {row + 9, 0, 0, 1}, {row, 0, 0, 0}};
  const char* parts[] = {"stands behind 151", "stands behind 149", "stands behind -1", "no row", "temperature"};
  for (int k = 0; k < 5; ++k) {
    FAILS(MEMPO_INVALID, parts[k], mempo_session_score, s.get(), 1, &wrong[k], whole.offsets.data(), whole.ids.data(), whole.count(), whole.positions.data(), found.log_probs.data(), found.entropies.data());
  }
}

// A cache of five pages: what does not fit changes nothing, what shares pages does not need new ones.
void the_cache_is_bounded() {
  const Model model = make(qwen2(), false);
  mempo_session* made = nullptr;
  OK(mempo_session_new, model.get(), nullptr, 0, 5 * 64 - 10, 0, &made);
  const Session s(made);
  const auto pages = [&] {
    int64_t page_tokens = 0, count = 0, limit = 0;
    mempo_session_usage(s.get(), &page_tokens, &count, &limit);
    EXPECT_EQUAL(page_tokens, 64);
    EXPECT_EQUAL(limit, 5);
    return count;
  };
  int64_t row = -1, sharing = -1, copying = -1;
  OK(mempo_session_open, s.get(), &row);
  const Batch long_row = random_batch(1, {200}), short_row = random_batch(2, {60}), tiny_row = random_batch(3, {4});
  const auto append = [&](int64_t to, const Batch& b, mempo_error* error) {
    const mempo_row_input input{to, 1, 1, 1, 0, 7};
    mempo_sampled out{};
    return mempo_session_step(s.get(), 1, &input, b.offsets.data(), b.ids.data(), &out, error);
  };
  OK(append, row, long_row);
  EXPECT_EQUAL(pages(), 4);
  OK(mempo_session_fork, s.get(), row, 192, &sharing);
  EXPECT_EQUAL(pages(), 4);
  OK(mempo_session_fork, s.get(), row, 100, &copying);
  EXPECT_EQUAL(pages(), 5);
  int64_t none = -1;
  FAILS(MEMPO_OUT_OF_MEMORY, "cache is full", mempo_session_fork, s.get(), row, 70, &none);
  FAILS(MEMPO_OUT_OF_MEMORY, "cache is full", append, sharing, tiny_row);
  EXPECT_EQUAL(pages(), 5);
  OK(append, row, tiny_row);  // its last page has room
  OK(mempo_session_release, s.get(), copying);
  EXPECT_EQUAL(pages(), 4);
  OK(append, sharing, tiny_row);
  OK(mempo_session_release, s.get(), row);
  EXPECT_EQUAL(pages(), 4);  // three are shared with the fork
  OK(append, sharing, short_row);
  EXPECT_EQUAL(pages(), 4);
  OK(append, sharing, tiny_row);
  EXPECT_EQUAL(pages(), 5);
  OK(mempo_session_release, s.get(), sharing);
  EXPECT_EQUAL(pages(), 0);
}

}  // namespace

int main() {
  mempo_error error{};
  mempo_runtime_init(1, &error);
  at::manual_seed(2);
  uint64_t seed = 1;
  for (const Config& config : {qwen2(), qwen3(), llama()}) {
    for (const int rows : {1, 2, 7, 20}) {
      gradients_are_those_of_whole_rows(config, ++seed, rows);
      sessions_score_trees(config, ++seed, rows);
    }
  }
  at::set_num_threads(2);
  for (const Config& config : {qwen2(), qwen3(), llama()}) groups_add_up(config);
  bad_trees_are_refused();
  for (uint64_t n = 0; n < 5; ++n) {
    attention_matches(n, 4, 4, 8);
    attention_matches(n, 9, 3, 16);
    attention_matches(n, 6, 1, 64);
  }
  pieces_share_a_row();
  the_cache_is_bounded();
  return failures();
}
