// Graphs on a GPU in software: work that is remembered and done again.
#include "cuda.h"

namespace mempo::kernels::cuda {

namespace {

struct Work {
  void (*run)(void*);
  void* context;
};

void* run_and_capture(void (*work)(void*), void* context, const void*) {
  work(context);
  return new Work{work, context};
}

Error replay(void* graph) {
  const Work& work = *static_cast<Work*>(graph);
  work.run(work.context);
  return nullptr;
}

void free_graph(void* graph) { delete static_cast<Work*>(graph); }

}  // namespace

GraphCalls graph_calls() { return {run_and_capture, replay, free_graph}; }

}  // namespace mempo::kernels::cuda
