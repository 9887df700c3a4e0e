#include "kv_cache.h"

#include <algorithm>

#include "large_pages.h"

namespace mempo {

int64_t KVCache::open() {
  rows_[next_] = Row{};
  return next_++;
}

int64_t KVCache::fork(int64_t row, int64_t length) {
  const Row& source = find(row);
  require(length >= 0 && length <= source.length,
          "row " + std::to_string(row) + " has " + std::to_string(source.length) + " tokens, not " + std::to_string(length));
  Row forked;
  forked.pages.assign(source.pages.begin(), source.pages.begin() + length / kPageTokens);
  if (const int64_t rest = length % kPageTokens; rest > 0) {
    forked.pages.push_back(take());
    forked.pages.back()->narrow(3, 0, rest).copy_(source.pages[static_cast<size_t>(length / kPageTokens)]->narrow(3, 0, rest));
  }
  forked.length = length;
  rows_[next_] = std::move(forked);
  return next_++;
}

void KVCache::release(int64_t row) { require(rows_.erase(row) == 1, "no row " + std::to_string(row)); }

KVCache::Row& KVCache::find(int64_t row) {
  const auto found = rows_.find(row);
  require(found != rows_.end(), "no row " + std::to_string(row));
  return found->second;
}

void KVCache::reserve(Row& row, int64_t tokens) {
  const auto wanted = static_cast<size_t>((row.length + tokens + kPageTokens - 1) / kPageTokens);
  while (row.pages.size() < wanted) row.pages.push_back(take());
}

void KVCache::trim(Row& row) { row.pages.resize(static_cast<size_t>((row.length + kPageTokens - 1) / kPageTokens)); }

void KVCache::make_pages() {
  constexpr int64_t kWorthwhile = int64_t{1} << 20, kTogether = 8;  // bytes of a page; pages
  const std::vector<int64_t> sizes{shape_.layers, 2, shape_.kv_heads, kPageTokens, shape_.head_dim};
  if (!shape_.options.device().is_cpu() || c10::multiply_integers(sizes) * shape_.options.dtype().itemsize() < kWorthwhile) {
    return store_->push_back(at::empty(sizes, shape_.options));
  }
  std::vector<int64_t> all = sizes;
  all.insert(all.begin(), kTogether);
  const at::Tensor pages = empty_in_large_pages(all, c10::typeMetaToScalarType(shape_.options.dtype()));
  for (int64_t n = kTogether - 1; n >= 0; --n) store_->push_back(pages[n]);
}

KVCache::Page KVCache::take() {
  if (limit_ > 0 && *in_use_ >= limit_) throw CacheFull();
  if (store_->empty()) make_pages();
  at::Tensor page = std::move(store_->back());
  store_->pop_back();
  // The counter and the store outlive the cache for as long as a page does.
  const auto give_back = [in_use = in_use_, store = store_](at::Tensor* freed) {
    --*in_use;
    store->push_back(std::move(*freed));
    delete freed;
  };
  Page taken(new at::Tensor(std::move(page)), give_back);
  ++*in_use_;
  return taken;
}

void KVCache::write(const Row& row, int64_t layer, const at::Tensor& k, const at::Tensor& v) const {
  for (int64_t done = 0; done < k.size(0);) {
    const int64_t at = row.length + done, place = at % kPageTokens, count = std::min(kPageTokens - place, k.size(0) - done);
    const at::Tensor page = row.pages[static_cast<size_t>(at / kPageTokens)]->select(0, layer).narrow(2, place, count);
    page.select(0, 0).copy_(k.narrow(0, done, count).transpose(0, 1));
    page.select(0, 1).copy_(v.narrow(0, done, count).transpose(0, 1));
    done += count;
  }
}

at::Tensor KVCache::gather(const Row& row, int64_t layer, int64_t keys_or_values, int64_t length) const {
  std::vector<at::Tensor> pieces;
  for (int64_t done = 0; done < length; done += kPageTokens) {
    const at::Tensor page = row.pages[static_cast<size_t>(done / kPageTokens)]->select(0, layer).select(0, keys_or_values);
    pieces.push_back(page.narrow(1, 0, std::min(kPageTokens, length - done)));
  }
  return at::cat(pieces, 1).transpose(0, 1);
}

}  // namespace mempo
