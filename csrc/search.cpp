// Exact search: products of a batch of queries with blocks of rows, each ranked while it lies in the cache.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <atomic>
#include <vector>

#include "guard.h"
#include "ranking.h"
#include "vector.h"

namespace mempo {

namespace {

// Scores compared at a time with what a score must reach.
constexpr int64_t kStride = 64;

MEMPO_VECTORIZED bool any_reaches(const float* scores, int64_t n, float threshold) {
  int found = 0;
#pragma omp simd reduction(| : found)
  for (int64_t j = 0; j < n; ++j) found |= scores[j] >= threshold;
  return found != 0;
}

void rank(const float* scores, int64_t n, int64_t first_row, Ranking& ranking) {
  for (int64_t begin = 0; begin < n; begin += kStride) {
    const int64_t end = std::min(n, begin + kStride);
    if (!any_reaches(scores + begin, end - begin, ranking.threshold())) continue;
    for (int64_t j = begin; j < end; ++j) {
      if (scores[j] >= ranking.threshold()) ranking.offer({scores[j], static_cast<int32_t>(first_row + j)});
    }
  }
}

// Rows of a block: its scores fill a part of a core's cache. Blocks do not depend on the number of threads, and so neither
// do the sums.
int64_t block_rows(int64_t queries) { return std::clamp<int64_t>((int64_t{1} << 17) / queries, 256, 4096); }

struct Search {
  const at::Tensor queries;  // [count, dimensions]
  const at::Tensor vectors;  // [rows, dimensions]
  int64_t block;
  std::atomic<int64_t> next{0};  // block

  // Takes blocks until none are left.
  void work(std::vector<Ranking>& rankings) {
    const int64_t count = queries.size(0), rows = vectors.size(0);
    at::Tensor scores = at::empty({count, block});
    for (int64_t begin; (begin = block * next.fetch_add(1)) < rows;) {
      const int64_t n = std::min(block, rows - begin);
      if (n < block) scores = at::empty({count, n});
      at::mm_out(scores, queries, vectors.narrow(0, begin, n).t());
      const float* all = scores.const_data_ptr<float>();
      for (int64_t q = 0; q < count; ++q) rank(all + q * n, n, begin, rankings[static_cast<size_t>(q)]);
    }
  }
};

at::Tensor matrix(const float* data, int64_t rows, int64_t columns) {
  return at::from_blob(const_cast<float*>(data), {rows, columns}, at::kFloat);
}

}  // namespace

}  // namespace mempo

int mempo_search_exact(int64_t count, const float* queries, int64_t rows, const float* vectors, int64_t dimensions, int64_t k,
                       int32_t* out_rows, float* out_scores, mempo_error* error) {
  return mempo::guarded(error, [&] {
    mempo::require(count >= 1 && dimensions >= 1 && k >= 1, "a search needs a query, a dimension and a k of at least 1");
    mempo::require(rows >= 0 && rows <= INT32_MAX, "a search takes up to 2147483647 rows");
    at::NoGradGuard no_grad;
    mempo::Search search{mempo::matrix(queries, count, dimensions), mempo::matrix(vectors, rows, dimensions), mempo::block_rows(count)};
    const int64_t limit = std::min(k, std::max<int64_t>(rows, 1));
    std::vector<std::vector<mempo::Ranking>> found(static_cast<size_t>(at::get_num_threads()),
                                                   std::vector<mempo::Ranking>(static_cast<size_t>(count), mempo::Ranking(limit)));
    at::parallel_for(0, static_cast<int64_t>(found.size()), 1, [&](int64_t begin, int64_t end) {
      at::NoGradGuard no_grad_here;
      for (int64_t n = begin; n < end; ++n) search.work(found[static_cast<size_t>(n)]);
    });
    for (int64_t q = 0; q < count; ++q) {
      mempo::Ranking best(k);
      for (const auto& rankings : found) {
        for (const mempo::Hit& hit : rankings[static_cast<size_t>(q)].hits()) best.offer(hit);
      }
      best.write(out_rows + q * k, out_scores + q * k);
    }
  });
}
