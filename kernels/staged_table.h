// Tells the kernels of CUDA where the keys and values of a packed batch lie.
#pragma once

#include "cuda.h"
#include "kernels.h"
#include "transfer.h"

namespace mempo::kernels {

struct PageShape {
  int64_t kv_heads, page_tokens, d;
};

// A cuda::PagedTable for at most so many rows, tokens and pages, in sections of a staging buffer.
class StagedTable {
 public:
  StagedTable(Staging& staging, int64_t rows, int64_t tokens, int64_t pages);

  // Fills the sections on the host; tokens in none of the rows are of no row.
  void fill(const Staging& staging, const std::vector<PagedRow>& rows) const;
  // The table on the device, for one layer.
  cuda::PagedTable at_layer(const Staging& staging, const PageShape& shape, int64_t layer) const;

 private:
  Staging::Section<int64_t> pages_;
  Staging::Section<int32_t> first_page_, past_, begin_, row_;
};

// Pages of all rows together.
int64_t page_count(const std::vector<PagedRow>& rows);

}  // namespace mempo::kernels
