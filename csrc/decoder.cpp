#include "decoder.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <mutex>

namespace mempo {

namespace {

// Below so many rows a product is bound by reading the weight, however it is stored.
constexpr int64_t kFewestRows = 5;
// More rows do well with large products.
constexpr int64_t kMostRows = 16;

// Outputs that threads write side by side are cut at whole cache lines.
constexpr int64_t kLine = 16;

at::Tensor bias_of(const Projection& p) { return p.bias != nullptr ? p.bias->weight : at::Tensor(); }

}  // namespace

// Runs bodies on the threads of a team, all of which call the same functions in the same order, and keeps the first failure:
// none may leave the team.
class Decoder::Team {
 public:
  // Calls body(n) for each n below count, one of them on each thread. All wait for the last.
  template <typename Body>
  void each(int64_t count, const Body& body) {
#pragma omp for schedule(static, 1)
    for (int64_t n = 0; n < count; ++n) guard([&] { body(n); });
  }
  // Calls body(begin, end) for pieces of [0, count), which threads take as they come free. All wait for the last.
  template <typename Body>
  void pieces(int64_t count, int64_t piece, const Body& body) {
#pragma omp for schedule(dynamic)
    for (int64_t begin = 0; begin < count; begin += piece) guard([&] { body(begin, std::min(begin + piece, count)); });
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  template <typename Body>
  void guard(const Body& body) {
    try {
      body();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  std::mutex mutex_;
  std::exception_ptr failure_;
};

Decoder::Range Decoder::Range::share(int64_t count, int64_t unit, int64_t index, int64_t shares) {
  const int64_t units = (count + unit - 1) / unit;
  const auto edge = [&](int64_t n) { return std::min(count, units * n / shares * unit); };
  return {edge(index), edge(index + 1) - edge(index)};
}

std::unique_ptr<Decoder> Decoder::of(const Transformer& model, bool adapters) {
  constexpr int64_t kLeast = int64_t{64} << 20, kMost = int64_t{4} << 30;  // bytes of the copies
  if (!model.device.is_cpu() || model.dtype != at::kFloat || model.config.groups > 1 || !PackedMatrix::available()) return nullptr;
  auto bytes = static_cast<int64_t>(model.head->weight.nbytes());
  for (const Layer& l : model.layers) {
    for (const Projection* p : {&l.qkv, &l.output, &l.gate_up, &l.down}) bytes += static_cast<int64_t>(p->weight->weight.nbytes());
  }
  if (bytes < kLeast || bytes > kMost) return nullptr;
  return std::unique_ptr<Decoder>(new Decoder(model, adapters));
}

bool Decoder::suits(int64_t rows) { return rows >= kFewestRows && rows <= kMostRows; }

Decoder::Decoder(const Transformer& model, bool adapters) : model_(model), shares_(static_cast<size_t>(at::get_num_threads())) {
  const mempo_model_config& c = model.config;
  const auto count = static_cast<int64_t>(shares_.size());
  const auto buffer = [](int64_t width) { return at::empty({kMostRows, width}); };
  x_ = buffer(c.hidden);
  qkv_ = buffer((c.heads + 2 * c.kv_heads) * c.head_dim);
  mixed_ = buffer(c.heads * c.head_dim);
  activated_ = buffer(c.intermediate);
  for (int64_t n = 0; n < count; ++n) {
    Share& share = shares_[static_cast<size_t>(n)];
    share.heads = Range::share(c.heads + 2 * c.kv_heads, 1, n, count);
    share.hidden = Range::share(c.hidden, kLine, n, count);
    share.intermediate = Range::share(c.intermediate, kLine, n, count);
    share.vocab = Range::share(c.vocab, kLine, n, count);
  }
  const auto for_shares = [&](const auto& body) {
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      at::NoGradGuard no_grad;  // of this thread
      for (int64_t n = begin; n < end; ++n) body(shares_[static_cast<size_t>(n)]);
    });
  };
  for (const Layer& l : model.layers) {
    std::vector<at::Tensor> weights;
    for (const Projection* p : {&l.qkv, &l.output, &l.gate_up, &l.down}) weights.push_back(adapters ? merged_weight(*p) : p->weight->weight);
    for_shares([&](Share& share) { share.layers.push_back(pack(share, weights, l)); });
  }
  for_shares([&](Share& share) { share.head = std::make_unique<PackedMatrix>(model.head->weight.narrow(0, share.vocab.begin, share.vocab.length), at::Tensor()); });
}

Decoder::LayerShare Decoder::pack(const Share& share, const std::vector<at::Tensor>& weights, const Layer& layer) const {
  const int64_t d = model_.config.head_dim, m = model_.config.intermediate;
  const Range heads{share.heads.begin * d, share.heads.length * d}, gates = share.intermediate, ups{m + gates.begin, gates.length};
  const auto cut = [](const at::Tensor& of, const std::vector<Range>& ranges) {
    std::vector<at::Tensor> parts;
    for (const Range& r : ranges) parts.push_back(of.defined() ? of.narrow(0, r.begin, r.length) : at::Tensor());
    return !of.defined() || parts.size() == 1 ? parts[0] : at::cat(parts);
  };
  const auto packed = [&](size_t index, const Projection& p, const std::vector<Range>& ranges) {
    return PackedMatrix(cut(weights[index], ranges), cut(bias_of(p), ranges));
  };
  return {packed(0, layer.qkv, {heads}), packed(1, layer.output, {share.hidden}), packed(2, layer.gate_up, {gates, ups}), packed(3, layer.down, {share.hidden})};
}

at::Tensor Decoder::hidden_states(const PackedBatch& batch, const kernels::PagedRows& paged) {
  for (at::Tensor* buffer : {&x_, &qkv_, &mixed_, &activated_}) buffer->resize_({batch.ids.size(0), buffer->size(1)});
  x_.copy_(at::embedding(model_.embedding->weight, batch.ids));
  Team team;
#pragma omp parallel num_threads(static_cast<int>(shares_.size()))
  {
    at::NoGradGuard no_grad;  // of this thread
    for (size_t n = 0; n < model_.layers.size(); ++n) layer(n, batch, paged, team);
  }
  team.rethrow();
  return x_;
}

// The same as layer_forward, each product by its outputs; sums with the layer's input are made in place.
void Decoder::layer(size_t index, const PackedBatch& batch, const kernels::PagedRows& paged, Team& team) const {
  const mempo_model_config& c = model_.config;
  const auto count = static_cast<int64_t>(shares_.size()), pairs = static_cast<int64_t>(paged.rows.size()) * c.kv_heads;
  const auto share_of = [&](int64_t n) -> const Share& { return shares_[static_cast<size_t>(n)]; };
  const auto add_to_hidden = [&](const Share& share, const PackedMatrix& by, const at::Tensor& x) {
    by.multiply(x, x_.narrow(1, share.hidden.begin, share.hidden.length), /*add=*/true);
  };
  team.each(count, [&](int64_t n) { project_heads(share_of(n), index, batch, paged); });
  const at::Tensor heads = qkv_.unflatten(1, {-1, c.head_dim});
  team.pieces(pairs, c.kv_heads, [&](int64_t begin, int64_t end) {
    kernels::paged_attention_pairs(heads.narrow(1, 0, c.heads), heads.narrow(1, c.heads, c.kv_heads), heads.narrow(1, c.heads + c.kv_heads, c.kv_heads), paged,
                                   static_cast<int64_t>(index), begin, end, mixed_);
  });
  team.each(count, [&](int64_t n) { add_to_hidden(share_of(n), share_of(n).layers[index].output, mixed_); });
  team.each(count, [&](int64_t n) { gate(share_of(n), index); });
  team.each(count, [&](int64_t n) { add_to_hidden(share_of(n), share_of(n).layers[index].down, activated_); });
}

// Queries, keys and values of the share's heads, normalized where the model does that, rotated, and kept.
void Decoder::project_heads(const Share& share, size_t layer, const PackedBatch& batch, const kernels::PagedRows& paged) const {
  if (share.heads.length == 0) return;
  const mempo_model_config& c = model_.config;
  const Layer& l = model_.layers[layer];
  const int64_t d = c.head_dim;
  const at::Tensor all = qkv_.unflatten(1, {-1, d});
  share.layers[layer].qkv.multiply(kernels::rms_norm(x_, l.input_norm->weight, c.rms_norm_eps), qkv_.narrow(1, share.heads.begin * d, share.heads.length * d), /*add=*/false);
  // What the share has of the heads [begin, end), for the rows of the batch.
  const auto own = [&](int64_t begin, int64_t end) {
    const int64_t first = std::max(begin, share.heads.begin), last = std::min(end, share.heads.begin + share.heads.length);
    return all.narrow(1, std::min(first, end), std::max<int64_t>(last - first, 0));
  };
  if (l.q_norm != nullptr) {
    const at::Tensor q = own(0, c.heads), k = own(c.heads, c.heads + c.kv_heads);
    q.copy_(kernels::rms_norm(q, l.q_norm->weight, c.rms_norm_eps));
    k.copy_(kernels::rms_norm(k, l.k_norm->weight, c.rms_norm_eps));
  }
  kernels::rotate_and_append_heads(all, c.kv_heads, batch.cos, batch.sin, paged, static_cast<int64_t>(layer), share.heads.begin, share.heads.begin + share.heads.length);
}

void Decoder::gate(const Share& share, size_t layer) const {
  if (share.intermediate.length == 0) return;
  const mempo_model_config& c = model_.config;
  const at::Tensor gate_up = at::empty({x_.size(0), 2 * share.intermediate.length});
  share.layers[layer].gate_up.multiply(kernels::rms_norm(x_, model_.layers[layer].post_norm->weight, c.rms_norm_eps), gate_up, /*add=*/false);
  activated_.narrow(1, share.intermediate.begin, share.intermediate.length).copy_(kernels::swiglu(gate_up));
}

at::Tensor Decoder::logits(const at::Tensor& hidden) const {
  const at::Tensor all = at::empty({hidden.size(0), model_.config.vocab});
  Team team;
#pragma omp parallel num_threads(static_cast<int>(shares_.size()))
  {
    at::NoGradGuard no_grad;
    team.each(static_cast<int64_t>(shares_.size()), [&](int64_t n) {
      const Share& share = shares_[static_cast<size_t>(n)];
      share.head->multiply(hidden, all.narrow(1, share.vocab.begin, share.vocab.length), /*add=*/false);
    });
  }
  team.rethrow();
  return all;
}

}  // namespace mempo
