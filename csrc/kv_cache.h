// Keys and values of the sequences that are being generated or scored, in pages that rows share.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <vector>

#include "guard.h"

namespace mempo {

// The bound of a cache is reached: a smaller call, or one after rows were released, may still do.
struct CacheFull : std::bad_alloc {
  const char* what() const noexcept override { return "the key/value cache is full"; }
};

class KVCache {
 public:
  static constexpr int64_t kPageTokens = 64;

  struct Shape {
    int64_t layers, kv_heads, head_dim;
    at::TensorOptions options;
  };
  // `tokens` bounds what is held, rounded up to whole pages; 0 = no bound.
  KVCache(Shape shape, int64_t tokens) : shape_(shape), limit_(tokens / kPageTokens + (tokens % kPageTokens != 0)) {}

  // A page is one tensor [layers, 2 (keys, values), kv_heads, kPageTokens, head_dim]. It goes back to the cache's store
  // when the last row that shares it lets go.
  using Page = std::shared_ptr<at::Tensor>;
  struct Row {
    std::vector<Page> pages;
    int64_t length = 0;
  };

  int64_t open();
  // A row that begins with the first `length` tokens of another: whole pages are shared, the rest of one is copied.
  int64_t fork(int64_t row, int64_t length);
  void release(int64_t row);
  Row& find(int64_t row);

  // Makes room in a row for `tokens` behind its length.
  void reserve(Row& row, int64_t tokens);
  // Lets go of pages behind a row's length.
  void trim(Row& row);
  // Writes keys and values [n, kv_heads, head_dim] of one layer into a row's reserved room, behind its length.
  void write(const Row& row, int64_t layer, const at::Tensor& k, const at::Tensor& v) const;
  // The first `length` keys (0) or values (1) of one layer, as [length, kv_heads, head_dim].
  at::Tensor gather(const Row& row, int64_t layer, int64_t keys_or_values, int64_t length) const;

  const Shape& shape() const { return shape_; }
  int64_t pages() const { return *in_use_; }
  int64_t limit() const { return limit_; }

 private:
  // Adds one or more to the store.
  void make_pages();
  Page take();

  Shape shape_;
  int64_t limit_;
  std::shared_ptr<int64_t> in_use_ = std::make_shared<int64_t>(0);
  std::shared_ptr<std::vector<at::Tensor>> store_ = std::make_shared<std::vector<at::Tensor>>();  // pages that are free
  std::map<int64_t, Row> rows_;
  int64_t next_ = 0;
};

}  // namespace mempo
