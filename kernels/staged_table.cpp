#include "staged_table.h"

#include <algorithm>

namespace mempo::kernels {

StagedTable::StagedTable(Staging& staging, int64_t rows, int64_t tokens, int64_t pages)
    : pages_(staging.add<int64_t>(pages)), first_page_(staging.add<int32_t>(rows)), past_(staging.add<int32_t>(rows)),
      begin_(staging.add<int32_t>(rows)), row_(staging.add<int32_t>(tokens)) {}

void StagedTable::fill(const Staging& staging, const std::vector<PagedRow>& rows) const {
  int64_t* pages = staging.host(pages_);
  int32_t *first_page = staging.host(first_page_), *row = staging.host(row_);
  std::fill_n(row, row_.count, -1);
  int32_t page = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const PagedRow& s = rows[r];
    first_page[r] = page;
    staging.host(past_)[r] = static_cast<int32_t>(s.past);
    staging.host(begin_)[r] = static_cast<int32_t>(s.begin);
    for (void* const address : s.pages) pages[page++] = static_cast<int64_t>(reinterpret_cast<intptr_t>(address));
    std::fill_n(row + s.begin, s.tokens, static_cast<int32_t>(r));
  }
}

cuda::PagedTable StagedTable::at_layer(const Staging& staging, const PageShape& shape, int64_t layer) const {
  const int64_t values = shape.kv_heads * shape.page_tokens * shape.d;
  return {staging.device(pages_), staging.device(first_page_), staging.device(past_), staging.device(begin_),
          staging.device(row_), layer * 2 * values, values, static_cast<int32_t>(shape.page_tokens)};
}

int64_t page_count(const std::vector<PagedRow>& rows) {
  int64_t count = 0;
  for (const PagedRow& row : rows) count += static_cast<int64_t>(row.pages.size());
  return count;
}

}  // namespace mempo::kernels
