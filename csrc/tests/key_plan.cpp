// The keys that rows of a tree look at, gathered one row after another, give each row what attention over the tree gives it.
// The flash kernel of CUDA, which runs over such gathered keys, is no part of this test.
#include "attention.h"
#include "check.h"
#include "tiny.h"
#include "written_out.h"

using mempo::KeyPlan;
using mempo::Tree;

namespace {

Tree random_tree(tiny::Random& random, int64_t rows) {
  Tree tree{{0}, {}, {}};
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t length = 1 + random.below(9), parent = random.below(4) == 0 ? -1 : random.below(static_cast<int32_t>(r + 1)) - 1;
    tree.parents.push_back(parent);
    int64_t start = 0;
    if (parent >= 0) {
      const auto p = static_cast<size_t>(parent);
      start = tree.starts[p] + 1 + random.below(static_cast<int32_t>(tree.offsets[p + 1] - tree.offsets[p]));
    }
    tree.starts.push_back(start);
    tree.offsets.push_back(tree.offsets.back() + length);
  }
  return tree;
}

// What each row from `first` on gets, over the keys that the plan gathers for it.
at::Tensor by_plan(const Tree& tree, int64_t first, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const KeyPlan plan(tree, first);
  const at::Tensor places = at::tensor(plan.keys, at::kLong);
  std::vector<at::Tensor> rows;
  for (int64_t r = first; r < tree.rows(); ++r) {
    const auto n = static_cast<size_t>(r - first);
    const int64_t begin = plan.offsets[n], count = plan.offsets[n + 1] - begin, queries = tree.offsets[r + 1] - tree.offsets[r];
    EXPECT(count <= plan.most_keys && queries <= plan.most_queries);
    const auto gathered = [&](const at::Tensor& x) { return x.index_select(0, places.narrow(0, begin, count)).transpose(0, 1); };
    rows.push_back(written_out(q.narrow(0, tree.offsets[r], queries), gathered(k), gathered(v), count - queries));
  }
  return at::cat(rows);
}

void trees_match(uint64_t seed) {
  tiny::Random random{seed};
  const Tree tree = random_tree(random, 1 + random.below(12));
  const int64_t tokens = tree.offsets.back();
  const at::Tensor q = at::randn({tokens, 4, 8}), k = at::randn({tokens, 2, 8}), v = at::randn({tokens, 2, 8});
  const at::Tensor wanted = mempo::plain_tree_attention(q, k, v, tree);
  EXPECT_NEAR((by_plan(tree, 0, q, k, v) - wanted).abs().max().item<double>(), 0, 1e-5);
  EXPECT_NEAR((mempo::TreeAttention(tree).attend(0, q, k, v).mixed - wanted).abs().max().item<double>(), 0, 1e-5);
  bool forked = false;
  for (const int64_t parent : tree.parents) forked = forked || parent >= 0;
  EXPECT(KeyPlan(tree).is_batch(tokens) == !forked);
}

// Rows behind a past that has no queries.
void rows_behind_a_past_match() {
  const int64_t past = 5;
  const std::vector<int64_t> lengths{3, 1, 4};
  const Tree behind{{0, past, past + 3, past + 4, past + 8}, {-1, 0, 0, 0}, {0, past, past, past}};
  const at::Tensor q = at::randn({past + 8, 2, 8}), k = at::randn({past + 8, 2, 8}), v = at::randn({past + 8, 2, 8});
  const auto own = [&](const at::Tensor& x) { return x.narrow(0, past, 8); };
  const at::Tensor wanted = mempo::continued_attention(own(q), k.narrow(0, 0, past), v.narrow(0, 0, past), own(k), own(v), lengths);
  EXPECT_NEAR((by_plan(behind, 1, q, k, v) - wanted).abs().max().item<double>(), 0, 1e-5);
  EXPECT_EQUAL(KeyPlan(behind, 1).most_keys, past + 4);
}

}  // namespace

int main() {
  at::manual_seed(1);
  for (uint64_t seed = 1; seed <= 60; ++seed) trees_match(seed);
  rows_behind_a_past_match();
  return failures();
}
