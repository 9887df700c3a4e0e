// The table of all launchers.
#include "cuda.h"

extern "C" __attribute__((visibility("default"))) const mempo::kernels::cuda::Kernels* mempo_cuda_kernels(void) {
  using namespace mempo::kernels::cuda;
  static const Kernels all{MEMPO_CUDA_INTERFACE, elementwise_kernels(), rotary_kernels(), learning_kernels(), logit_kernels(),
                           sampling_kernels(), attention_kernels(), graph_calls()};
  return &all;
}
