// The CUDA form of attention over pages, on a GPU in software, against softmax attention in float64.
#include "cuda_attention.h"
#include "emulated.h"
#include "staged_table.h"
#include "written_out.h"

namespace kernels = mempo::kernels;
namespace cuda = mempo::kernels::cuda;
using emulated::distance;
using emulated::in_every_order;
using emulated::rounding;

namespace {

constexpr int64_t kPageTokens = 64, kLayers = 2, kLayer = 1;

struct Shape {
  int64_t heads, kv_heads, d;
};

// Rows of past and new tokens with their pages. Every other row keeps its new tokens; the last token of the batch is of no
// row.
struct Batch {
  at::Tensor q, k, v;
  std::vector<kernels::PagedRow> rows;             // without pages
  std::vector<std::vector<at::Tensor>> pages;      // of each row

  Batch(const Shape& shape, const std::vector<std::pair<int64_t, int64_t>>& lengths, at::ScalarType type) {
    int64_t tokens = 0;
    for (const auto& [past, length] : lengths) {
      kernels::PagedRow row{{}, past, tokens, length, /*keep=*/rows.size() % 2 == 0};
      pages.emplace_back();
      for (int64_t done = 0; done < past + (row.keep ? length : 0); done += kPageTokens) {
        pages.back().push_back(at::randn({kLayers, 2, shape.kv_heads, kPageTokens, shape.d}).to(type));
      }
      rows.push_back(row);
      tokens += length;
    }
    // Views of one wider buffer, as the model's projections give them.
    const at::Tensor all = at::randn({tokens + 1, shape.heads + 2 * shape.kv_heads, shape.d}).to(type);
    q = all.narrow(1, 0, shape.heads);
    k = all.narrow(1, shape.heads, shape.kv_heads);
    v = all.narrow(1, shape.heads + shape.kv_heads, shape.kv_heads);
  }

  // The layer's pages of a row as one tensor [2, kv_heads, tokens, d].
  at::Tensor cached(size_t row) const {
    std::vector<at::Tensor> all{at::empty({2, k.size(1), 0, k.size(2)}, k.options())};
    for (const at::Tensor& page : pages[row]) all.push_back(page[kLayer]);
    return at::cat(all, 2);
  }

  // The result, and the pages of all rows.
  std::vector<at::Tensor> run() const {
    std::vector<kernels::PagedRow> fresh = rows;
    std::vector<at::Tensor> results{at::full({q.size(0), q.size(1) * q.size(2)}, 777, q.options())};
    for (size_t r = 0; r < rows.size(); ++r) {
      for (const at::Tensor& page : pages[r]) {
        results.push_back(page.clone());
        fresh[r].pages.push_back(results.back().mutable_data_ptr());
      }
    }
    kernels::Staging staging;
    const kernels::StagedTable table(staging, static_cast<int64_t>(rows.size()), q.size(0), kernels::page_count(fresh));
    staging.allocate(at::kCPU);
    table.fill(staging, fresh);
    staging.upload();
    cuda::paged_attention(*mempo_cuda_kernels(), q, k, v, table.at_layer(staging, {k.size(1), kPageTokens, k.size(2)}, kLayer), results[0]);
    return results;
  }
};

void attention_matches(const Shape& shape, const std::vector<std::pair<int64_t, int64_t>>& lengths, at::ScalarType type) {
  Batch batch(shape, lengths, type);
  const auto found = in_every_order([&] { return batch.run(); });
  size_t next = 1;
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const kernels::PagedRow& row = batch.rows[r];
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, row.begin, row.tokens); };
    const auto behind = [&](const at::Tensor& past, const at::Tensor& x) { return at::cat({past.narrow(1, 0, row.past), own(x).transpose(0, 1)}, 1); };
    const at::Tensor cached = batch.cached(r);
    const at::Tensor wanted = written_out(own(batch.q), behind(cached[0], batch.k), behind(cached[1], batch.v), row.past);
    EXPECT(distance(own(found[0]), wanted, 1e-5, rounding(type)) <= 1);
    // What the pages hold afterwards: the new tokens of a row that keeps them, and else what was there.
    if (row.keep) cached.narrow(2, row.past, row.tokens).copy_(at::stack({own(batch.k), own(batch.v)}).transpose(1, 2));
    std::vector<at::Tensor> pages;
    for (const at::Tensor& page : batch.pages[r]) {
      EXPECT(emulated::same_bits(found[next][0], page[0]));  // the other layer
      pages.push_back(found[next++][kLayer]);
    }
    if (!pages.empty()) EXPECT(emulated::same_bits(at::cat(pages, 2), cached));
  }
  EXPECT(found[0][batch.q.size(0) - 1].eq(777).all().item<bool>());
}

void shapes_match() {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    attention_matches({1, 1, 64}, {{0, 1}, {63, 1}, {64, 1}, {65, 1}, {0, 3}, {300, 1}}, type);
    attention_matches({9, 3, 64}, {{31, 2}, {130, 3}}, type);
    attention_matches({14, 2, 64}, {{127, 2}, {5, 1}}, type);
    attention_matches({8, 1, 128}, {{200, 1}, {0, 2}}, type);
    attention_matches({7, 1, 128}, {{63, 3}}, type);
    attention_matches({12, 1, 80}, {{70, 1}, {64, 2}}, type);
    attention_matches({4, 2, 256}, {{90, 1}, {1, 2}}, type);
    attention_matches({2, 2, 10}, {{9, 3}, {128, 1}}, type);  // rows that no wide access reaches
    attention_matches({3, 1, 34}, {{66, 2}}, type);
  }
}

void lengths_match() {
  std::vector<std::pair<int64_t, int64_t>> rows;
  for (int64_t length = 0; length < 300; length += 23) rows.push_back({length, 1});
  attention_matches({4, 2, 64}, rows, at::kFloat);
  for (int64_t n = 0; n < 40; ++n) rows.push_back({n % 5, 13});  // so many tokens that each is one share
  attention_matches({2, 1, 16}, rows, at::kBFloat16);
}

void extremes_match() {
  Batch batch({2, 1, 64}, {{100, 1}}, at::kFloat);
  batch.q.mul_(300);  // all weight on one key, scores beyond ±1000
  const at::Tensor cached = batch.cached(0).narrow(2, 0, 100);
  const at::Tensor wanted = written_out(batch.q.narrow(0, 0, 1), at::cat({cached[0], batch.k.narrow(0, 0, 1).transpose(0, 1)}, 1),
                                        at::cat({cached[1], batch.v.narrow(0, 0, 1).transpose(0, 1)}, 1), 100);
  EXPECT(distance(in_every_order([&] { return batch.run(); })[0].narrow(0, 0, 1), wanted, 1e-4, 1e-5) <= 1);
}

}  // namespace

int main() {
  at::manual_seed(1);
  shapes_match();
  lengths_match();
  extremes_match();
  return failures();
}
