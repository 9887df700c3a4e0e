// Attention of new tokens behind what a cache holds of their rows.
#pragma once

#include <optional>
#include <vector>

#include "attention.h"
#include "kernels.h"
#include "kv_cache.h"
#include "staged_table.h"

namespace mempo {

// New tokens of a packed batch behind the first `past` tokens of a row.
struct Stretch {
  KVCache::Row* row;
  int64_t past, begin, tokens;
  bool keep;  // in the row
};

// Which kernels serve a cache: those of a device for all heads up to a width, or none.
enum class CacheKernels { none, cpu, cuda };

// What the kernels are told of stretches.
kernels::PagedRows paged_rows(const std::vector<Stretch>& stretches);
// The shape of a cache's pages at one layer.
kernels::PageShape page_shape(const KVCache& cache);

// Attends over the pages of each row and the new tokens behind them, whose keys and values it keeps where they stay.
// Few tokens, as in decoding, go through one kernel for all rows where there is one, on the CPU or on CUDA; longer stretches
// behind the same tokens look at these together.
class CachedAttention final : public Attention {
 public:
  CachedAttention(const KVCache& cache, const std::vector<Stretch>& stretches);

  void rotate_(int64_t layer, const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin) override;
  Attended attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;

 private:
  static constexpr int64_t kFewTokens = 16;

  // Stretches that follow each other in the batch, all behind the same tokens.
  struct Run {
    const KVCache::Row* row;
    int64_t past, begin;
    std::vector<int64_t> lengths;
    int64_t tokens() const;
  };
  static bool continues(const Run& run, const Stretch& s);

  void attend_short(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::Tensor& out);
  void stage(int64_t tokens, at::Device device);
  kernels::cuda::PagedTable at_layer(const std::optional<kernels::StagedTable>& table, int64_t layer) const;

  const KVCache& cache_;
  const CacheKernels kernels_;
  std::vector<Stretch> kept_;
  std::vector<Run> long_;
  kernels::PagedRows short_, kept_rows_;  // the short ones go through a kernel
  kernels::Staging staging_;              // where kernels of CUDA read of them, from the first layer on
  std::optional<kernels::StagedTable> short_table_, kept_table_;
};

}  // namespace mempo
