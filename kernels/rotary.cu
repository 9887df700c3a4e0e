// CUDA forms of the rotary position embedding, alone and with the keys and values that go into pages.
#include "device.cuh"

namespace mempo::kernels::cuda {

namespace {

constexpr unsigned kHeads = 4;  // of a block

// Turns the pair (a, b) by an angle.
template <typename T>
__device__ __forceinline__ void turn(T& a, T& b, T cos, T sin, float sign) {
  const float x = widen(a), y = widen(b), c = widen(cos), s = sign * widen(sin);
  a = narrow<T>(x * c - y * s);
  b = narrow<T>(y * c + x * s);
}

// A warp for each head of a token; its lanes take pairs (x[j], x[j + d/2]).
template <typename T>
__global__ void rotate_heads(T* x, RowLayout layout, const T* cos, const T* sin, float sign) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, half = layout.n / 2;
  if (row >= layout.rows) return;
  T* head = x + row_start(layout, row);
  const int64_t angles = row / layout.inner * half;
  for (int64_t j = threadIdx.x; j < half; j += kWarp) turn(head[j], head[j + half], cos[angles + j], sin[angles + j], sign);
}

Error rotate(Elements elements, void* x, RowLayout layout, const void* cos, const void* sin, float sign, void* stream) {
  return by_type(elements, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    return launch(rotate_heads<T>, blocks_for(layout.rows, kHeads), dim3(kWarp, kHeads), 0, stream, static_cast<T*>(x), layout,
                  static_cast<const T*>(cos), static_cast<const T*>(sin), sign);
  });
}

// Where a key or value of a token goes, or null; `head` counts the keys' heads and behind them the values'.
template <typename T>
__device__ __forceinline__ T* place_in_page(const AppendArguments& a, int64_t token, int64_t head) {
  const PagedTable& t = a.table;
  const int32_t row = head < 0 ? -1 : t.row[token];
  if (row < 0) return nullptr;
  const int64_t place = t.past[row] + token - t.begin[row];
  T* const page = reinterpret_cast<T*>(t.pages[t.first_page[row] + place / t.page_tokens]);
  return page + t.layer + (head * t.page_tokens + place % t.page_tokens) * a.d;
}

template <typename T>
__global__ void rotate_and_append_heads(AppendArguments a) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, heads = a.heads + 2 * a.kv_heads;
  if (n >= a.tokens * heads) return;
  const int64_t token = n / heads, head = n % heads, half = a.d / 2, angles = token * half;
  T* const x = static_cast<T*>(a.qkv) + token * a.strides.token + head * a.strides.head;
  T* const kept = place_in_page<T>(a, token, head - a.heads);
  const bool turns = head < a.heads + a.kv_heads;
  if (!turns && kept == nullptr) return;
  const T *cos = static_cast<const T*>(a.cos), *sin = static_cast<const T*>(a.sin);
  for (int64_t j = threadIdx.x; j < half; j += kWarp) {
    T first = x[j], second = x[j + half];
    if (turns) {
      turn(first, second, cos[angles + j], sin[angles + j], 1);
      x[j] = first;
      x[j + half] = second;
    }
    if (kept != nullptr) {
      kept[j] = first;
      kept[j + half] = second;
    }
  }
}

Error rotate_and_append(Elements elements, AppendArguments a, void* stream) {
  return by_type(elements, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const int64_t count = static_cast<int64_t>(a.tokens) * (a.heads + 2 * a.kv_heads);
    return launch(rotate_and_append_heads<T>, blocks_for(count, kHeads), dim3(kWarp, kHeads), 0, stream, a);
  });
}

}  // namespace

RotaryKernels rotary_kernels() { return {rotate, rotate_and_append}; }

}  // namespace mempo::kernels::cuda
