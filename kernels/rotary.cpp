// CPU forms of the rotary position embedding, alone and with the keys and values that go into pages.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "cuda_forms.h"
#include "kernels.h"
#include "vector.h"

namespace mempo::kernels {

namespace {

constexpr int64_t kGrain = 16384;  // elements a thread takes at least

// Turns pairs of one head by an angle, in place; sign −1 turns back, which is the gradient.
MEMPO_VECTORIZED void rotate_head(float* x, const float* cos, const float* sin, int64_t half, float sign) {
#pragma omp simd
  for (int64_t j = 0; j < half; ++j) {
    const float a = x[j], b = x[j + half], c = cos[j], s = sign * sin[j];
    x[j] = a * c - b * s;
    x[j + half] = b * c + a * s;
  }
}

// Heads of a packed batch [T, heads, d], and the angles of its tokens.
struct Heads {
  float* data;
  int64_t tokens, count, d, token_stride, head_stride;
  const float *cos, *sin;

  Heads(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines)
      : data(x.mutable_data_ptr<float>()), tokens(x.size(0)), count(x.size(1)), d(x.size(2)), token_stride(x.stride(0)), head_stride(x.stride(1)),
        cos(cosines.const_data_ptr<float>()), sin(sines.const_data_ptr<float>()) {
    TORCH_CHECK(x.stride(2) == 1, "heads must be contiguous");
  }
  float* at(int64_t token, int64_t head) const { return data + token * token_stride + head * head_stride; }
  void rotate(int64_t token, int64_t head, float sign) const { rotate_head(at(token, head), cos + token * (d / 2), sin + token * (d / 2), d / 2, sign); }

  // Calls visit(token) for all tokens, side by side.
  template <typename Visit>
  void each_token(const Visit& visit) const {
    at::parallel_for(0, tokens, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, count * d)), [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) visit(token);
    });
  }
};

// Queries, keys and values at one layer, and where keys and values go.
class Appending {
 public:
  Appending(const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin, const PagedRows& kept, int64_t layer)
      : heads(qkv, cos, sin), kv_heads_(kv_heads), page_tokens_(kept.page_tokens), layer_(layer), row_of_(static_cast<size_t>(heads.tokens), nullptr) {
    for (const PagedRow& row : kept.rows) std::fill_n(row_of_.begin() + row.begin, row.tokens, &row);
  }

  void run(int64_t token, int64_t head) const {
    const int64_t behind_queries = head - (heads.count - 2 * kv_heads_);
    if (behind_queries < kv_heads_) heads.rotate(token, head, 1);
    const PagedRow* const row = row_of_[static_cast<size_t>(token)];
    if (behind_queries < 0 || row == nullptr) return;
    const int64_t place = row->past + token - row->begin;
    float* const page = static_cast<float*>(row->pages[static_cast<size_t>(place / page_tokens_)]);
    const int64_t head_in_page = layer_ * 2 * kv_heads_ + behind_queries;  // the values' heads are behind the keys'
    std::memcpy(page + (head_in_page * page_tokens_ + place % page_tokens_) * heads.d, heads.at(token, head), static_cast<size_t>(heads.d) * sizeof(float));
  }

  const Heads heads;

 private:
  int64_t kv_heads_, page_tokens_, layer_;
  std::vector<const PagedRow*> row_of_;  // of each token, or null
};

}  // namespace

void rotate_(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, float sign) {
  if (const auto* on = cuda::kernels_for(x)) return cuda::rotate_(*on, x, cos, sin, sign);
  if (!on_cpu(x)) return plain::rotate_(x, cos, sin, sign);
  const Heads heads(x, cos, sin);
  heads.each_token([&](int64_t token) {
    for (int64_t head = 0; head < heads.count; ++head) heads.rotate(token, head, sign);
  });
}

void rotate_and_append_heads(const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin, const PagedRows& kept, int64_t layer,
                             int64_t begin, int64_t end) {
  const Appending appending(qkv, kv_heads, cos, sin, kept, layer);
  for (int64_t token = 0; token < appending.heads.tokens; ++token) {
    for (int64_t head = begin; head < end; ++head) appending.run(token, head);
  }
}

void rotate_and_append_cpu(const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin, const PagedRows& kept, int64_t layer) {
  const Appending appending(qkv, kv_heads, cos, sin, kept, layer);
  appending.heads.each_token([&](int64_t token) {
    for (int64_t head = 0; head < appending.heads.count; ++head) appending.run(token, head);
  });
}

}  // namespace mempo::kernels
