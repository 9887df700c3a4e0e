// Rows of key/value caches, and the forward passes that extend them or branch off them.
#include <algorithm>
#include <utility>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "cached_attention.h"
#include "decode_step.h"
#include "decoder.h"
#include "head.h"
#include "sampling.h"
#include "transformer.h"

namespace mempo {

namespace {

// Takes the room that kept stretches need, and gives back what their rows have not grown into when the call ends.
class Reservation {
 public:
  Reservation(KVCache& cache, const std::vector<Stretch>& stretches) : cache_(cache), stretches_(stretches) {
    try {
      for (const Stretch& s : stretches_) {
        const auto same = [&](const Stretch& other) { return other.row == s.row; };
        require(!s.keep || std::count_if(stretches_.begin(), stretches_.end(), same) == 1, "a row that grows occurs twice");
        if (s.keep) cache_.reserve(*s.row, s.tokens);
      }
    } catch (...) {
      give_back();
      throw;
    }
  }
  ~Reservation() { give_back(); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  // Only when nothing can fail any more do the rows become longer.
  void grow() const {
    for (const Stretch& s : stretches_) {
      if (s.keep) s.row->length += s.tokens;
    }
  }

 private:
  void give_back() {
    for (const Stretch& s : stretches_) cache_.trim(*s.row);
  }

  KVCache& cache_;
  const std::vector<Stretch>& stretches_;
};

}  // namespace

class Session {
 public:
  Session(const Transformer& model, at::Tensor valid, int64_t cache_tokens, bool adapters)
      : cache({model.config.layers, model.config.kv_heads, model.config.head_dim, at::TensorOptions().device(model.device).dtype(model.dtype)}, cache_tokens),
        model_(model), valid_(std::move(valid)), adapters_(adapters), decode_(model, cache, valid_, adapters) {}

  void step(int64_t count, const mempo_row_input* inputs, const int64_t* offsets, const int32_t* ids, mempo_sampled* out);
  void score(int64_t count, const mempo_piece* pieces, const int64_t* offsets, const int32_t* ids, int64_t position_count,
             const int64_t* positions, float* log_probs, float* entropies);

  KVCache cache;

 private:
  using Rules = std::vector<std::optional<SamplingRule>>;  // none for a row that draws nothing

  // The tokens of all rows in one pass, and what is drawn behind them.
  std::vector<mempo_sampled> step(const PackedRows& given, const std::vector<Stretch>& stretches, const Rules& rules);
  // The decoder, made when several rows first go on by one token each, where this pass is one for it; else null.
  Decoder* decoder_for(int64_t rows, int64_t tokens);
  PackedBatch pack(const RowGroup& group, const std::vector<Stretch>& stretches) const;
  // Hidden states of a group's tokens; `stretches` are those of all rows of the call.
  at::Tensor run(const PackedBatch& batch, const RowGroup& group, const std::vector<Stretch>& stretches) const;

  const Transformer& model_;
  at::Tensor valid_;  // one byte per id, on the model's device; undefined where all are valid
  bool adapters_;
  std::unique_ptr<Decoder> decoder_;
  bool tried_decoder_ = false;
  DecodeStep decode_;
};

// What a group has of a list with one entry for each row of the call.
template <typename T>
std::vector<T> of_group(const std::vector<T>& all, const RowGroup& group) {
  return {all.begin() + group.begin, all.begin() + group.end};
}

std::vector<int64_t> pasts(const std::vector<Stretch>& stretches) {
  std::vector<int64_t> all;
  for (const Stretch& s : stretches) all.push_back(s.past);
  return all;
}

Decoder* Session::decoder_for(int64_t rows, int64_t tokens) {
  if (tokens != rows || !Decoder::suits(rows)) return nullptr;
  if (!std::exchange(tried_decoder_, true)) decoder_ = Decoder::of(model_, adapters_);
  return decoder_.get();
}

PackedBatch Session::pack(const RowGroup& group, const std::vector<Stretch>& stretches) const {
  PackedBatch batch = model_.pack(group, of_group(pasts(stretches), group));
  batch.adapters = adapters_;
  return batch;
}

at::Tensor Session::run(const PackedBatch& batch, const RowGroup& group, const std::vector<Stretch>& stretches) const {
  std::vector<Stretch> own = of_group(stretches, group);
  for (size_t r = 0; r < own.size(); ++r) own[r].begin = group.offsets[r];
  CachedAttention attention(cache, own);
  return model_.hidden_states(batch, attention);
}

void Session::step(int64_t count, const mempo_row_input* inputs, const int64_t* offsets, const int32_t* ids,
                   mempo_sampled* out) {
  at::NoGradGuard no_grad;
  const PackedRows given{count, offsets, ids, 0, nullptr};
  check_rows(given, model_.config.vocab);
  std::vector<Stretch> stretches;
  Rules rules;
  for (int64_t k = 0; k < count; ++k) {
    KVCache::Row& row = cache.find(inputs[k].row);
    stretches.push_back({&row, row.length, offsets[k], offsets[k + 1] - offsets[k], /*keep=*/true});
    rules.emplace_back();
    if (inputs[k].sample == 0) continue;
    rules.back() = SamplingRule{inputs[k].temperature, inputs[k].top_k, inputs[k].top_p, inputs[k].seed};
    check_rule(*rules.back());
  }
  const Reservation reservation(cache, stretches);
  std::optional<std::vector<mempo_sampled>> sampled;
  if (decode_.suits(stretches, rules)) sampled = decode_.run(stretches, ids, rules);
  if (!sampled) sampled = step(given, stretches, rules);
  reservation.grow();
  std::copy(sampled->begin(), sampled->end(), out);
}

std::vector<mempo_sampled> Session::step(const PackedRows& given, const std::vector<Stretch>& stretches, const Rules& all_rules) {
  Decoder* const decoder = decoder_for(given.rows, given.offsets[given.rows]);
  std::vector<mempo_sampled> sampled(static_cast<size_t>(given.rows), {-1, 0.0F, 0});
  run_groups(cut_evenly(given, model_.config.groups), [&](size_t, const RowGroup& group) {
    const PackedBatch batch = pack(group, stretches);
    const at::Tensor hidden = decoder != nullptr ? decoder->hidden_states(batch, paged_rows(stretches)) : run(batch, group, stretches);
    std::vector<int64_t> rows, last_tokens;
    std::vector<SamplingRule> rules;
    for (int64_t k = group.begin; k < group.end; ++k) {
      const auto& rule = all_rules[static_cast<size_t>(k)];
      if (!rule) continue;
      rows.push_back(k);
      last_tokens.push_back(group.offsets[static_cast<size_t>(k - group.begin) + 1] - 1);
      rules.push_back(*rule);
    }
    if (rows.empty()) return;
    const at::Tensor last = hidden.index_select(0, kernels::to_device(at::tensor(last_tokens, at::kLong), model_.device));
    const at::Tensor normalized = model_.normalized(last);
    const auto drawn = sample(decoder != nullptr ? decoder->logits(normalized) : logits(model_, normalized), rules, valid_);
    for (size_t n = 0; n < rows.size(); ++n) sampled[static_cast<size_t>(rows[n])] = drawn[n];
  });
  return sampled;
}

void Session::score(int64_t count, const mempo_piece* pieces, const int64_t* offsets, const int32_t* ids,
                    int64_t position_count, const int64_t* positions, float* log_probs, float* entropies) {
  at::NoGradGuard no_grad;
  const PackedRows given{count, offsets, ids, position_count, positions};
  check_rows(given, model_.config.vocab);
  std::vector<Stretch> stretches;
  for (int64_t k = 0; k < count; ++k) {
    const mempo_piece& piece = pieces[k];
    KVCache::Row& row = cache.find(piece.row);
    require(piece.length >= 0 && piece.length <= row.length && (piece.keep == 0 || piece.length == row.length),
            "row " + std::to_string(piece.row) + " has " + std::to_string(row.length) + " tokens, the piece stands behind " + std::to_string(piece.length));
    check_temperature(piece.temperature);
    stretches.push_back({&row, piece.length, offsets[k], offsets[k + 1] - offsets[k], piece.keep != 0});
  }
  const Reservation reservation(cache, stretches);
  run_groups(cut_evenly(given, model_.config.groups), [&](size_t, const RowGroup& group) {
    const PackedBatch batch = pack(group, stretches);
    const at::Tensor hidden = run(batch, group, stretches);
    if (group.positions.empty()) return;
    std::vector<double> temperatures;
    int64_t row = group.begin;
    for (const int64_t position : group.positions) {
      while (position >= group.offsets[static_cast<size_t>(row - group.begin) + 1]) ++row;
      temperatures.push_back(pieces[row].temperature);
    }
    const Targets targets(batch, group.positions);
    const at::Tensor predicting = model_.normalized(hidden.index_select(0, targets.sources));
    const auto scores = token_log_probs_and_entropy(model_, predicting, targets.ids, temperatures);
    copy_out(scores.log_probs, log_probs + group.first_position);
    copy_out(scores.entropy, entropies + group.first_position);
  });
  reservation.grow();
}

}  // namespace mempo

struct mempo_session : mempo::CountedHandle, mempo::Session {
  using mempo::Session::Session;
};

using mempo::guarded;
using mempo::present;
using mempo::require;

int mempo_session_new(mempo_model* model, const uint8_t* valid, int64_t valid_count, int64_t cache_tokens,
                      int without_adapters, mempo_session** out, mempo_error* error) {
  return guarded(error, [&] {
    at::Tensor ids;
    if (valid != nullptr) {
      const int64_t known = std::clamp<int64_t>(valid_count, 0, present(model)->config.vocab);
      require(std::any_of(valid, valid + known, [](uint8_t v) { return v != 0; }), "no id of the vocabulary is valid");
      ids = at::from_blob(const_cast<uint8_t*>(valid), {known}, at::kByte).clone().to(model->device);
    }
    require(cache_tokens >= 0, "cache_tokens must not be negative");
    *out = new mempo_session(*present(model), std::move(ids), cache_tokens, without_adapters == 0);
  });
}

void mempo_session_free(mempo_session* session) {
  delete session;
#if defined(__GLIBC__)
  malloc_trim(0);  // pages are large: what they leave behind would lie beside the update's activations
#endif
}

int mempo_session_open(mempo_session* session, int64_t* row, mempo_error* error) {
  return guarded(error, [&] { *row = present(session)->cache.open(); });
}

int mempo_session_fork(mempo_session* session, int64_t row, int64_t length, int64_t* forked, mempo_error* error) {
  return guarded(error, [&] {
    at::NoGradGuard no_grad;
    *forked = present(session)->cache.fork(row, length);
  });
}

int mempo_session_release(mempo_session* session, int64_t row, mempo_error* error) {
  return guarded(error, [&] { present(session)->cache.release(row); });
}

int mempo_session_step(mempo_session* session, int64_t count, const mempo_row_input* inputs, const int64_t* offsets,
                       const int32_t* ids, mempo_sampled* out, mempo_error* error) {
  return guarded(error, [&] { present(session)->step(count, inputs, offsets, ids, out); });
}

int mempo_session_score(mempo_session* session, int64_t count, const mempo_piece* pieces, const int64_t* offsets,
                        const int32_t* ids, int64_t position_count, const int64_t* positions, float* log_probs,
                        float* entropies, mempo_error* error) {
  return guarded(error, [&] {
    present(session)->score(count, pieces, offsets, ids, position_count, positions, log_probs, entropies);
  });
}

void mempo_session_usage(const mempo_session* session, int64_t* page_tokens, int64_t* pages, int64_t* limit) {
  *page_tokens = mempo::KVCache::kPageTokens;
  *pages = session != nullptr ? session->cache.pages() : 0;
  *limit = session != nullptr ? session->cache.limit() : 0;
}
