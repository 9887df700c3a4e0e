// What a draw of a token is made by, on the CPU and on CUDA alike.
#pragma once

#include <stdint.h>

#include "both.h"

namespace mempo::kernels {

// One token for a row of logits: what to draw by, and what came out.
struct Draw {
  double temperature;  // 0 = the likeliest token
  uint64_t seed;
  int64_t id;
  float log_prob;  // at the temperature (1 for the likeliest), over all ids
  int32_t redraws;
};

// After so many redraws nearly all mass lies on ids that are not valid: the likeliest valid one is taken.
constexpr int32_t kMaxRedraws = 64;

// An exponential below this is what rounding leaves of no mass at all: such an id is never drawn.
constexpr double kNoMass = 2e-38;

// The n-th number of the stream of a seed, in [0, 1): splitmix64 (Steele, Lea, Flood 2014).
MEMPO_BOTH inline double uniform(uint64_t seed, uint64_t n) {
  uint64_t z = seed + (n + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

}  // namespace mempo::kernels
