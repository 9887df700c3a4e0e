// Key/value caches of the sequences that are being generated, and the forward pass that extends them.
#include <algorithm>
#include <map>

#include "head.h"
#include "kernels.h"
#include "sampling.h"
#include "transformer.h"

namespace mempo {

namespace {

constexpr int64_t kFirstCapacity = 256;  // tokens

// The cache of one sequence: [layers, 2 (key, value), kv_heads, capacity, head_dim].
struct CacheRow {
  at::Tensor cache;
  int64_t length = 0;

  at::Tensor keys(int64_t layer) const { return cache.select(0, layer).select(0, 0); }
  at::Tensor values(int64_t layer) const { return cache.select(0, layer).select(0, 1); }
};

}  // namespace

class Session {
 public:
  Session(const Transformer& model, std::vector<uint8_t> valid) : model_(model), valid_(std::move(valid)) {}

  int64_t open() {
    rows_[next_] = CacheRow{};
    return next_++;
  }

  int64_t fork(int64_t row, int64_t length) {
    const CacheRow& source = find(row);
    CacheRow copy;
    require(length >= 0 && length <= source.length, "the row is shorter");
    if (length > 0) {
      reserve(copy, length);
      copy.cache.narrow(3, 0, length).copy_(source.cache.narrow(3, 0, length));
      copy.length = length;
    }
    rows_[next_] = std::move(copy);
    return next_++;
  }

  void release(int64_t row) { require(rows_.erase(row) == 1, "no row " + std::to_string(row)); }

  void step(int64_t count, const mempo_row_input* inputs, const int64_t* offsets, const int32_t* ids,
            mempo_sampled* out);

 private:
  friend class CachedAttention;

  CacheRow& find(int64_t row) {
    const auto found = rows_.find(row);
    require(found != rows_.end(), "no row " + std::to_string(row));
    return found->second;
  }

  void reserve(CacheRow& row, int64_t tokens) const;

  const Transformer& model_;
  std::vector<uint8_t> valid_;
  std::map<int64_t, CacheRow> rows_;
  int64_t next_ = 0;
};

// Appends the new keys and values of each row to its cache and attends over all of it. Rows that go
// on by a few tokens, as in decoding, share one kernel where there is one; longer pieces run each
// as a product of matrices.
class CachedAttention final : public Attention {
 public:
  CachedAttention(std::vector<CacheRow*> rows, const PackedBatch& batch, bool kernel)
      : rows_(std::move(rows)), batch_(batch) {
    for (size_t r = 0; r < rows_.size(); ++r) {
      (kernel && tokens(r) <= kFewTokens ? short_ : long_).push_back(r);
      masks_.push_back(continuation_mask(r));
    }
  }

  at::Tensor attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override {
    at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
    if (!short_.empty()) kernels::cached_attention_cpu(q, k, v, slots(layer), out);
    for (const size_t r : long_) {
      const int64_t begin = batch_.offsets[r], length = tokens(r), past = rows_[r]->length;
      const at::Tensor keys = rows_[r]->keys(layer), values = rows_[r]->values(layer);
      keys.narrow(1, past, length).copy_(k.narrow(0, begin, length).transpose(0, 1));
      values.narrow(1, past, length).copy_(v.narrow(0, begin, length).transpose(0, 1));
      out.narrow(0, begin, length)
          .copy_(row_attention(q.narrow(0, begin, length), keys.narrow(1, 0, past + length).transpose(0, 1),
                               values.narrow(1, 0, past + length).transpose(0, 1),
                               /*causal=*/past == 0 && length > 1, masks_[r]));
    }
    return out;
  }

 private:
  static constexpr int64_t kFewTokens = 4;

  int64_t tokens(size_t r) const { return batch_.offsets[r + 1] - batch_.offsets[r]; }

  std::vector<kernels::CacheSlot> slots(int64_t layer) const {
    std::vector<kernels::CacheSlot> all;
    for (const size_t r : short_) {
      const CacheRow& row = *rows_[r];
      all.push_back({row.keys(layer).mutable_data_ptr<float>(), row.values(layer).mutable_data_ptr<float>(),
                     row.cache.size(3), row.length, batch_.offsets[r], tokens(r)});
    }
    return all;
  }

  // Several new tokens behind a past: token t sees the past and the new ones up to itself.
  at::Tensor continuation_mask(size_t r) const {
    const int64_t past = rows_[r]->length, length = tokens(r);
    if (past == 0 || length == 1) return {};
    return at::ones({length, past + length}, batch_.ids.options().dtype(at::kBool)).tril(past);
  }

  std::vector<CacheRow*> rows_;
  const PackedBatch& batch_;
  std::vector<size_t> short_, long_;
  std::vector<at::Tensor> masks_;
};

void Session::reserve(CacheRow& row, int64_t tokens) const {
  const int64_t capacity = row.cache.defined() ? row.cache.size(3) : 0;
  if (tokens <= capacity) return;
  const auto& c = model_.config;
  const at::Tensor larger = at::empty({c.layers, 2, c.kv_heads, std::max({tokens, 2 * capacity, kFirstCapacity}), c.head_dim},
                                      at::TensorOptions().device(model_.device).dtype(model_.dtype));
  if (row.length > 0) larger.narrow(3, 0, row.length).copy_(row.cache.narrow(3, 0, row.length));
  row.cache = larger;
}

void Session::step(int64_t count, const mempo_row_input* inputs, const int64_t* offsets, const int32_t* ids,
                   mempo_sampled* out) {
  at::NoGradGuard no_grad;
  std::vector<CacheRow*> rows;
  std::vector<int64_t> starts, last_tokens;
  std::vector<SamplingRule> rules;
  for (int64_t k = 0; k < count; ++k) {
    CacheRow& row = find(inputs[k].row);
    require(std::find(rows.begin(), rows.end(), &row) == rows.end(), "row " + std::to_string(inputs[k].row) + " occurs twice");
    rows.push_back(&row);
    starts.push_back(row.length);
    out[k] = {-1, 0.0F, 0};
    if (inputs[k].sample == 0) continue;
    last_tokens.push_back(offsets[k + 1] - 1);
    rules.push_back({inputs[k].temperature, inputs[k].top_k, inputs[k].top_p, inputs[k].seed});
    check_rule(rules.back());
  }
  const PackedBatch batch = model_.pack(count, offsets, ids, starts);
  for (int64_t k = 0; k < count; ++k) reserve(*rows[k], rows[k]->length + offsets[k + 1] - offsets[k]);
  const bool kernel = model_.device.is_cpu() && model_.dtype == at::kFloat;
  const at::Tensor hidden = model_.hidden_states(model_.embed(batch), batch, std::make_shared<CachedAttention>(rows, batch, kernel));
  std::vector<mempo_sampled> sampled;
  if (!rules.empty()) {
    const at::Tensor last = at::tensor(last_tokens, at::kLong).to(model_.device);
    sampled = sample(logits(model_, hidden.index_select(0, last)), rules, valid_);
  }
  // Only now that nothing can fail do the rows become longer.
  for (int64_t k = 0, s = 0; k < count; ++k) {
    rows[k]->length += offsets[k + 1] - offsets[k];
    if (inputs[k].sample != 0) out[k] = sampled[s++];
  }
}

}  // namespace mempo

struct mempo_session : mempo::CountedHandle, mempo::Session {
  using mempo::Session::Session;
};

using mempo::guarded;
using mempo::present;
using mempo::require;

int mempo_session_new(mempo_model* model, const uint8_t* valid, int64_t valid_count, int64_t,
                      mempo_session** out, mempo_error* error) {
  return guarded(error, [&] {
    std::vector<uint8_t> ids;
    if (valid != nullptr) {
      ids.assign(valid, valid + std::max<int64_t>(valid_count, 0));
      const auto end = ids.begin() + std::min<int64_t>(present(model)->config.vocab, static_cast<int64_t>(ids.size()));
      require(std::any_of(ids.begin(), end, [](uint8_t v) { return v != 0; }), "no id of the vocabulary is valid");
    }
    *out = new mempo_session(*present(model), std::move(ids));
  });
}

void mempo_session_free(mempo_session* session) { delete session; }

int mempo_session_open(mempo_session* session, int64_t* row, mempo_error* error) {
  return guarded(error, [&] { *row = present(session)->open(); });
}

int mempo_session_fork(mempo_session* session, int64_t row, int64_t length, int64_t* copied, mempo_error* error) {
  return guarded(error, [&] {
    at::NoGradGuard no_grad;
    *copied = present(session)->fork(row, length);
  });
}

int mempo_session_release(mempo_session* session, int64_t row, mempo_error* error) {
  return guarded(error, [&] { present(session)->release(row); });
}

int mempo_session_step(mempo_session* session, int64_t count, const mempo_row_input* inputs, const int64_t* offsets,
                       const int32_t* ids, mempo_sampled* out, mempo_error* error) {
  return guarded(error, [&] { present(session)->step(count, inputs, offsets, ids, out); });
}

int mempo_session_score(mempo_session*, int64_t, const mempo_piece*, const int64_t*, const int32_t*, int64_t,
                        const int64_t*, float*, float*, mempo_error* error) {
  return guarded(error, [&] { throw std::runtime_error("this build cannot score in a session"); });
}

void mempo_session_usage(const mempo_session*, int64_t* page_tokens, int64_t* pages, int64_t* limit) {
  *page_tokens = 1;
  *pages = *limit = 0;
}
