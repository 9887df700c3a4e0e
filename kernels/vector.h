// How the loops of the CPU forms are compiled: once for every kind of x86-64 vector unit, chosen
// when the program starts.
#pragma once

#if defined(__x86_64__)
#define MEMPO_VECTORIZED __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default")))
#else
#define MEMPO_VECTORIZED
#endif
