// The rows of a call in groups that run side by side. The products of a small model are too small for several threads;
// several groups of its rows are not, and they wait for each other only once in a call.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace mempo {

// Rows [begin, end) of a call, and what they have of its packed arrays.
struct RowGroup {
  int64_t begin, end;
  std::vector<int64_t> offsets;    // of these rows, from 0
  const int32_t* ids;
  std::vector<int64_t> positions;  // those that lie in these rows, from the first of their ids
  int64_t first_position;          // index of the first of them in the call
  int64_t rows() const { return end - begin; }
};

// Packed rows as the caller gave them.
struct PackedRows {
  int64_t rows;
  const int64_t* offsets;
  const int32_t* ids;
  int64_t position_count;
  const int64_t* positions;
};

// Checks offsets, ids and positions (ascending indices into the packed ids, never the first token of a row).
void check_rows(const PackedRows& given, int64_t vocab);
// Cuts checked rows at `ends`, ascending, the last of which is the number of rows.
std::vector<RowGroup> cut_rows(const PackedRows& given, const std::vector<int64_t>& ends);
// Cuts them into at most `count` groups of about equal numbers of tokens.
std::vector<RowGroup> cut_evenly(const PackedRows& given, int64_t count);

// Calls run(index, group) for each; several run at the same time, and each then on one thread.
void run_groups(const std::vector<RowGroup>& groups, const std::function<void(size_t, const RowGroup&)>& run);

}  // namespace mempo
