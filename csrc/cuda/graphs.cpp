// CUDA graphs by libtorch, whose allocator keeps a graph's memory apart. Part of libmempo_cuda.so.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <string>

#include "cuda.h"

namespace mempo::kernels::cuda {

namespace {

using at::cuda::CUDAGraph;

// Ends a capture whose work has failed, which is an error of its own.
void end_quietly(CUDAGraph& graph) {
  try {
    graph.capture_end();
  } catch (const std::exception&) {
  }
}

void capture(CUDAGraph& graph, void (*work)(void*), void* context, const CUDAGraph* shares_memory) {
  // Other threads may go on with what is forbidden while one captures.
  constexpr auto kMode = cudaStreamCaptureModeThreadLocal;
  graph.capture_begin(shares_memory != nullptr ? const_cast<CUDAGraph*>(shares_memory)->pool() : at::cuda::MempoolId_t{0, 0}, kMode);
  try {
    work(context);
  } catch (...) {
    end_quietly(graph);
    throw;
  }
  graph.capture_end();
}

void* run_and_capture(void (*work)(void*), void* context, const void* shares_memory) {
  try {
    auto graph = std::make_unique<CUDAGraph>();
    c10::cuda::getCurrentCUDAStream().synchronize();
    const auto stream = c10::cuda::getStreamFromPool();  // the default stream cannot be captured
    const c10::cuda::CUDAStreamGuard guard(stream);
    work(context);  // libraries take their memory at their first call
    stream.synchronize();
    capture(*graph, work, context, static_cast<const CUDAGraph*>(shares_memory));
    return graph.release();
  } catch (const std::exception&) {
    cudaGetLastError();  // so that the next call does not report it
    return nullptr;
  }
}

Error replay(void* graph) {
  static thread_local std::string error;
  try {
    static_cast<CUDAGraph*>(graph)->replay();
    return nullptr;
  } catch (const std::exception& e) {
    error = e.what();
    return error.c_str();
  }
}

void free_graph(void* graph) { delete static_cast<CUDAGraph*>(graph); }

}  // namespace

GraphCalls graph_calls() { return {run_and_capture, replay, free_graph}; }

}  // namespace mempo::kernels::cuda
