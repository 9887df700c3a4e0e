// CUDA forms of the optimiser's step and of the gradient of an embedding.
#include "device.cuh"

namespace mempo::kernels::cuda {

namespace {

constexpr unsigned kThreads = 256;

// AdamW (Loshchilov, Hutter, "Decoupled weight decay regularization", 2019), for N elements of a tensor.
template <int N>
__device__ __forceinline__ void update(const AdamwTensor& t, int64_t j, const AdamwStep& s) {
  Floats<N> x = load<N>(t.master + j), first = load<N>(t.first_moment + j), second = load<N>(t.second_moment + j);
  const Floats<N> gradient = load<N>(t.gradient + j);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const float g = gradient.at[k];
    first.at[k] = s.beta1 * first.at[k] + s.beta1_rest * g;
    second.at[k] = s.beta2 * second.at[k] + s.beta2_rest * g * g;
    const float decayed = x.at[k] - s.learning_rate * s.weight_decay * x.at[k];
    const float divisor = sqrtf(second.at[k]) / s.second_correction + s.eps;
    x.at[k] = decayed - s.learning_rate / s.first_correction * first.at[k] / divisor;
  }
  store<N>(t.master + j, x);
  store<N>(t.first_moment + j, first);
  store<N>(t.second_moment + j, second);
  if (t.copy != nullptr) store<N>(static_cast<bfloat16*>(t.copy) + j, x);
}

__device__ __forceinline__ bool aligned(const AdamwTensor& t) {
  const auto bits = reinterpret_cast<uintptr_t>(t.master) | reinterpret_cast<uintptr_t>(t.gradient) | reinterpret_cast<uintptr_t>(t.first_moment) |
                    reinterpret_cast<uintptr_t>(t.second_moment) | reinterpret_cast<uintptr_t>(t.copy);
  return bits % 16 == 0;
}

// The tensor that a block belongs to: the last that begins at it or before.
__device__ __forceinline__ int64_t tensor_of(const AdamwTensor* tensors, int64_t count, int64_t block) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (tensors[middle].first_block <= block ? low : high) = middle;
  }
  return low;
}

__global__ void adamw_blocks(const AdamwTensor* tensors, int64_t count, AdamwStep step) {
  const AdamwTensor t = tensors[tensor_of(tensors, count, blockIdx.x)];
  const int64_t begin = (blockIdx.x - t.first_block) * kAdamwBlock, end = min(begin + kAdamwBlock, t.count);
  constexpr int kTogether = 4;
  const int64_t whole = aligned(t) ? begin + (end - begin) / kTogether * kTogether : begin;
  for (int64_t j = begin + threadIdx.x * kTogether; j < whole; j += kThreads * kTogether) update<kTogether>(t, j, step);
  for (int64_t j = whole + threadIdx.x; j < end; j += kThreads) update<1>(t, j, step);
}

Error adamw(const AdamwTensor* tensors, int64_t count, int64_t blocks, AdamwStep step, void* stream) {
  return launch(adamw_blocks, static_cast<unsigned>(blocks), kThreads, 0, stream, tensors, count, step);
}

// The block of an id's first row adds them all; N columns by each thread.
template <typename T, int N>
__global__ void add_rows_of_ids(const T* rows, const int64_t* ids, const int64_t* order, int64_t count, int64_t n, float* sums) {
  const int64_t first = blockIdx.x, id = ids[first], column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (column >= n || (first > 0 && ids[first - 1] == id)) return;
  Floats<N> sum = {};
  for (int64_t k = first; k < count && ids[k] == id; ++k) {
    const Floats<N> row = load<N>(rows + order[k] * n + column);
#pragma unroll
    for (int i = 0; i < N; ++i) sum.at[i] += row.at[i];
  }
  float* target = sums + id * n + column;
#pragma unroll
  for (int i = 0; i < N; ++i) target[i] += sum.at[i];
}

Error add_rows(Elements elements, const void* rows, const int64_t* ids, const int64_t* order, int64_t count, int64_t n, float* sums,
               void* stream) {
  return by_type(elements, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool wide = wide_addresses<T>({rows}) && wide_strides<T>({n});
    const dim3 grid(static_cast<unsigned>(count), blocks_for(n, kThreads * (wide ? kWide<T> : 1)));
    return launch(wide ? add_rows_of_ids<T, kWide<T>> : add_rows_of_ids<T, 1>, grid, kThreads, 0, stream, static_cast<const T*>(rows), ids, order,
                  count, n, sums);
  });
}

}  // namespace

LearningKernels learning_kernels() { return {adamw, add_rows}; }

}  // namespace mempo::kernels::cuda
