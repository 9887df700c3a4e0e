// Statistics of rows of logits, their gradient and the policy loss on CUDA. A row of a large vocabulary is read few times,
// by a block of its own.
#include "device.cuh"

namespace mempo::kernels::cuda {

namespace {

constexpr int kThreads = 512, kLossThreads = 256;

// Σ exp(x − largest) and Σ exp(x − largest)·(x − largest) over the numbers seen so far.
struct Running {
  float largest, sum, product;
};

// The same sums with a larger shift; there may be none yet.
__device__ __forceinline__ Running shifted(const Running& r, float largest) {
  if (r.sum == 0) return {largest, 0, 0};
  const float by = r.largest - largest, factor = expf(by);
  return {largest, r.sum * factor, (r.product + r.sum * by) * factor};
}

__device__ __forceinline__ Running merged(const Running& a, const Running& b) {
  const float largest = fmaxf(a.largest, b.largest);
  const Running c = shifted(a, largest), d = shifted(b, largest);
  return {largest, c.sum + d.sum, c.product + d.product};
}

template <int N>
__device__ __forceinline__ void take(Running& r, const Floats<N>& x) {
  float largest = r.largest;
#pragma unroll
  for (int k = 0; k < N; ++k) largest = fmaxf(largest, x.at[k]);
  if (largest > r.largest) r = shifted(r, largest);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float d = x.at[k] - largest, e = expf(d);
    r.sum += e;
    if (e != 0) r.product += e * d;
  }
}

// Over a block, in thread 0.
__device__ __forceinline__ Running over_block(Running r) {
  __shared__ Running warps[kThreads / kWarp];
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    r = merged(r, {__shfl_xor_sync(kWholeWarp, r.largest, lanes), __shfl_xor_sync(kWholeWarp, r.sum, lanes), __shfl_xor_sync(kWholeWarp, r.product, lanes)});
  }
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = r;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < kThreads / kWarp; ++w) r = merged(r, warps[w]);
  }
  return r;
}

template <int N>
__global__ void __launch_bounds__(kThreads) row_stats(const float* logits, const int64_t* targets, int64_t vocab, float* log_probs, float* normalizers, float* entropies) {
  const int64_t row = blockIdx.x;
  const float* x = logits + row * vocab;
  Running r{-INFINITY, 0, 0};
  for (int64_t j = threadIdx.x * N; j < vocab; j += kThreads * N) take(r, load<N>(x + j));
  r = over_block(r);
  if (threadIdx.x != 0) return;
  const float log_sum = logf(r.sum), normalizer = r.largest + log_sum;
  normalizers[row] = normalizer;
  log_probs[row] = x[targets[row]] - normalizer;
  // With d = x − max: H = log Σ exp(d) − Σ exp(d)·d / Σ exp(d).
  if (entropies != nullptr) entropies[row] = log_sum - r.product / r.sum;
}

// A row of T takes the place of the first part of its logits. What it overwrites has been read: up to a barrier all
// threads are in the same turn, and no turn writes behind what it has read.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) row_gradient(float* logits, const int64_t* targets, const float* normalizers, const float* gradient, int64_t vocab) {
  const int64_t row = blockIdx.x, target = targets[row];
  float* x = logits + row * vocab;
  T* out = reinterpret_cast<T*>(x);
  const float normalizer = normalizers[row], factor = gradient[row];
  for (int64_t turn = 0; turn < vocab; turn += kThreads * N) {
    const int64_t j = turn + threadIdx.x * N;
    Floats<N> v{};
    if (j < vocab) v = load<N>(x + j);
    __syncthreads();
    if (j >= vocab) continue;
#pragma unroll
    for (int k = 0; k < N; ++k) v.at[k] = factor * ((j + k == target ? 1.0F : 0.0F) - expf(v.at[k] - normalizer));
    store<N>(out + j, v);
  }
}

struct LossSums {
  double at[5];  // as in LossArguments
};

__device__ __forceinline__ void add_token(LossSums& sums, const LossArguments& a, int64_t n) {
  const double weight = a.weights[n], log_prob = a.log_probs[n];
  if (a.likelihood) {
    sums.at[4] -= weight * log_prob;
    a.gradient[n] = static_cast<float>(-weight);
    return;
  }
  const TokenLoss loss = policy_loss(log_prob, a.old_log_probs[n], a.ref_log_probs[n], a.advantages[n], a.constants);
  sums.at[0] += weight * loss.policy;
  sums.at[1] += weight * loss.kl;
  sums.at[2] += loss.clipped ? 1 : 0;
  sums.at[3] = fmax(sums.at[3], fabs(loss.log_ratio));
  a.gradient[n] = static_cast<float>(weight * loss.gradient);
}

// One block: the order of the sums is fixed, and a chunk of tokens is small beside its logits.
__global__ void __launch_bounds__(kLossThreads) token_losses(LossArguments a) {
  __shared__ LossSums all[kLossThreads];
  LossSums& own = all[threadIdx.x];
  own = {};
  for (int64_t n = threadIdx.x; n < a.count; n += kLossThreads) add_token(own, a, n);
  __syncthreads();
  if (threadIdx.x >= 5) return;
  double sum = a.sums[threadIdx.x];
  for (const LossSums& one : all) sum = threadIdx.x == 3 ? fmax(sum, one.at[3]) : sum + one.at[threadIdx.x];
  a.sums[threadIdx.x] = sum;
}

Error logit_stats(const float* logits, const int64_t* targets, int64_t rows, int64_t vocab, float* log_probs, float* normalizers, float* entropies, void* stream) {
  const bool wide = wide_addresses<float>({logits}) && wide_strides<float>({vocab});
  const auto kernel = wide ? row_stats<kWide<float>> : row_stats<1>;
  return launch(kernel, static_cast<unsigned>(rows), kThreads, 0, stream, logits, targets, vocab, log_probs, normalizers, entropies);
}

Error logits_to_gradient(Elements elements, float* logits, const int64_t* targets, const float* normalizers, const float* gradient, int64_t rows, int64_t vocab, void* stream) {
  return by_type(elements, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool wide = wide_addresses<float>({logits}) && wide_strides<float>({vocab});
    const auto kernel = wide ? row_gradient<T, kWide<float>> : row_gradient<T, 1>;
    return launch(kernel, static_cast<unsigned>(rows), kThreads, 0, stream, logits, targets, normalizers, gradient, vocab);
  });
}

Error policy_losses(LossArguments arguments, void* stream) { return launch(token_losses, 1, kLossThreads, 0, stream, arguments); }

}  // namespace

LogitKernels logit_kernels() { return {logit_stats, logits_to_gradient, policy_losses}; }

}  // namespace mempo::kernels::cuda
