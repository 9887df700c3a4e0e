// One more token for each of several rows as a CUDA graph: hundreds of kernels by one launch, which would otherwise take longer
// to start than to run.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "cached_attention.h"
#include "sampling.h"
#include "transformer.h"

namespace mempo {

// Graphs by numbers of rows, captured when they are first needed. A graph reads ids, positions, pages and rules from buffers
// of its own, so that it serves all rows, lengths and rules; it is captured anew only when the pages outgrow them.
class DecodeStep {
 public:
  // `valid` as in sampling.h; `adapters` as in PackedBatch.
  DecodeStep(const Transformer& model, const KVCache& cache, at::Tensor valid, bool adapters)
      : model_(model), cache_(cache), valid_(std::move(valid)), adapters_(adapters) {}

  // Whether a step is one: a new token in each of its rows, and one to be drawn behind it without a filter, on a device whose
  // kernels do this.
  bool suits(const std::vector<Stretch>& stretches, const std::vector<std::optional<SamplingRule>>& rules) const;

  // Feeds ids[n] behind the past of stretches[n], keeps its keys and values, and draws by rules[n]. Nothing where the device
  // takes no graph: what was begun may be done again in another way.
  std::optional<std::vector<mempo_sampled>> run(const std::vector<Stretch>& stretches, const int32_t* ids, const std::vector<std::optional<SamplingRule>>& rules);

 private:
  // The buffers of a graph, and the graph.
  class Captured {
   public:
    Captured(const DecodeStep& of, int64_t rows, int64_t pages);
    ~Captured();
    Captured(const Captured&) = delete;
    Captured& operator=(const Captured&) = delete;

    bool has_room(int64_t pages) const { return pages <= pages_; }
    void fill(const std::vector<Stretch>& stretches, const int32_t* ids, const std::vector<std::optional<SamplingRule>>& rules);
    // Runs the step over what is filled in; false where it could not be captured.
    bool run(const Captured* shares_memory);
    // What was drawn for the first `count` rows.
    std::vector<mempo_sampled> drawn(int64_t count);

   private:
    void forward();

    const DecodeStep& of_;
    int64_t rows_, pages_;
    kernels::Staging staging_;
    kernels::Staging::Section<int64_t> ids_, positions_;
    kernels::Staging::Section<kernels::Draw> draws_;
    kernels::StagedTable table_;
    void* graph_ = nullptr;
  };

  const Transformer& model_;
  const KVCache& cache_;
  at::Tensor valid_;
  bool adapters_;
  bool fails_ = false;  // to capture
  std::map<int64_t, Captured> captured_;
};

}  // namespace mempo
