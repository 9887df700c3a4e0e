// Functions that are compiled for the CPU and for CUDA.
#pragma once

#if defined(__CUDACC__)
#define MEMPO_BOTH __host__ __device__
#else
#define MEMPO_BOTH
#endif
