// How the loops of the CPU forms are compiled: once for every kind of x86-64 vector unit, chosen
// when the program starts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#define MEMPO_VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MEMPO_VECTORIZED
#endif

namespace mempo::kernels {

// e^x in float32 within 2 units in the last place, in operations that vectorise (the C library's
// expf does not). x = n·ln 2 + r with |r| ≤ ln 2 / 2; e^r by the minimax polynomial of Cephes
// (Moshier, expf.c); 2^n by its exponent bits. Below −87.3 the result is 0 or next to it.
inline float exponential(float x) {
  const float bounded = std::min(std::max(x, -87.3F), 88.3F);
  const float shifted = bounded * 1.44269504088896341F + 12582912.0F;  // 1.5·2²³ rounds to an integer
  const float n = shifted - 12582912.0F;
  const float r = (bounded - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return p * power;
}

}  // namespace mempo::kernels
