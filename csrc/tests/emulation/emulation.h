// A GPU in software, for tests on machines without one: the code of the kernels is compiled as C++ and run thread by
// thread. What it shows is whether the arithmetic and the order of reads and writes are right, not how fast they are.
// One kernel runs at a time; a call is not safe from two threads.
#pragma once

#include <cstddef>
#include <functional>

namespace emulation {

// In which order threads between two barriers, and blocks, take their turn. A kernel that lacks a barrier, or whose blocks
// depend on each other, gives other results in another order.
enum class Order { ascending, descending, shuffled };
void set_order(Order order);

// Runs `thread` once for every thread of a grid. Returns what is wrong, or null: sizes that no GPU takes, or threads that
// wait for others that never come.
struct Size {
  unsigned x, y, z;
};
const char* run(Size grid, Size block, size_t shared_bytes, const std::function<void()>& thread);

}  // namespace emulation
