// Exact search is a full sort, whatever the blocks and threads; a graph finds nearly the same, and a broken file of one is
// refused.
#include <unistd.h>

#include <fstream>
#include <limits>
#include <numeric>

#include "tiny.h"

using namespace tiny;

namespace {

// Numbers whose products and sums are exact, so that ties are ties in any order of summing.
std::vector<float> whole_numbers(Random& random, int64_t n) {
  std::vector<float> numbers(static_cast<size_t>(n));
  for (float& x : numbers) x = static_cast<float>(random.below(7) - 3);
  return numbers;
}

struct Hits {
  std::vector<int32_t> rows;
  std::vector<float> scores;
  explicit Hits(int64_t n) : rows(static_cast<size_t>(n), -7), scores(static_cast<size_t>(n), -7) {}
};

void compare(const std::vector<float>& query, const std::vector<float>& vectors, const int32_t* rows, const float* scores, int64_t k) {
  const size_t d = query.size(), n = vectors.size() / d;
  std::vector<float> products(n);
  for (size_t r = 0; r < n; ++r) products[r] = std::inner_product(query.begin(), query.end(), vectors.begin() + static_cast<int64_t>(r * d), 0.0F);
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return products[static_cast<size_t>(a)] > products[static_cast<size_t>(b)]; });
  for (size_t j = 0; j < static_cast<size_t>(k); ++j) {
    EXPECT_EQUAL(rows[j], j < n ? order[j] : -1);
    EXPECT_EQUAL(scores[j], j < n ? products[static_cast<size_t>(order[j])] : 0.0F);
  }
}

void exact() {
  Random random{3};
  const int64_t shapes[][4] = {{1, 1, 1, 1}, {3, 0, 4, 2}, {1, 5000, 7, 12}, {2, 4096, 3, 4096}, {40, 9001, 5, 3}, {700, 600, 2, 9}, {1, 12, 8, 20}};
  for (const auto& [count, rows, dimensions, k] : shapes) {
    const std::vector<float> queries = whole_numbers(random, count * dimensions), vectors = whole_numbers(random, rows * dimensions);
    Hits hits(count * k);
    OK(mempo_search_exact, count, queries.data(), rows, vectors.data(), dimensions, k, hits.rows.data(), hits.scores.data());
    for (int64_t q = 0; q < count; ++q) {
      compare({queries.begin() + q * dimensions, queries.begin() + (q + 1) * dimensions}, vectors, &hits.rows[static_cast<size_t>(q * k)], &hits.scores[static_cast<size_t>(q * k)], k);
    }
  }
}

// The same hits and the same scores to the last bit.
void threads() {
  Random random{8};
  constexpr int64_t kCount = 3, kVectors = 20000, kWidth = 48, kBest = 25;
  std::vector<float> queries(kCount * kWidth), vectors(kVectors * kWidth);
  for (float& x : queries) x = random.next();
  for (float& x : vectors) x = random.next();
  std::vector<Hits> found;
  for (const int threads : {1, 2, 5}) {
    OK(mempo_runtime_init, threads);
    Hits hits(kCount * kBest);
    OK(mempo_search_exact, kCount, queries.data(), kVectors, vectors.data(), kWidth, kBest, hits.rows.data(), hits.scores.data());
    found.push_back(hits);
  }
  for (const Hits& hits : found) EXPECT(hits.rows == found[0].rows && hits.scores == found[0].scores);
}

void no_numbers() {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> vectors{nan, 2, nan, -infinity, infinity, 1}, query{1};
  Hits hits(6);
  OK(mempo_search_exact, 1, query.data(), 6, vectors.data(), 1, 6, hits.rows.data(), hits.scores.data());
  const std::vector<int32_t> wanted{4, 1, 5, 3, -1, -1};
  for (size_t j = 0; j < 6; ++j) EXPECT_EQUAL(hits.rows[j], wanted[j]);
}

void exact_refuses() {
  const std::vector<float> x(8);
  Hits hits(8);
  const auto fails = [&](int64_t count, int64_t rows, int64_t dimensions, int64_t k) {
    FAILS(MEMPO_INVALID, "search", mempo_search_exact, count, x.data(), rows, x.data(), dimensions, k, hits.rows.data(), hits.scores.data());
  };
  fails(0, 1, 1, 1);
  fails(1, -1, 1, 1);
  fails(1, int64_t{1} << 31, 1, 1);
  fails(1, 1, 0, 1);
  fails(1, 1, 1, 0);
}

struct FreeGraph {
  void operator()(mempo_graph* g) const { mempo_graph_free(g); }
};
using Graph = std::unique_ptr<mempo_graph, FreeGraph>;

constexpr int64_t kDimensions = 16, kRows = 600;

std::vector<float> directions(uint64_t seed, int64_t rows) {
  Random random{seed};
  std::vector<float> all(static_cast<size_t>(rows * kDimensions));
  for (float& x : all) x = random.next();
  for (int64_t r = 0; r < rows; ++r) {
    float squares = 0;
    for (int64_t k = 0; k < kDimensions; ++k) squares += all[static_cast<size_t>(r * kDimensions + k)] * all[static_cast<size_t>(r * kDimensions + k)];
    for (int64_t k = 0; k < kDimensions; ++k) all[static_cast<size_t>(r * kDimensions + k)] /= std::sqrt(squares);
  }
  return all;
}

mempo_graph_config graph_config() { return {kDimensions, kRows, 8, 100, 7}; }

Graph full_graph(const std::vector<float>& vectors) {
  const mempo_graph_config c = graph_config();
  mempo_graph* made = nullptr;
  OK(mempo_graph_new, &c, &made);
  OK(mempo_graph_add, made, kRows / 2, vectors.data());
  OK(mempo_graph_add, made, kRows - kRows / 2, vectors.data() + kRows / 2 * kDimensions);
  EXPECT_EQUAL(mempo_graph_size(made), kRows);
  return Graph(made);
}

// Every row is its own nearest.
void finds_itself(mempo_graph* graph, const std::vector<float>& vectors) {
  Hits hits(kRows * 3);
  OK(mempo_graph_search, graph, kRows, vectors.data(), 50, 3, hits.rows.data(), hits.scores.data());
  int64_t itself = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    itself += hits.rows[static_cast<size_t>(3 * r)] == r;
    EXPECT(hits.scores[static_cast<size_t>(3 * r)] >= hits.scores[static_cast<size_t>(3 * r + 1)]);
  }
  EXPECT(itself >= kRows - 2);
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Cut short anywhere, or with bytes changed: refused, or a graph that can be searched.
void broken_files(const std::string& path, const std::vector<float>& vectors) {
  const std::string whole = bytes_of(path);
  mempo_graph* made = nullptr;
  for (size_t length : {size_t{0}, size_t{50}, size_t{100}, size_t{5000}, whole.size() - 1}) {
    write_bytes(path, whole.substr(0, length));
    FAILS(MEMPO_INVALID, path.c_str(), mempo_graph_open, path.c_str(), kDimensions, &made);
  }
  write_bytes(path, whole + "x");
  FAILS(MEMPO_INVALID, path.c_str(), mempo_graph_open, path.c_str(), kDimensions, &made);
  Random random{11};
  int opened = 0;
  for (int n = 0; n < 600; ++n) {
    std::string changed = whole;
    const auto place = static_cast<size_t>(random.below(static_cast<int32_t>(n % 3 == 0 ? 100 : whole.size())));
    changed[place] = static_cast<char>(random.below(256));
    write_bytes(path, changed);
    mempo_error error{};
    mempo_graph* graph = nullptr;
    const int code = mempo_graph_open(path.c_str(), kDimensions, &graph, &error);
    EXPECT(code == MEMPO_OK || code == MEMPO_INVALID);
    if (code != MEMPO_OK) continue;
    ++opened;
    Hits hits(5);
    OK(mempo_graph_search, graph, 1, vectors.data(), 20, 5, hits.rows.data(), hits.scores.data());
    mempo_graph_free(graph);
  }
  EXPECT(opened > 0);  // vectors are most of a file
  write_bytes(path, whole);
  FAILS(MEMPO_INVALID, "no graph", mempo_graph_open, path.c_str(), kDimensions + 1, &made);
  EXPECT(made == nullptr);
}

void graphs() {
  const std::vector<float> vectors = directions(1, kRows);
  const Graph graph = full_graph(vectors);
  finds_itself(graph.get(), vectors);
  FAILS(MEMPO_INVALID, "room", mempo_graph_add, graph.get(), 1, vectors.data());
  const std::string path = "/tmp/mempo-graph-" + std::to_string(getpid());
  OK(mempo_graph_save, graph.get(), path.c_str());
  mempo_graph* made = nullptr;
  OK(mempo_graph_open, path.c_str(), kDimensions, &made);
  const Graph again(made);
  finds_itself(again.get(), vectors);
  broken_files(path, vectors);
  std::remove(path.c_str());
  mempo_error error{};
  EXPECT(mempo_graph_save(graph.get(), "/nowhere/graph", &error) != MEMPO_OK);
}

void graphs_refuse() {
  const auto refused = [](const char* part, void (*change)(mempo_graph_config&)) {
    mempo_graph_config c = graph_config();
    change(c);
    mempo_graph* made = nullptr;
    FAILS(MEMPO_INVALID, part, mempo_graph_new, &c, &made);
    EXPECT(made == nullptr);
  };
  refused("dimensions", [](mempo_graph_config& c) { c.dimensions = 0; });
  refused("capacity", [](mempo_graph_config& c) { c.capacity = 0; });
  refused("neighbours", [](mempo_graph_config& c) { c.neighbours = 1; });
  refused("ef_construction", [](mempo_graph_config& c) { c.ef_construction = 0; });
  const mempo_graph_config c = graph_config();
  mempo_graph* made = nullptr;
  OK(mempo_graph_new, &c, &made);
  const Graph empty(made);
  std::vector<float> query(kDimensions, 1.0F);
  Hits hits(3);
  FAILS(MEMPO_INVALID, "no rows", mempo_graph_search, made, 1, query.data(), 5, 3, hits.rows.data(), hits.scores.data());
  query[3] = std::nanf("");
  FAILS(MEMPO_INVALID, "row 0 holds", mempo_graph_add, made, 1, query.data());
  EXPECT_EQUAL(mempo_graph_size(made), 0);
  query[3] = 0;
  OK(mempo_graph_add, made, 1, query.data());
  FAILS(MEMPO_INVALID, "ef of at least k", mempo_graph_search, made, 1, query.data(), 2, 3, hits.rows.data(), hits.scores.data());
  OK(mempo_graph_search, made, 1, query.data(), 3, 3, hits.rows.data(), hits.scores.data());
  EXPECT_EQUAL(hits.rows[0], 0);
  EXPECT_EQUAL(hits.rows[1], -1);
  FAILS(MEMPO_INVALID, "null", mempo_graph_add, nullptr, 0, nullptr);
  FAILS(MEMPO_INVALID, "null", mempo_graph_search, nullptr, 1, query.data(), 3, 3, hits.rows.data(), hits.scores.data());
  FAILS(MEMPO_INVALID, "null", mempo_graph_save, nullptr, "x");
  FAILS(MEMPO_INVALID, "null", mempo_graph_open, nullptr, kDimensions, &made);
  mempo_graph_free(nullptr);
}

// A build without hnswlib says so, and how to get it.
void graphs_left_out() {
  const mempo_graph_config c = graph_config();
  mempo_graph* made = nullptr;
  FAILS(MEMPO_INVALID, "libhnswlib-dev", mempo_graph_new, &c, &made);
  FAILS(MEMPO_INVALID, "libhnswlib-dev", mempo_graph_open, "x", kDimensions, &made);
}

}  // namespace

int main() {
  mempo_error error{};
  mempo_runtime_init(2, &error);
  exact();
  threads();
  no_numbers();
  exact_refuses();
  if (mempo_graph_available()) {
    graphs();
    graphs_refuse();
  } else {
    graphs_left_out();
  }
  EXPECT_EQUAL(mempo_live_handles(), 0);
  return failures();
}
