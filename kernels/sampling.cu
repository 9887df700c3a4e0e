// Drawing a token for each row of logits on CUDA: a block for each row, the same inverse of the cumulative distribution at the
// same number as the CPU form, so that both draw alike up to rounding.
#include "device.cuh"

namespace mempo::kernels::cuda {

namespace {

constexpr int kThreads = 512, kWarps = kThreads / kWarp;
constexpr int kSegments = 128;  // of a row; a draw adds up their masses, then those of one segment's ids

struct Best {
  float logit;
  int64_t id;  // −1: none
};

__device__ __forceinline__ Best better(const Best& a, const Best& b) {
  if (a.id < 0 || b.id < 0) return a.id < 0 ? b : a;
  if (a.logit != b.logit) return a.logit > b.logit ? a : b;
  return a.id < b.id ? a : b;
}

struct Row {
  const float* logits;
  int64_t vocab, segment;  // ids of a segment
  const uint8_t* valid;    // null: every id
  int64_t valid_count;
  float shift, factor;

  __device__ __forceinline__ bool is_valid(int64_t id) const { return valid == nullptr || (id < valid_count && valid[id] != 0); }
  __device__ __forceinline__ double mass(int64_t id) const { return expf((logits[id] - shift) * factor); }
};

__device__ __forceinline__ float largest_logit(const Row& row) {
  __shared__ float warps[kWarps];
  float largest = -INFINITY;
  for (int64_t j = threadIdx.x; j < row.vocab; j += kThreads) largest = fmaxf(largest, row.logits[j]);
  largest = warp_max(largest);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = largest;
  __syncthreads();
  for (const float one : warps) largest = fmaxf(largest, one);
  return largest;
}

// The likeliest valid id, the first of equal ones, in every thread.
__device__ __forceinline__ int64_t likeliest(const Row& row) {
  __shared__ Best warps[kWarps];
  Best best{0, -1};
  for (int64_t j = threadIdx.x; j < row.vocab; j += kThreads) {
    if (row.is_valid(j)) best = better(best, {row.logits[j], j});
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    best = better(best, {__shfl_xor_sync(kWholeWarp, best.logit, lanes), __shfl_xor_sync(kWholeWarp, best.id, lanes)});
  }
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = best;
  __syncthreads();
  for (const Best& one : warps) best = better(best, one);
  return best.id;
}

__device__ __forceinline__ double warp_total(double x) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kWholeWarp, x, lanes);
  return x;
}

// The masses of all segments; a warp takes every kWarps-th.
__device__ __forceinline__ void sum_segments(const Row& row, double* masses) {
  for (int s = threadIdx.x / kWarp; s < kSegments; s += kWarps) {
    const int64_t begin = s * row.segment, end = min(begin + row.segment, row.vocab);
    float sum = 0;
    for (int64_t j = begin + threadIdx.x % kWarp; j < end; j += kWarp) sum += expf((row.logits[j] - row.shift) * row.factor);
    const double mass = warp_total(sum);
    if (threadIdx.x % kWarp == 0) masses[s] = mass;
  }
  __syncthreads();
}

// The first id whose cumulative mass exceeds `rest`, found by one warp, in all its lanes; an id of no mass is never taken.
__device__ __forceinline__ int64_t draw(const Row& row, const double* masses, double rest) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  int s = 0;  // at last the one that `rest` ends in; where rounding leaves a little behind all of them, the last with mass
#pragma unroll 1
  for (int n = 0; n < kSegments; ++n) {
    if (masses[n] == 0) continue;
    s = n;
    if (rest < masses[n]) break;
    rest -= masses[n];
  }
  const int64_t begin = s * row.segment, end = min(begin + row.segment, row.vocab);
  int64_t last = begin;
  for (int64_t base = begin; base < end; base += kWarp) {
    const int64_t id = base + lane;
    const double all = id < end ? row.mass(id) : 0, own = all < kNoMass ? 0 : all;
    double upto = own;  // of the lanes up to this one
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const double lower = __shfl_up_sync(kWholeWarp, upto, lanes);
      if (lane >= lanes) upto += lower;
    }
    const unsigned with_mass = __ballot_sync(kWholeWarp, own > 0), found = __ballot_sync(kWholeWarp, own > 0 && rest < upto);
    if (found != 0) return base + __ffs(static_cast<int>(found)) - 1;
    if (with_mass != 0) last = base + 31 - __clz(static_cast<int>(with_mass));
    rest -= __shfl_sync(kWholeWarp, upto, 31);
  }
  return last;
}

// Draws until an id is valid, by the first warp.
__device__ __forceinline__ void draw_valid(const Row& row, const double* masses, double whole, Draw& d) {
  d.redraws = 0;
  d.id = draw(row, masses, uniform(d.seed, 0) * whole);
  while (!row.is_valid(d.id) && d.redraws < kMaxRedraws) {
    ++d.redraws;
    d.id = draw(row, masses, uniform(d.seed, static_cast<uint64_t>(d.redraws)) * whole);
  }
}

__global__ void __launch_bounds__(kThreads, 2) draw_rows(const float* logits, int64_t vocab, const uint8_t* valid, int64_t valid_count, Draw* draws) {
  __shared__ double masses[kSegments];
  __shared__ Draw drawn;
  Draw d = draws[blockIdx.x];
  const bool greedy = d.temperature == 0;
  Row row{logits + blockIdx.x * vocab, vocab, (vocab + kSegments - 1) / kSegments, valid, valid_count, 0, greedy ? 1.0F : static_cast<float>(1 / d.temperature)};
  row.shift = largest_logit(row);
  sum_segments(row, masses);
  double whole = 0;
#pragma unroll 4
  for (const double mass : masses) whole += mass;
  const bool finite = isfinite(whole);
  if (threadIdx.x < kWarp) {
    d.id = -1;
    if (finite && !greedy) draw_valid(row, masses, whole, d);
    if (threadIdx.x == 0) drawn = d;
  }
  __syncthreads();
  d = drawn;
  // The same in all threads of the block.
  if (finite && (greedy || !row.is_valid(d.id))) d.id = likeliest(row);
  if (threadIdx.x != 0) return;
  if (finite && d.id >= 0) d.log_prob = static_cast<float>(static_cast<double>(row.logits[d.id] - row.shift) * row.factor - log(whole));
  if (greedy) d.redraws = 0;
  draws[blockIdx.x] = d;
}

Error draw_tokens(const float* logits, int64_t rows, int64_t vocab, const uint8_t* valid, int64_t valid_count, Draw* draws, void* stream) {
  return launch(draw_rows, static_cast<unsigned>(rows), kThreads, 0, stream, logits, vocab, valid, valid_count, draws);
}

}  // namespace

SamplingKernels sampling_kernels() { return {draw_tokens}; }

}  // namespace mempo::kernels::cuda
