// CUDA forms of the norm and the gated activation.
#include "device.cuh"

namespace mempo::kernels::cuda {

namespace {

constexpr unsigned kMostThreads = 512;  // of a block that reduces a row
constexpr unsigned kFewThreads = 256;   // of a block whose threads need nothing of each other

template <typename T>
bool wide_rows(const RowLayout& layout) {
  return wide_strides<T>({layout.n, layout.outer_stride, layout.inner_stride});
}
template <typename T>
unsigned threads_for_row(int64_t n, bool wide) {
  return threads_for(wide ? n / kWide<T> : n, kMostThreads);
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
    const bool wide = wide_addresses<T>({x, weight, y}) && wide_rows<T>(layout);
    const auto kernel = wide ? norm_rows<T, kWide<T>> : norm_rows<T, 1>;
    return launch(kernel, static_cast<unsigned>(layout.rows), threads_for_row<T>(layout.n, wide), 0, stream, static_cast<const T*>(x),
                  layout, static_cast<const T*>(weight), eps, static_cast<T*>(y));
  });
}

// With r = 1 / sqrt(mean(x²) + eps): dx = r·g·w − x·r³·mean(g·w·x). A block for each row.
template <typename T, int N>
__global__ void norm_rows_backward(const T* x, RowLayout layout, const T* weight, float eps, const T* gradient, RowLayout gradient_layout,
                                   T* dx, float* scales) {
  const T *row = x + row_start(layout, blockIdx.x), *upstream = gradient + row_start(gradient_layout, blockIdx.x);
  float squares = 0, dot = 0;
  for (int64_t j = threadIdx.x * N; j < layout.n; j += blockDim.x * N) {
    const Floats<N> v = load<N>(row + j), g = load<N>(upstream + j), w = load<N>(weight + j);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      squares += v.at[k] * v.at[k];
      dot += g.at[k] * w.at[k] * v.at[k];
    }
  }
  const auto n = static_cast<float>(layout.n);
  const float scale = rsqrtf(block_sum(squares) / n + eps);
  const float back = block_sum(dot) * scale * scale * scale / n;
  for (int64_t j = threadIdx.x * N; j < layout.n; j += blockDim.x * N) {
    const Floats<N> v = load<N>(row + j), g = load<N>(upstream + j), w = load<N>(weight + j);
    Floats<N> d;
#pragma unroll
    for (int k = 0; k < N; ++k) d.at[k] = scale * g.at[k] * w.at[k] - v.at[k] * back;
    store<N>(dx + blockIdx.x * layout.n + j, d);
  }
  if (scales != nullptr && threadIdx.x == 0) scales[blockIdx.x] = scale;
}

Error rms_norm_backward(Elements elements, const void* x, RowLayout layout, const void* weight, float eps, const void* gradient,
                        RowLayout gradient_layout, void* dx, float* scales, void* stream) {
  return by_type(elements, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool wide = wide_addresses<T>({x, weight, gradient, dx}) && wide_rows<T>(layout) && wide_rows<T>(gradient_layout);
    const auto kernel = wide ? norm_rows_backward<T, kWide<T>> : norm_rows_backward<T, 1>;
    return launch(kernel, static_cast<unsigned>(layout.rows), threads_for_row<T>(layout.n, wide), 0, stream, static_cast<const T*>(x),
                  layout, static_cast<const T*>(weight), eps, static_cast<const T*>(gradient), gradient_layout, static_cast<T*>(dx), scales);
  });
}

constexpr unsigned kColumns = kWarp, kRowLanes = 8;  // of a block that sums columns

// Block (c, p) sums 32 columns over part p of the rows, each of its lanes every eighth row, then the lanes in order.
template <typename T>
__global__ void weight_gradient_parts(const T* x, RowLayout layout, const float* scales, const T* gradient, RowLayout gradient_layout,
                                      float* partial) {
  __shared__ float sums[kRowLanes][kColumns];
  const int64_t column = blockIdx.x * kColumns + threadIdx.x, part_rows = (layout.rows + gridDim.y - 1) / gridDim.y;
  const int64_t begin = blockIdx.y * part_rows, end = min(layout.rows, begin + part_rows);
  float sum = 0;
  if (column < layout.n) {
    for (int64_t r = begin + threadIdx.y; r < end; r += kRowLanes) {
      sum += widen(gradient[row_start(gradient_layout, r) + column]) * widen(x[row_start(layout, r) + column]) * scales[r];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= layout.n) return;
  for (unsigned lane = 1; lane < kRowLanes; ++lane) sum += sums[lane][threadIdx.x];
  partial[blockIdx.y * layout.n + column] = sum;
}

__global__ void add_parts(const float* partial, int64_t parts, int64_t n, float* sum) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= n) return;
  float whole = 0;
  for (int64_t p = 0; p < parts; ++p) whole += partial[p * n + column];
  sum[column] += whole;
}

Error rms_norm_weight_gradient(Elements elements, const void* x, RowLayout layout, const float* scales, const void* gradient,
                               RowLayout gradient_layout, float* partial, int64_t parts, float* sum, void* stream) {
  const dim3 grid(static_cast<unsigned>((layout.n + kColumns - 1) / kColumns), static_cast<unsigned>(parts));
  const Error error = by_type(elements, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return launch(weight_gradient_parts<T>, grid, dim3(kColumns, kRowLanes), 0, stream, static_cast<const T*>(x), layout, scales,
                  static_cast<const T*>(gradient), gradient_layout, partial);
  });
  if (error != nullptr) return error;
  return launch(add_parts, blocks_for(layout.n, kFewThreads), kFewThreads, 0, stream, partial, parts, layout.n, sum);
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

// N elements by each thread; they are of one row, as N divides n.
template <typename T, int N>
__global__ void gate(const T* gate_up, int64_t count, int64_t n, T* y) {
  const int64_t k = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (k >= count) return;
  const T* row = gate_up + k / n * 2 * n + k % n;
  Floats<N> a = load<N>(row);
  const Floats<N> up = load<N>(row + n);
#pragma unroll
  for (int i = 0; i < N; ++i) a.at[i] = rounded<T>(a.at[i] * sigmoid(a.at[i])) * up.at[i];
  store<N>(y + k, a);
}

// With s = sigmoid(a): d silu(a)/da = s·(1 + a·(1 − s)).
template <typename T, int N>
__global__ void gate_backward(const T* gate_up, const T* gradient, int64_t count, int64_t n, T* dx) {
  const int64_t k = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (k >= count) return;
  const int64_t place = k / n * 2 * n + k % n;
  const Floats<N> a = load<N>(gate_up + place), up = load<N>(gate_up + place + n), g = load<N>(gradient + k);
  Floats<N> for_gate, for_up;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float s = sigmoid(a.at[i]);
    for_gate.at[i] = g.at[i] * up.at[i] * s * (1.0F + a.at[i] * (1.0F - s));
    for_up.at[i] = g.at[i] * a.at[i] * s;
  }
  store<N>(dx + place, for_gate);
  store<N>(dx + place + n, for_up);
}

Error swiglu(Elements elements, const void* gate_up, int64_t rows, int64_t n, void* y, void* stream) {
  return by_type(elements, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool wide = wide_addresses<T>({gate_up, y}) && wide_strides<T>({n});
    const unsigned blocks = blocks_for(rows * n / (wide ? kWide<T> : 1), kFewThreads);
    return launch(wide ? gate<T, kWide<T>> : gate<T, 1>, blocks, kFewThreads, 0, stream, static_cast<const T*>(gate_up), rows * n, n,
                  static_cast<T*>(y));
  });
}

Error swiglu_backward(Elements elements, const void* gate_up, const void* gradient, int64_t rows, int64_t n, void* dx, void* stream) {
  return by_type(elements, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const bool wide = wide_addresses<T>({gate_up, gradient, dx}) && wide_strides<T>({n});
    const unsigned blocks = blocks_for(rows * n / (wide ? kWide<T> : 1), kFewThreads);
    return launch(wide ? gate_backward<T, kWide<T>> : gate_backward<T, 1>, blocks, kFewThreads, 0, stream, static_cast<const T*>(gate_up),
                  static_cast<const T*>(gradient), rows * n, n, static_cast<T*>(dx));
  });
}

}  // namespace

ElementwiseKernels elementwise_kernels() {
  return {rms_norm, rms_norm_backward, rms_norm_weight_gradient, swiglu, swiglu_backward};
}

}  // namespace mempo::kernels::cuda
