// What the kernels use of CUDA's language and library, for an ordinary C++ compiler. Only their files include it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulation.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// Blocks run one after the other, so that one copy serves them all.
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1) : x(of_x), y(of_y), z(of_z) {}
};

// Of the thread that runs.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

unsigned char* shared_memory();
void wait_for_block();
// Gives a value to the warp and waits for those of its 32 lanes. `operation` must be the same in all of them.
const uint64_t* exchange(const char* operation, unsigned mask, uint64_t value);

template <typename T>
T lane_value(const char* operation, unsigned mask, T value, int lane) {
  static_assert(sizeof(T) <= sizeof(uint64_t), "a lane hands over up to 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(operation, mask, bits)[lane & 31];
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace emulation

inline void __syncthreads() { emulation::wait_for_block(); }
inline void __syncwarp(unsigned mask = 0xFFFFFFFF) { emulation::exchange("__syncwarp", mask, 0); }

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return emulation::lane_value("__shfl_sync", mask, value, lane);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return emulation::lane_value("__shfl_xor_sync", mask, value, static_cast<int>(threadIdx.x) ^ lanes);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, int lanes) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return emulation::lane_value("__shfl_down_sync", mask, value, lane + lanes < 32 ? lane + lanes : lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, int lanes) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return emulation::lane_value("__shfl_up_sync", mask, value, lane >= lanes ? lane - lanes : lane);
}
inline unsigned __ballot_sync(unsigned mask, bool value) {
  const uint64_t* values = emulation::exchange("__ballot_sync", mask, value ? 1 : 0);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= static_cast<unsigned>(values[lane]) << lane;
  return bits;
}
inline bool __any_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) != 0; }
inline bool __all_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) == 0xFFFFFFFF; }

inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline float __int_as_float(int bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline int __float_as_int(float x) {
  int bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
using std::max;
using std::min;
