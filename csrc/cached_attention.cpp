#include "cached_attention.h"

#include <numeric>

#include "cuda_attention.h"

namespace mempo {

namespace {

// Which kernel attends over the pages of a cache.
enum class Kernel { none, cpu, cuda };

Kernel kernel_for(const KVCache& cache) {
  const at::Tensor like = at::empty({0}, cache.shape().options);
  if (kernels::cuda::kernels_for(like) != nullptr) return cache.shape().head_dim <= kernels::cuda::kWidestHead ? Kernel::cuda : Kernel::none;
  return kernels::on_cpu(like) ? Kernel::cpu : Kernel::none;
}

}  // namespace

kernels::PagedRows paged_rows(const std::vector<Stretch>& stretches) {
  kernels::PagedRows paged{KVCache::kPageTokens, {}};
  for (const Stretch& s : stretches) {
    kernels::PagedRow row{{}, s.past, s.begin, s.tokens, s.keep};
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

CachedAttention::CachedAttention(const KVCache& cache, const std::vector<Stretch>& stretches) : cache_(cache) {
  const bool kernel = kernel_for(cache) != Kernel::none;
  std::vector<Stretch> few;
  for (const Stretch& s : stretches) {
    if (kernel && s.tokens <= kFewTokens) {
      few.push_back(s);
      continue;
    }
    if (s.keep) long_kept_.push_back(s);
    if (!long_.empty() && continues(long_.back(), s)) {
      long_.back().lengths.push_back(s.tokens);
    } else {
      long_.push_back({s.row, s.past, s.begin, {s.tokens}});
    }
  }
  short_ = paged_rows(few);
}

Attended CachedAttention::attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
  if (!short_.rows.empty()) attend_short(layer, q, k, v, out);
  for (const Run& run : long_) {
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, run.begin, run.tokens()); };
    const auto past = [&](int64_t which) { return run.past == 0 ? at::Tensor() : cache_.gather(*run.row, layer, which, run.past); };
    own(out).copy_(continued_attention(own(q), past(0), past(1), own(k), own(v), run.lengths));
  }
  for (const Stretch& s : long_kept_) cache_.write(*s.row, layer, k.narrow(0, s.begin, s.tokens), v.narrow(0, s.begin, s.tokens));
  return {out, {}};
}

void CachedAttention::attend_short(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::Tensor& out) {
  const auto* on_device = kernels::cuda::kernels_for(q);
  if (on_device == nullptr) return kernels::paged_attention_cpu(q, k, v, short_, layer, out);
  if (!table_) stage(q.size(0), q.device());
  kernels::cuda::paged_attention(*on_device, q, k, v, table_->at_layer(staging_, page_shape(cache_), layer), out);
}

void CachedAttention::stage(int64_t tokens, at::Device device) {
  table_.emplace(staging_, static_cast<int64_t>(short_.rows.size()), tokens, kernels::page_count(short_.rows));
  staging_.allocate(device);
  table_->fill(staging_, short_.rows);
  staging_.upload();
}

}  // namespace mempo
