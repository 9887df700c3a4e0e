// The CUDA forms of attention over pages and of what goes into them, on a GPU in software, against softmax attention in float64
// and plain operations.
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

// Rows of past and new tokens with pages that have room for both; the last token of the batch is of no row.
struct Batch {
  at::Tensor all, q, k, v;
  std::vector<kernels::PagedRow> rows;             // without pages
  std::vector<std::vector<at::Tensor>> pages;      // of each row

  Batch(const Shape& shape, const std::vector<std::pair<int64_t, int64_t>>& lengths, at::ScalarType type) {
    int64_t tokens = 0;
    for (const auto& [past, length] : lengths) {
      kernels::PagedRow row{{}, past, tokens, length};
      pages.emplace_back();
      for (int64_t done = 0; done < past + length; done += kPageTokens) {
        pages.back().push_back(at::randn({kLayers, 2, shape.kv_heads, kPageTokens, shape.d}).to(type));
      }
      rows.push_back(row);
      tokens += length;
    }
    // Views of one wider buffer, as the model's projections give them.
    all = at::randn({tokens + 1, shape.heads + 2 * shape.kv_heads, shape.d}).to(type);
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

  // What `launch` makes of a table of the rows, and the pages of all rows.
  template <typename Launch>
  std::vector<at::Tensor> run(const Launch& launch) const {
    std::vector<kernels::PagedRow> fresh = rows;
    std::vector<at::Tensor> results{at::Tensor()};
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
    results[0] = launch(table.at_layer(staging, {k.size(1), kPageTokens, k.size(2)}, kLayer));
    return results;
  }
  std::vector<at::Tensor> attend() const {
    return run([&](const cuda::PagedTable& table) {
      at::Tensor out = at::full({q.size(0), q.size(1) * q.size(2)}, 777, q.options());
      cuda::paged_attention(*mempo_cuda_kernels(), q, k, v, table, out);
      return out;
    });
  }
};

void attention_matches(const Shape& shape, const std::vector<std::pair<int64_t, int64_t>>& lengths, at::ScalarType type) {
  Batch batch(shape, lengths, type);
  const auto found = in_every_order([&] { return batch.attend(); });
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const kernels::PagedRow& row = batch.rows[r];
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, row.begin, row.tokens); };
    const auto behind = [&](const at::Tensor& past, const at::Tensor& x) { return at::cat({past.narrow(1, 0, row.past), own(x).transpose(0, 1)}, 1); };
    const at::Tensor cached = batch.cached(r);
    const at::Tensor wanted = written_out(own(batch.q), behind(cached[0], batch.k), behind(cached[1], batch.v), row.past);
    EXPECT(distance(own(found[0]), wanted, 1e-5, rounding(type)) <= 1);
  }
  EXPECT(found[0][batch.q.size(0) - 1].eq(777).all().item<bool>());
}

// Queries and keys turn, of all tokens; keys and values of the rows' tokens lie in the pages then, and nothing else has changed.
void appending_matches(const Shape& shape, const std::vector<std::pair<int64_t, int64_t>>& lengths, at::ScalarType type) {
  Batch batch(shape, lengths, type);
  const at::Tensor angles = at::randn({batch.all.size(0), shape.d / 2}).mul(30), cos = angles.cos().to(type), sin = angles.sin().to(type);
  const auto found = in_every_order([&] {
    return batch.run([&](const cuda::PagedTable& table) {
      const at::Tensor turned = batch.all.clone();
      cuda::rotate_and_append_(*mempo_cuda_kernels(), turned, shape.kv_heads, cos, sin, table);
      return turned;
    });
  });
  const int64_t turning = shape.heads + shape.kv_heads;
  at::Tensor wanted = batch.all.to(at::kDouble);
  kernels::plain::rotate_(wanted.narrow(1, 0, turning), cos.to(at::kDouble), sin.to(at::kDouble), 1);
  EXPECT(distance(found[0], wanted, 3 * rounding(type), rounding(type)) <= 1);
  EXPECT(emulated::same_bits(found[0].narrow(1, turning, shape.kv_heads), batch.v));
  size_t next = 1;
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const kernels::PagedRow& row = batch.rows[r];
    for (int64_t t = 0; t < row.tokens; ++t) {
      const int64_t place = row.past + t;
      const at::Tensor token = found[0][row.begin + t].narrow(0, shape.heads, 2 * shape.kv_heads).view({2, shape.kv_heads, shape.d});
      batch.pages[r][static_cast<size_t>(place / kPageTokens)][kLayer].select(2, place % kPageTokens).copy_(token);
    }
    for (const at::Tensor& page : batch.pages[r]) EXPECT(emulated::same_bits(found[next++], page));
  }
}

void appendings_match() {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    appending_matches({1, 1, 64}, {{0, 1}, {63, 1}, {64, 1}, {65, 1}, {0, 3}, {300, 1}}, type);
    appending_matches({14, 2, 64}, {{127, 2}, {5, 1}, {60, 9}}, type);
    appending_matches({4, 2, 256}, {{0, 130}, {63, 66}}, type);  // over pages
    appending_matches({3, 1, 34}, {{66, 2}}, type);
    appending_matches({5, 2, 2}, {}, type);
  }
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
  EXPECT(distance(in_every_order([&] { return batch.attend(); })[0].narrow(0, 0, 1), wanted, 1e-4, 1e-5) <= 1);
}

}  // namespace

int main() {
  at::manual_seed(1);
  shapes_match();
  lengths_match();
  extremes_match();
  appendings_match();
  return failures();
}
