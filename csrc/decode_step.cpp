#include "decode_step.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "cuda_attention.h"
#include "cuda_logits.h"
#include "head.h"

namespace mempo {

namespace {

constexpr int64_t kMostRows = 256;

// Rows of the graph that takes `rows`: a few sizes, and little work for rows that nobody asked for.
int64_t graph_rows(int64_t rows) {
  for (const int64_t few : {1, 2, 4}) {
    if (rows <= few) return few;
  }
  return (rows + 7) / 8 * 8;
}

// Attention over the pages of a table that stays where it is.
class TableAttention final : public Attention {
 public:
  TableAttention(const kernels::StagedTable& table, const kernels::Staging& staging, kernels::PageShape shape)
      : table_(table), staging_(staging), shape_(shape) {}

  void rotate_(int64_t layer, const at::Tensor& qkv, int64_t kv_heads, const at::Tensor& cos, const at::Tensor& sin) override {
    kernels::cuda::rotate_and_append_(*kernels::cuda::kernels_for(qkv), qkv, kv_heads, cos, sin, at(layer));
  }
  Attended attend(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override {
    at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
    kernels::cuda::paged_attention(*kernels::cuda::kernels_for(q), q, k, v, at(layer), out);
    return {out, {}};
  }

 private:
  kernels::cuda::PagedTable at(int64_t layer) const { return table_.at_layer(staging_, shape_, layer); }

  const kernels::StagedTable& table_;
  const kernels::Staging& staging_;
  kernels::PageShape shape_;
};

}  // namespace

bool DecodeStep::suits(const std::vector<Stretch>& stretches, const std::vector<std::optional<SamplingRule>>& rules) const {
  if (fails_ || static_cast<int64_t>(stretches.size()) > kMostRows || model_.config.head_dim > kernels::cuda::kWidestHead) return false;
  if (kernels::cuda::kernels_for(model_.embedding->weight) == nullptr) return false;
  const auto one = [](const Stretch& s) { return s.tokens == 1; };
  const auto plain = [](const std::optional<SamplingRule>& rule) { return rule && !filters(*rule); };
  return std::all_of(stretches.begin(), stretches.end(), one) && std::all_of(rules.begin(), rules.end(), plain);
}

std::optional<std::vector<mempo_sampled>> DecodeStep::run(const std::vector<Stretch>& stretches, const int32_t* ids, const std::vector<std::optional<SamplingRule>>& rules) {
  const auto count = static_cast<int64_t>(stretches.size()), rows = graph_rows(count);
  int64_t pages = 0;
  for (const Stretch& s : stretches) pages += static_cast<int64_t>(s.row->pages.size());
  auto found = captured_.find(rows);
  if (found != captured_.end() && !found->second.has_room(pages)) {
    captured_.erase(found);
    found = captured_.end();
  }
  const Captured* other = captured_.empty() ? nullptr : &captured_.begin()->second;
  if (found == captured_.end()) found = captured_.try_emplace(rows, *this, rows, 2 * pages).first;
  found->second.fill(stretches, ids, rules);
  if (!found->second.run(other)) {
    fails_ = true;
    captured_.clear();
    return {};
  }
  return found->second.drawn(count);
}

DecodeStep::Captured::Captured(const DecodeStep& of, int64_t rows, int64_t pages)
    : of_(of), rows_(rows), pages_(pages), ids_(staging_.add<int64_t>(rows)), positions_(staging_.add<int64_t>(rows)),
      draws_(staging_.add<kernels::Draw>(rows)), table_(staging_, rows, rows, pages) {
  staging_.allocate(of.model_.device);
}

DecodeStep::Captured::~Captured() {
  const auto* on = kernels::cuda::kernels_for(of_.model_.embedding->weight);
  if (graph_ != nullptr && on != nullptr) on->graphs.free(graph_);
}

void DecodeStep::Captured::fill(const std::vector<Stretch>& stretches, const int32_t* ids, const std::vector<std::optional<SamplingRule>>& rules) {
  int64_t *id = staging_.host(ids_), *position = staging_.host(positions_);
  kernels::Draw* draw = staging_.host(draws_);
  std::fill_n(id, rows_, 0);
  std::fill_n(position, rows_, 0);
  std::fill_n(draw, rows_, kernels::Draw{0, 0, -1, 0, 0});
  for (size_t n = 0; n < stretches.size(); ++n) {
    id[n] = ids[n];
    position[n] = stretches[n].past;
    draw[n].temperature = rules[n]->temperature;
    draw[n].seed = rules[n]->seed;
  }
  table_.fill(staging_, paged_rows(stretches).rows);
  staging_.upload();
}

bool DecodeStep::Captured::run(const Captured* shares_memory) {
  const kernels::cuda::GraphCalls& graphs = kernels::cuda::kernels_for(of_.model_.embedding->weight)->graphs;
  if (graph_ != nullptr) {
    kernels::cuda::check(graphs.replay(graph_));
    return true;
  }
  const auto forward = [](void* self) { static_cast<Captured*>(self)->forward(); };
  graph_ = graphs.run_and_capture(forward, this, shares_memory != nullptr ? shares_memory->graph_ : nullptr);
  return graph_ != nullptr;
}

void DecodeStep::Captured::forward() {
  at::NoGradGuard no_grad;
  const Transformer& model = of_.model_;
  std::vector<int64_t> offsets(static_cast<size_t>(rows_) + 1);
  std::iota(offsets.begin(), offsets.end(), 0);
  PackedBatch batch = model.batch_of(offsets, staging_.tensor(ids_), staging_.tensor(positions_));
  batch.adapters = of_.adapters_;
  TableAttention attention(table_, staging_, page_shape(of_.cache_));
  const at::Tensor scores = logits(model, model.normalized(model.hidden_states(batch, attention)));
  kernels::cuda::sample_on_device(*kernels::cuda::kernels_for(scores), scores, of_.valid_, staging_.device(draws_));
}

std::vector<mempo_sampled> DecodeStep::Captured::drawn(int64_t count) {
  staging_.download(draws_);
  const kernels::Draw* draws = staging_.host(draws_);
  std::vector<mempo_sampled> sampled;
  for (int64_t n = 0; n < count; ++n) {
    if (draws[n].id < 0) throw std::runtime_error(kernels::kBrokenLogits);
    sampled.push_back({static_cast<int32_t>(draws[n].id), draws[n].log_prob, draws[n].redraws});
  }
  return sampled;
}

}  // namespace mempo
