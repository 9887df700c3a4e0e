// The threads of a block are fibers that take turns: each runs until it waits for others or ends.
#include "gpu.h"

#include <sanitizer/common_interface_defs.h>
#include <ucontext.h>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

namespace {

// Limits that hold on every GPU from compute capability 8.0 on (CUDA C++ Programming Guide, table of technical
// specifications); of shared memory, what those with the least have.
constexpr unsigned kMostThreads = 1024, kMostDepth = 64, kMostBlocks = 65535, kWarp = 32;
constexpr size_t kMostShared = 99 << 10, kStackBytes = 128 << 10;

enum class State { ready, waits_for_warp, waits_for_block, ended };

struct Thread {
  ucontext_t context;
  std::unique_ptr<unsigned char[]> stack{new unsigned char[kStackBytes]};
  void* sanitizer = nullptr;  // its own stack frames, while another runs
  dim3 index;
  State state;
  unsigned number, exchanges;
};

struct Warp {
  unsigned arrived;
  const char* operation;
  uint64_t values[2][kWarp];  // of this exchange and the one before, which slower lanes may still read
};

struct Machine {
  Order order = Order::ascending;
  std::mt19937 random{1};
  std::vector<std::unique_ptr<Thread>> threads;  // kept from launch to launch
  std::vector<Warp> warps;
  unsigned count = 0, arrived = 0;  // threads of a block; those that wait at its barrier
  unsigned char* shared = nullptr;
  const std::function<void()>* body = nullptr;
  Thread* running = nullptr;
  ucontext_t scheduler;
  const void* scheduler_stack = nullptr;
  size_t scheduler_stack_bytes = 0;
  std::string error;
};

Machine& machine() {
  static Machine m;
  return m;
}

// Gives the turn back to the scheduler.
void pause() {
  Machine& m = machine();
  Thread& self = *m.running;
  __sanitizer_start_switch_fiber(&self.sanitizer, m.scheduler_stack, m.scheduler_stack_bytes);
  swapcontext(&self.context, &m.scheduler);
  __sanitizer_finish_switch_fiber(self.sanitizer, nullptr, nullptr);
}

[[noreturn]] void end() {
  Machine& m = machine();
  m.running->state = State::ended;
  __sanitizer_start_switch_fiber(nullptr, m.scheduler_stack, m.scheduler_stack_bytes);
  setcontext(&m.scheduler);
  std::abort();
}

void enter() {
  Machine& m = machine();
  __sanitizer_finish_switch_fiber(nullptr, &m.scheduler_stack, &m.scheduler_stack_bytes);
  (*m.body)();
  end();
}

void resume(Thread& thread) {
  Machine& m = machine();
  m.running = &thread;
  threadIdx = thread.index;
  void* own = nullptr;
  __sanitizer_start_switch_fiber(&own, thread.stack.get(), kStackBytes);
  swapcontext(&m.scheduler, &thread.context);
  __sanitizer_finish_switch_fiber(own, nullptr, nullptr);
}

// The numbers up to `count` in the machine's order.
std::vector<unsigned> turns(unsigned count) {
  std::vector<unsigned> all(count);
  std::iota(all.begin(), all.end(), 0U);
  if (machine().order == Order::descending) std::reverse(all.begin(), all.end());
  if (machine().order == Order::shuffled) std::shuffle(all.begin(), all.end(), machine().random);
  return all;
}

void prepare_block() {
  Machine& m = machine();
  m.arrived = 0;
  m.warps.assign(m.count / kWarp, Warp{});
  while (m.threads.size() < m.count) m.threads.push_back(std::make_unique<Thread>());
  for (unsigned n = 0; n < m.count; ++n) {
    Thread& t = *m.threads[n];
    t.index = dim3(n % blockDim.x, n / blockDim.x % blockDim.y, n / blockDim.x / blockDim.y);
    t.state = State::ready;
    t.number = n;
    t.exchanges = 0;
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = t.stack.get();
    t.context.uc_stack.ss_size = kStackBytes;
    makecontext(&t.context, enter, 0);
  }
}

void run_block() {
  Machine& m = machine();
  prepare_block();
  for (bool progress = true; progress && m.error.empty();) {
    progress = false;
    for (const unsigned n : turns(m.count)) {
      if (m.threads[n]->state != State::ready || !m.error.empty()) continue;
      resume(*m.threads[n]);
      progress = true;
    }
  }
  for (unsigned n = 0; n < m.count && m.error.empty(); ++n) {
    if (m.threads[n]->state != State::ended) m.error = "a thread waits for others that have ended";
  }
}

void release(State waiting, unsigned begin, unsigned end) {
  for (unsigned n = begin; n < end; ++n) {
    if (machine().threads[n]->state == waiting) machine().threads[n]->state = State::ready;
  }
}

bool possible(Size grid, Size block, size_t shared_bytes) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z, blocks = uint64_t{grid.x} * grid.y * grid.z;
  return threads > 0 && threads <= kMostThreads && block.z <= kMostDepth && blocks > 0 && grid.x < 1U << 31 &&
         grid.y <= kMostBlocks && grid.z <= kMostBlocks && shared_bytes <= kMostShared;
}

}  // namespace

void set_order(Order order) { machine().order = order; }

unsigned char* shared_memory() { return machine().shared; }

void wait_for_block() {
  Machine& m = machine();
  if (++m.arrived == m.count) {
    m.arrived = 0;
    release(State::waits_for_block, 0, m.count);
    return;
  }
  m.running->state = State::waits_for_block;
  pause();
}

const uint64_t* exchange(const char* operation, unsigned mask, uint64_t value) {
  Machine& m = machine();
  Thread& self = *m.running;
  if (mask != 0xFFFFFFFF) m.error = std::string(operation) + " of a part of a warp";
  Warp& warp = m.warps[self.number / kWarp];
  if (warp.arrived > 0 && std::strcmp(warp.operation, operation) != 0) m.error = std::string(operation) + " meets " + warp.operation + " in one warp";
  if (!m.error.empty()) end();
  uint64_t* values = warp.values[self.exchanges++ % 2];
  values[self.number % kWarp] = value;
  warp.operation = operation;
  if (++warp.arrived == kWarp) {
    warp.arrived = 0;
    const unsigned first = self.number / kWarp * kWarp;
    release(State::waits_for_warp, first, first + kWarp);
  } else {
    self.state = State::waits_for_warp;
    pause();
  }
  return values;
}

const char* run(Size grid, Size block, size_t shared_bytes, const std::function<void()>& thread) {
  Machine& m = machine();
  if (!possible(grid, block, shared_bytes)) return "invalid configuration argument";
  m.count = block.x * block.y * block.z;
  if (m.count % kWarp != 0) return "a block of parts of warps";
  // To the byte as large as asked for, so that the address sanitizer sees what goes beyond.
  const auto shared = std::make_unique<unsigned char[]>(shared_bytes);
  m.shared = shared.get();
  m.body = &thread;
  m.error.clear();
  gridDim = dim3(grid.x, grid.y, grid.z);
  blockDim = dim3(block.x, block.y, block.z);
  for (const unsigned n : turns(grid.x * grid.y * grid.z)) {
    blockIdx = dim3(n % grid.x, n / grid.x % grid.y, n / grid.x / grid.y);
    std::memset(m.shared, 0xFF, shared_bytes);  // NaN as float32 and as bfloat16: nothing is there before it is written
    run_block();
    if (!m.error.empty()) return m.error.c_str();
  }
  return nullptr;
}

}  // namespace emulation
