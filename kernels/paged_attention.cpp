// CPU form of attention over paged key/value caches: one pass over the packed batch for all rows.
#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels.h"
#include "vector.h"

// The helpers are inlined everywhere, so how a vector would be passed to them does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace mempo::kernels {

namespace {

// Sixteen lanes; the compiler splits them for narrower units. Loads need no alignment.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int64_t kLanes = 16;

inline __attribute__((always_inline)) Lanes lanes(const float* x) { return *reinterpret_cast<const Lanes*>(x); }

inline __attribute__((always_inline)) float sum(const Lanes& x) {
  typedef float Quad __attribute__((vector_size(16)));
  Quad part[4];
  std::memcpy(part, &x, sizeof(part));
  const Quad q = (part[0] + part[1]) + (part[2] + part[3]);
  return (q[0] + q[1]) + (q[2] + q[3]);
}

// Queries of G heads that share their keys and values.
constexpr int64_t kMaxGroup = 4;

// Keys or values of consecutive tokens, `stride` elements apart.
struct Stretch {
  const float* data;
  int64_t stride, count;
};

// scores[g][m] = q[g]·k[m] for two keys at a time: six or more independent sums keep the unit busy.
template <int64_t G>
inline __attribute__((always_inline)) void two_keys(const float* const* q, const float* key, int64_t stride, int64_t d, float scale, float* const* scores, int64_t m) {
  Lanes sums[2][G] = {};
  int64_t j = 0;
  for (; j + kLanes <= d; j += kLanes) {
    const Lanes a = lanes(key + j), b = lanes(key + stride + j);
#pragma GCC unroll 4
    for (int64_t g = 0; g < G; ++g) {
      sums[0][g] += lanes(q[g] + j) * a;
      sums[1][g] += lanes(q[g] + j) * b;
    }
  }
#pragma GCC unroll 4
  for (int64_t g = 0; g < G; ++g) {
    float first = sum(sums[0][g]), second = sum(sums[1][g]);
    for (int64_t r = j; r < d; ++r) {
      first += q[g][r] * key[r];
      second += q[g][r] * key[stride + r];
    }
    scores[g][m] = first * scale;
    scores[g][m + 1] = second * scale;
  }
}

template <int64_t G>
inline __attribute__((always_inline)) void score_group(const float* const* q, const Stretch& keys, int64_t d, float scale, float* const* scores) {
  int64_t m = 0;
  for (; m + 2 <= keys.count; m += 2) two_keys<G>(q, keys.data + m * keys.stride, keys.stride, d, scale, scores, m);
  for (int64_t g = 0; m < keys.count && g < G; ++g) {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t j = 0; j < d; ++j) dot += q[g][j] * keys.data[m * keys.stride + j];
    scores[g][m] = dot * scale;
  }
}

// out[g] += Σ weights[g][m] · v[m], two vectors of columns at a time.
template <int64_t G>
inline __attribute__((always_inline)) void mix_group(float* const* weights, const Stretch& values, int64_t d, float* const* out) {
  int64_t j = 0;
  for (; j + 2 * kLanes <= d; j += 2 * kLanes) {
    Lanes sums[2][G];
#pragma GCC unroll 4
    for (int64_t g = 0; g < G; ++g) {
      sums[0][g] = lanes(out[g] + j);
      sums[1][g] = lanes(out[g] + j + kLanes);
    }
    for (int64_t m = 0; m < values.count; ++m) {
      const Lanes a = lanes(values.data + m * values.stride + j), b = lanes(values.data + m * values.stride + j + kLanes);
#pragma GCC unroll 4
      for (int64_t g = 0; g < G; ++g) {
        sums[0][g] += weights[g][m] * a;
        sums[1][g] += weights[g][m] * b;
      }
    }
#pragma GCC unroll 4
    for (int64_t g = 0; g < G; ++g) {
      *reinterpret_cast<Lanes*>(out[g] + j) = sums[0][g];
      *reinterpret_cast<Lanes*>(out[g] + j + kLanes) = sums[1][g];
    }
  }
  for (int64_t g = 0; j < d && g < G; ++g) {
    for (int64_t m = 0; m < values.count; ++m) {
      for (int64_t c = j; c < d; ++c) out[g][c] += weights[g][m] * values.data[m * values.stride + c];
    }
  }
}

MEMPO_VECTORIZED void softmax(float* scores, int64_t length) {
  float best = -std::numeric_limits<float>::infinity(), total = 0;
#pragma omp simd reduction(max : best)
  for (int64_t m = 0; m < length; ++m) best = scores[m] > best ? scores[m] : best;
#pragma omp simd reduction(+ : total)
  for (int64_t m = 0; m < length; ++m) {
    scores[m] = exponential(scores[m] - best);
    total += scores[m];
  }
  const float factor = 1.0F / total;
#pragma omp simd
  for (int64_t m = 0; m < length; ++m) scores[m] *= factor;
}

MEMPO_VECTORIZED void score_heads(int64_t group, const float* const* q, const Stretch& keys, int64_t d, float scale, float* const* scores) {
  switch (group) {
    case 1: return score_group<1>(q, keys, d, scale, scores);
    case 2: return score_group<2>(q, keys, d, scale, scores);
    case 3: return score_group<3>(q, keys, d, scale, scores);
    default: return score_group<4>(q, keys, d, scale, scores);
  }
}

MEMPO_VECTORIZED void mix_heads(int64_t group, float* const* weights, const Stretch& values, int64_t d, float* const* out) {
  switch (group) {
    case 1: return mix_group<1>(weights, values, d, out);
    case 2: return mix_group<2>(weights, values, d, out);
    case 3: return mix_group<3>(weights, values, d, out);
    default: return mix_group<4>(weights, values, d, out);
  }
}

// What the heads of one call share.
struct Shape {
  int64_t heads, kv_heads, d, page_tokens;
};

// One stretch of keys or values for each page of a row's past, then one of the row's own; tokens of the row see
// all of the former and, of the latter, those up to themselves.
class Stretches {
 public:
  Stretches(const PagedRow& row, const std::vector<float*>& pages, const at::Tensor& own, int64_t head, const Shape& s) {
    for (int64_t done = 0; done < row.past; done += s.page_tokens) {
      all_.push_back({pages[static_cast<size_t>(done / s.page_tokens)] + head * s.page_tokens * s.d, s.d, std::min(s.page_tokens, row.past - done)});
    }
    all_.push_back({own.const_data_ptr<float>() + row.begin * own.stride(0) + head * own.stride(1), own.stride(0), 0});
  }

  // Calls visit(stretch, offset of its first token, token): each page for all tokens while it is in the cache.
  template <typename Visit>
  void each(const PagedRow& row, const Visit& visit) const {
    int64_t offset = 0;
    for (const Stretch& stretch : all_) {
      const bool own = &stretch == &all_.back();
      for (int64_t t = 0; t < row.tokens; ++t) visit(own ? Stretch{stretch.data, stretch.stride, t + 1} : stretch, offset, t);
      offset += stretch.count;
    }
  }

 private:
  std::vector<Stretch> all_;
};

// Writes one head of a row's own keys or values behind its past.
void append(const PagedRow& row, const std::vector<float*>& pages, const at::Tensor& own, int64_t head, const Shape& s) {
  const float* from = own.const_data_ptr<float>() + row.begin * own.stride(0) + head * own.stride(1);
  for (int64_t t = 0; t < row.tokens; ++t) {
    const int64_t place = row.past + t;
    float* to = pages[static_cast<size_t>(place / s.page_tokens)] + (head * s.page_tokens + place % s.page_tokens) * s.d;
    std::memcpy(to, from + t * own.stride(0), static_cast<size_t>(s.d) * sizeof(float));
  }
}

// The queries of `group` heads, from `first` on, that share one key/value head, for all tokens of a row.
void attend(const PagedRow& row, const at::Tensor& q, const Stretches& keys, const Stretches& values, int64_t first, int64_t group, const Shape& s, float* out, std::vector<float>& scratch) {
  const int64_t longest = row.past + row.tokens;
  scratch.resize(static_cast<size_t>(row.tokens * group * longest));
  const auto scores_of = [&](int64_t t, int64_t offset, float** scores) {
    for (int64_t g = 0; g < group; ++g) scores[g] = scratch.data() + (t * group + g) * longest + offset;
  };
  float *scores[kMaxGroup], *mixed[kMaxGroup];
  const float* queries[kMaxGroup];
  const float scale = 1.0F / std::sqrt(static_cast<float>(s.d));
  keys.each(row, [&](const Stretch& stretch, int64_t offset, int64_t t) {
    scores_of(t, offset, scores);
    for (int64_t g = 0; g < group; ++g) queries[g] = q.const_data_ptr<float>() + (row.begin + t) * q.stride(0) + (first + g) * q.stride(1);
    score_heads(group, queries, stretch, s.d, scale, scores);
  });
  for (int64_t t = 0; t < row.tokens; ++t) {
    scores_of(t, 0, scores);
    for (int64_t g = 0; g < group; ++g) {
      softmax(scores[g], row.past + t + 1);
      std::memset(out + ((row.begin + t) * s.heads + first + g) * s.d, 0, static_cast<size_t>(s.d) * sizeof(float));
    }
  }
  values.each(row, [&](const Stretch& stretch, int64_t offset, int64_t t) {
    scores_of(t, offset, scores);
    for (int64_t g = 0; g < group; ++g) mixed[g] = out + ((row.begin + t) * s.heads + first + g) * s.d;
    mix_heads(group, scores, stretch, s.d, mixed);
  });
}

}  // namespace

void paged_attention_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const std::vector<PagedRow>& rows, int64_t page_tokens, at::Tensor& out) {
  const Shape shape{q.size(1), k.size(1), q.size(2), page_tokens};
  const int64_t group = shape.heads / shape.kv_heads;
  float* mixed = out.mutable_data_ptr<float>();
  at::parallel_for(0, static_cast<int64_t>(rows.size()) * shape.kv_heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch;
    for (int64_t n = begin; n < end; ++n) {
      const PagedRow& row = rows[static_cast<size_t>(n / shape.kv_heads)];
      const int64_t head = n % shape.kv_heads;
      if (row.keep) {
        append(row, row.keys, k, head, shape);
        append(row, row.values, v, head, shape);
      }
      const Stretches keys(row, row.keys, k, head, shape), values(row, row.values, v, head, shape);
      for (int64_t g = 0; g < group; g += kMaxGroup) {
        attend(row, q, keys, values, head * group + g, std::min(kMaxGroup, group - g), shape, mixed, scratch);
      }
    }
  });
}

}  // namespace mempo::kernels
