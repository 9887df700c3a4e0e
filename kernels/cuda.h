// The CUDA kernels as a table of launchers over raw pointers. Files of kernels include nothing of libtorch, so that nvcc
// compiles them in seconds; their table is what libmempo_cuda.so hands over when it is loaded (cuda_forms.h).
#pragma once

#include <cstdint>

namespace mempo::kernels::cuda {

enum class Elements : int { float32, bfloat16 };

// A launcher starts its work on a stream (a cudaStream_t) and returns null, or what is wrong. Pointers are to the device's
// memory and may be read until the stream has come so far; T is the type that `elements` names.
using Error = const char*;

// Rows of n elements in a tensor [outer, inner, n]: row r begins at r / inner · outer_stride + r % inner · inner_stride.
struct RowLayout {
  int64_t rows, n, inner, outer_stride, inner_stride;
};

struct ElementwiseKernels {
  // y [rows, n] = x / sqrt(mean(x²) + eps) · weight; x, weight [n] and y of T.
  Error (*rms_norm)(Elements elements, const void* x, RowLayout layout, const void* weight, float eps, void* y, void* stream);
  // dx [rows, n] of T from the gradient of y, which is of T too and has a layout of its own. scales [rows] is for 1 / sqrt(…)
  // of each row and may be null.
  Error (*rms_norm_backward)(Elements elements, const void* x, RowLayout layout, const void* weight, float eps, const void* gradient,
                             RowLayout gradient_layout, void* dx, float* scales, void* stream);
  // Adds the gradient of the weight, Σ over rows of gradient · x · scale, to `sum` [n]. partial [parts, n] is for the sums of
  // parts of the rows; how many parts there are decides the order of the sum.
  Error (*rms_norm_weight_gradient)(Elements elements, const void* x, RowLayout layout, const float* scales, const void* gradient,
                                    RowLayout gradient_layout, float* partial, int64_t parts, float* sum, void* stream);
  // Turns x [tokens, heads, d], with heads as rows, by angles of cosines and sines [tokens, d / 2], all of T, in place.
  Error (*rotate)(Elements elements, void* x, RowLayout layout, const void* cos, const void* sin, float sign, void* stream);
  // y [rows, n] = silu(gate) · up, where gate_up [rows, 2n] holds both side by side; all of T and contiguous.
  Error (*swiglu)(Elements elements, const void* gate_up, int64_t rows, int64_t n, void* y, void* stream);
  Error (*swiglu_backward)(Elements elements, const void* gate_up, const void* gradient, int64_t rows, int64_t n, void* dx, void* stream);
};
ElementwiseKernels elementwise_kernels();

struct Kernels {
  // Of this file when the kernels were compiled; those of another must not be called.
  const char* interface;
  ElementwiseKernels elementwise;
};

}  // namespace mempo::kernels::cuda

// The name under which libmempo_cuda.so exports its table.
extern "C" const mempo::kernels::cuda::Kernels* mempo_cuda_kernels(void);
