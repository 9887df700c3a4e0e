#include "cached_attention.h"

#include <numeric>

#include "cuda_attention.h"

namespace mempo {

namespace {

CacheKernels kernels_for(const KVCache& cache) {
  const at::Tensor like = at::empty({0}, cache.shape().options);
  if (kernels::cuda::kernels_for(like) != nullptr) return cache.shape().head_dim <= kernels::cuda::kWidestHead ? CacheKernels::cuda : CacheKernels::none;
  return kernels::on_cpu(like) ? CacheKernels::cpu : CacheKernels::none;
}

}  // namespace

kernels::PagedRows paged_rows(const std::vector<Stretch>& stretches) {
  kernels::PagedRows paged{KVCache::kPageTokens, {}};
  for (const Stretch& s : stretches) {
    kernels::PagedRow row{{}, s.past, s.begin, s.tokens};
    for (const KVCache::Page& page : s.row->pages) row.pages.push_back(page->mutable_data_ptr());
    paged.rows.push_back(std::move(row));
  }
  return paged;
}

kernels::PageShape page_shape(const KVCache& cache) { return {cache.shape().kv_heads, KVCache::kPageTokens, cache.shape().head_dim}; }

int64_t CachedAttention::Run::tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }

bool CachedAttention::continues(const Run& run, const Stretch& s) {
  return run.row == s.row && run.past == s.past && run.begin + run.tokens() == s.begin;
}

CachedAttention::CachedAttention(const KVCache& cache, const std::vector<Stretch>& stretches) : cache_(cache), kernels_(kernels_for(cache)) {
  std::vector<Stretch> few;
  for (const Stretch& s : stretches) {
    if (s.keep) kept_.push_back(s);
    if (kernels_ != CacheKernels::none && s.tokens <= kFewTokens) {
      few.push_back(s);
    } else if (!long_.empty() && continues(long_.back(), s)) {
      long_.back().lengths.push_back(s.tokens);
    } else {
      long_.push_back({s.row, s.past, s.begin, {s.tokens}});
    }
  }
  short_ = paged_rows(few);
  kept_rows_ = paged_rows(kept_);
}

void CachedAttention::rotate_(int64_t layer, const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin) {
  switch (kernels_) {
    case CacheKernels::cpu: return kernels::rotate_and_append_cpu(qkv, kv_heads, cos, sin, kept_rows_, layer);
    case CacheKernels::cuda:
      if (!kept_table_) stage(qkv.size(0), qkv.device());
      return kernels::cuda::rotate_and_append_(*kernels::cuda::kernels_for(qkv), qkv, kv_heads, cos, sin, at_layer(kept_table_, layer));
    case CacheKernels::none: break;
  }
  Attention::rotate_(layer, qkv, kv_heads, cos, sin);
  for (const Stretch& s : kept_) {
    const auto own = [&](int64_t from_end) { return qkv.narrow(0, s.begin, s.tokens).narrow(1, qkv.size(1) - from_end * kv_heads, kv_heads); };
    cache_.write(*s.row, layer, own(2), own(1));
  }
}

Attended CachedAttention::attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
  if (!short_.rows.empty()) attend_short(layer, q, k, v, out);
  for (const Run& run : long_) {
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, run.begin, run.tokens()); };
    const auto past = [&](int64_t which) { return run.past == 0 ? at::Tensor() : cache_.gather(*run.row, layer, which, run.past); };
    own(out).copy_(continued_attention(own(q), past(0), past(1), own(k), own(v), run.lengths));
  }
  return {out, {}};
}

void CachedAttention::attend_short(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::Tensor& out) {
  if (kernels_ == CacheKernels::cpu) return kernels::paged_attention_cpu(q, k, v, short_, layer, out);
  kernels::cuda::paged_attention(*kernels::cuda::kernels_for(q), q, k, v, at_layer(short_table_, layer), out);
}

void CachedAttention::stage(int64_t tokens, at::Device device) {
  const auto add = [&](const kernels::PagedRows& paged) {
    return kernels::StagedTable(staging_, static_cast<int64_t>(paged.rows.size()), tokens, kernels::page_count(paged.rows));
  };
  short_table_ = add(short_);
  kept_table_ = add(kept_rows_);
  staging_.allocate(device);
  short_table_->fill(staging_, short_.rows);
  kept_table_->fill(staging_, kept_rows_.rows);
  staging_.upload();
}

kernels::cuda::PagedTable CachedAttention::at_layer(const std::optional<kernels::StagedTable>& table, int64_t layer) const {
  return table->at_layer(staging_, page_shape(cache_), layer);
}

}  // namespace mempo
