#include "groups.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "guard.h"

namespace mempo {

void check_rows(const PackedRows& given, int64_t vocab) {
  require(given.rows > 0, "a batch needs at least one row");
  require(given.offsets[0] == 0, "the first offset is not 0");
  for (int64_t r = 0; r < given.rows; ++r) {
    require(given.offsets[r] != given.offsets[r + 1], "row " + std::to_string(r) + " is empty");
    require(given.offsets[r] < given.offsets[r + 1], "the offsets of row " + std::to_string(r) + " descend");
  }
  for (int64_t t = 0; t < given.offsets[given.rows]; ++t) {
    require(given.ids[t] >= 0 && given.ids[t] < vocab,
            "token id " + std::to_string(given.ids[t]) + " is outside the vocabulary of " + std::to_string(vocab));
  }
  int64_t row = 0;
  for (int64_t k = 0; k < given.position_count; ++k) {
    const int64_t position = given.positions[k];
    require(position >= 0 && position < given.offsets[given.rows], "a position is outside the batch");
    require(k == 0 || position > given.positions[k - 1], "positions must ascend");
    while (position >= given.offsets[row + 1]) ++row;
    require(position > given.offsets[row], "the first token of a row cannot be scored");
  }
}

std::vector<RowGroup> cut_rows(const PackedRows& given, const std::vector<int64_t>& ends) {
  std::vector<RowGroup> groups;
  int64_t begin = 0, position = 0;
  for (const int64_t end : ends) {
    RowGroup group{begin, end, {}, given.ids + given.offsets[begin], {}, position};
    for (int64_t r = begin; r <= end; ++r) group.offsets.push_back(given.offsets[r] - given.offsets[begin]);
    for (; position < given.position_count && given.positions[position] < given.offsets[end]; ++position) {
      group.positions.push_back(given.positions[position] - given.offsets[begin]);
    }
    groups.push_back(std::move(group));
    begin = end;
  }
  return groups;
}

std::vector<RowGroup> cut_evenly(const PackedRows& given, int64_t count) {
  const int64_t tokens = given.offsets[given.rows];
  std::vector<int64_t> ends;
  for (int64_t n = 1; n <= count; ++n) {
    const int64_t* end = std::lower_bound(given.offsets + 1, given.offsets + given.rows, tokens * n / count);
    const int64_t row = n == count ? given.rows : end - given.offsets;
    if (row > (ends.empty() ? 0 : ends.back())) ends.push_back(row);
  }
  return cut_rows(given, ends);
}

void run_groups(const std::vector<RowGroup>& groups, const std::function<void(size_t, const RowGroup&)>& run) {
  if (groups.size() == 1) return run(0, groups[0]);
  at::parallel_for(0, static_cast<int64_t>(groups.size()), 1, [&](int64_t begin, int64_t end) {
    at::NoGradGuard no_grad;  // of this thread
    for (int64_t n = begin; n < end; ++n) run(static_cast<size_t>(n), groups[static_cast<size_t>(n)]);
  });
}

}  // namespace mempo
