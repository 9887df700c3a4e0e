// What all kernels share: element types, wide reads and writes, sums over a block, launches. Arithmetic is in float32.
//
// With MEMPO_EMULATED an ordinary C++ compiler compiles the same code for a GPU in software (csrc/tests/emulation), so that
// tests can run it on machines without one.
#pragma once

#ifdef MEMPO_EMULATED
#include "emulation/gpu.h"
#else
#include <cuda_runtime.h>
#endif

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "cuda.h"

namespace mempo::kernels::cuda {

constexpr unsigned kWarp = 32, kWholeWarp = 0xFFFFFFFF;

// The upper half of a float32.
struct bfloat16 {
  uint16_t bits;
};

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(bfloat16 x) { return __int_as_float(static_cast<int>(static_cast<uint32_t>(x.bits) << 16)); }

template <typename T>
__device__ __forceinline__ T narrow(float x);
template <>
__device__ __forceinline__ float narrow<float>(float x) {
  return x;
}
// To the nearest, ties to even.
template <>
__device__ __forceinline__ bfloat16 narrow<bfloat16>(float x) {
  if (x != x) return {0x7FC0};
  const auto bits = static_cast<uint32_t>(__float_as_int(x));
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

// A number as it is after a round trip through T.
template <typename T>
__device__ __forceinline__ float rounded(float x) {
  return widen(narrow<T>(x));
}

template <int N>
struct Floats {
  float at[N];
};

template <typename T, int N>
struct alignas(N * sizeof(T)) Piece {
  T at[N];
};

// N elements by one access; their address must be a multiple of their size together.
template <int N, typename T>
__device__ __forceinline__ Floats<N> load(const T* address) {
  const Piece<T, N> piece = *reinterpret_cast<const Piece<T, N>*>(address);
  Floats<N> x;
#pragma unroll
  for (int k = 0; k < N; ++k) x.at[k] = widen(piece.at[k]);
  return x;
}
template <int N, typename T>
__device__ __forceinline__ void store(T* address, const Floats<N>& x) {
  Piece<T, N> piece;
#pragma unroll
  for (int k = 0; k < N; ++k) piece.at[k] = narrow<T>(x.at[k]);
  *reinterpret_cast<Piece<T, N>*>(address) = piece;
}

// The elements of one access of 16 bytes.
template <typename T>
constexpr int kWide = 16 / sizeof(T);

// Whether addresses and strides (in elements of T) allow accesses of 16 bytes.
template <typename T>
bool wide_addresses(std::initializer_list<const void*> addresses) {
  for (const void* address : addresses) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  }
  return true;
}
template <typename T>
bool wide_strides(std::initializer_list<int64_t> strides) {
  for (const int64_t stride : strides) {
    if (stride % kWide<T> != 0) return false;
  }
  return true;
}

// The sum over a warp, the same bits in every lane.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kWholeWarp, x, lanes);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, lanes));
  return x;
}

// The sum over a block of one dimension, the same bits in every thread and run.
__device__ __forceinline__ float block_sum(float x) {
  __shared__ float sums[kWarp];
  x = warp_sum(x);
  __syncthreads();  // those of an earlier sum are read
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) sum += sums[w];
  return sum;
}

// Memory that the threads of a block share, as large as its launch says, aligned to 16 bytes.
__device__ __forceinline__ unsigned char* shared_memory() {
#ifdef MEMPO_EMULATED
  return emulation::shared_memory();
#else
  extern __shared__ __align__(16) unsigned char memory[];
  return memory;
#endif
}

// Whole warps, enough for `work` items but not more than `most` threads.
inline unsigned threads_for(int64_t work, unsigned most) {
  const int64_t warps = (work + kWarp - 1) / kWarp;
  return static_cast<unsigned>(warps < 1 ? kWarp : warps * kWarp < most ? warps * kWarp : most);
}

// Blocks of so many, enough for all.
inline unsigned blocks_for(int64_t count, unsigned each) { return static_cast<unsigned>((count + each - 1) / each); }

// Starts a kernel; null, or what is wrong. A grid of no blocks is wrong: whoever has nothing to do must not launch.
template <typename... Parameters, typename... Arguments>
const char* launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, void* stream, Arguments... arguments) {
#ifdef MEMPO_EMULATED
  (void)stream;
  return emulation::run({grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes, [&] { kernel(arguments...); });
#else
  constexpr size_t kWithoutAsking = 48 << 10;
  if (shared_bytes > kWithoutAsking) {
    const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (allowed != cudaSuccess) return cudaGetErrorString(allowed);
  }
  kernel<<<grid, block, shared_bytes, static_cast<cudaStream_t>(stream)>>>(static_cast<Parameters>(arguments)...);
  const cudaError_t started = cudaGetLastError();
  return started == cudaSuccess ? nullptr : cudaGetErrorString(started);
#endif
}

// Where a row begins, in elements.
__device__ __forceinline__ int64_t row_start(const RowLayout& layout, int64_t row) {
  return row / layout.inner * layout.outer_stride + row % layout.inner * layout.inner_stride;
}

// Calls body with a null pointer of the type that the elements have: by_type(elements, [&](auto* of) { ... }).
template <typename Body>
const char* by_type(Elements elements, const Body& body) {
  return elements == Elements::float32 ? body(static_cast<float*>(nullptr)) : body(static_cast<bfloat16*>(nullptr));
}

}  // namespace mempo::kernels::cuda
