// The GPU in software: what it computes, and what it refuses.
#define MEMPO_EMULATED
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "device.cuh"

using namespace mempo::kernels::cuda;

namespace {

// Each thread gives its number to the next one by shared memory.
template <bool waits>
__global__ void pass_on(int* out) {
  __shared__ int numbers[64];
  numbers[(threadIdx.x + 1) % blockDim.x] = static_cast<int>(threadIdx.x + blockIdx.x);
  if (waits) __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = numbers[threadIdx.x];
  __syncthreads();
  numbers[threadIdx.x] = -1;
}

__global__ void sum(float* out) {
  float* shared = reinterpret_cast<float*>(shared_memory());
  if (shared[threadIdx.x] == shared[threadIdx.x]) out[1] = -1;  // nobody has written it
  const float whole = block_sum(static_cast<float>(threadIdx.x));
  if (threadIdx.x == 0) out[0] = whole;
}

__global__ void half_waits() {
  if (threadIdx.x < 32) __syncthreads();
}
__global__ void half_exchanges() {
  if (threadIdx.x % 2 == 0) warp_sum(1);
}
__global__ void different_exchanges() { threadIdx.x % 2 == 0 ? __syncwarp() : void(__shfl_sync(kWholeWarp, 1, 0)); }
__global__ void part_of_a_warp() { __shfl_xor_sync(0xFFFF, 1, 1); }
__global__ void nothing() {}

std::vector<int> passed_on(void (*kernel)(int*), emulation::Order order) {
  std::vector<int> out(3 * 64);
  emulation::set_order(order);
  EXPECT(launch(kernel, 3, 64, 0, nullptr, out.data()) == nullptr);
  return out;
}

void a_missing_barrier_shows() {
  std::set<std::vector<int>> with, without;
  for (const auto order : {emulation::Order::ascending, emulation::Order::descending, emulation::Order::shuffled}) {
    with.insert(passed_on(pass_on<true>, order));
    without.insert(passed_on(pass_on<false>, order));
  }
  EXPECT_EQUAL(with.size(), size_t{1});
  EXPECT_EQUAL((*with.begin())[64 + 5], 4 + 1);
  EXPECT(without.size() > 1);
}

void sums_are_those_of_all_threads() {
  for (const unsigned threads : {32U, 64U, 1024U}) {
    float out[2] = {};
    EXPECT(launch(sum, 1, threads, threads * sizeof(float), nullptr, out) == nullptr);
    EXPECT_EQUAL(out[0], static_cast<float>(threads * (threads - 1) / 2));
    EXPECT_EQUAL(out[1], 0);
  }
}

void fails(void (*kernel)(), dim3 grid, dim3 block, size_t shared, const std::string& why) {
  const char* error = launch(kernel, grid, block, shared, nullptr);
  EXPECT(error != nullptr);
  if (error != nullptr) EXPECT(std::string(error).find(why) != std::string::npos);
}

void what_no_gpu_does_is_refused() {
  fails(half_waits, 1, 64, 0, "waits for others");
  fails(half_exchanges, 1, 32, 0, "waits for others");
  fails(different_exchanges, 1, 32, 0, "meets");
  fails(part_of_a_warp, 1, 32, 0, "part of a warp");
  fails(nothing, 0, 32, 0, "configuration");
  fails(nothing, 1, 2048, 0, "configuration");
  fails(nothing, dim3(1, 65536), 32, 0, "configuration");
  fails(nothing, 1, 32, 100 << 10, "configuration");
  fails(nothing, 1, 48, 0, "parts of warps");
  EXPECT(launch(nothing, 2, dim3(8, 4), 0, nullptr) == nullptr);
}

}  // namespace

int main() {
  a_missing_barrier_shows();
  sums_are_those_of_all_threads();
  what_no_gpu_does_is_refused();
  return failures();
}
