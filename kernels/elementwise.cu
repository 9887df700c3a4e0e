// CUDA forms of the norm, the rotary embedding and the gated activation.
#include "device.cuh"

namespace mempo::kernels::cuda {

namespace {

constexpr unsigned kMostThreads = 512;

__device__ __forceinline__ int64_t row_start(const RowLayout& layout, int64_t row) {
  return row / layout.inner * layout.outer_stride + row % layout.inner * layout.inner_stride;
}

// A block for each row. As HuggingFace's models do, the product with the weight is of numbers rounded to T.
template <typename T, int N>
__global__ void norm_rows(const T* x, RowLayout layout, const T* weight, float eps, T* y) {
  const T* row = x + row_start(layout, blockIdx.x);
  float squares = 0;
  for (int64_t j = threadIdx.x * N; j < layout.n; j += blockDim.x * N) {
    const Floats<N> v = load<N>(row + j);
#pragma unroll
    for (int k = 0; k < N; ++k) squares += v.at[k] * v.at[k];
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(layout.n) + eps);
  for (int64_t j = threadIdx.x * N; j < layout.n; j += blockDim.x * N) {
    Floats<N> v = load<N>(row + j);
    const Floats<N> w = load<N>(weight + j);
#pragma unroll
    for (int k = 0; k < N; ++k) v.at[k] = rounded<T>(v.at[k] * scale) * w.at[k];
    store<N>(y + blockIdx.x * layout.n + j, v);
  }
}

Error rms_norm(Elements elements, const void* x, RowLayout layout, const void* weight, float eps, void* y, void* stream) {
  return by_type(elements, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool wide = wide_addresses<T>({x, weight, y}) && wide_strides<T>({layout.n, layout.outer_stride, layout.inner_stride});
    const auto kernel = wide ? norm_rows<T, kWide<T>> : norm_rows<T, 1>;
    const unsigned threads = threads_for(layout.n / (wide ? kWide<T> : 1), kMostThreads);
    return launch(kernel, static_cast<unsigned>(layout.rows), threads, 0, stream, static_cast<const T*>(x), layout,
                  static_cast<const T*>(weight), eps, static_cast<T*>(y));
  });
}

}  // namespace

ElementwiseKernels elementwise_kernels() { return {rms_norm}; }

}  // namespace mempo::kernels::cuda
