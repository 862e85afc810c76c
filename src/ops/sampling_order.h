// The arithmetic of sampling that every backend must repeat to the bit: e^x, the order of sums, and the changes that
// rules make to single logits.
//
// Nothing here fuses multiply and add, so instruction sets with and without FMA agree. Sums over ids add kWeightLanes
// lanes: lane l owns ids l, l + kWeightLanes, ...; the lanes then fold as a tree (l += l + 8, + 4, + 2, + 1).
// Thread-safety: pure functions.
#ifndef DEEPINFER_OPS_SAMPLING_ORDER_H_
#define DEEPINFER_OPS_SAMPLING_ORDER_H_

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/sampling.h"

namespace deepinfer::sampling {

inline constexpr int64_t kWeightLanes = 16;

/// A residual mass of at most this much is rounding: the token is drawn from p instead.
inline constexpr double kLeastResidual = 1e-8;

// e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln 2 / 2; e^r by its Taylor series up to r^11 / 11!.
inline constexpr double kExpLowest = -708.0;  // below it: 0
inline constexpr double kLog2E = 1.4426950408889634;
inline constexpr double kLn2High = 0x1.62e42fee00000p-1;  // n * kLn2High is exact
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
inline constexpr double kRounder = 0x1.8p52;  // x + kRounder has round(x) in its low bits
inline constexpr double kExpTerms[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                                       1.0 / 120,      1.0 / 24,      1.0 / 6,      1.0 / 2,     1.0,        1.0};

/// e^x for x <= 0, within 1e-14 of it.
inline double ExpNonPositive(double x) {
  if (!(x >= kExpLowest)) return 0;
  const double shifted = x * kLog2E + kRounder;
  const double n = shifted - kRounder;
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = kExpTerms[0];
  for (size_t i = 1; i < std::size(kExpTerms); ++i) sum = sum * r + kExpTerms[i];
  return std::bit_cast<double>(std::bit_cast<uint64_t>(sum) + (std::bit_cast<uint64_t>(shifted) << 52));
}

/// What the order of sums makes of its lanes, which are overwritten.
inline double FoldLanes(double* lanes) {
  for (int64_t half = kWeightLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

/// Whether ApplyRule would leave every row as it is.
inline bool ChangesNothing(const TokenRule& rule) {
  const bool penalises = rule.repetition_penalty != 1 || rule.presence_penalty != 0 || rule.frequency_penalty != 0;
  return rule.barred.empty() && rule.bias.empty() && (rule.seen.empty() || !penalises);
}

inline float FiniteFloat(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value, -kLargest, kLargest));
}

/// Steps 1 (`barred` only) to 3 of ops/sampling.h, in place.
inline void ApplyRule(const TokenRule& rule, float* logits, [[maybe_unused]] int64_t vocabulary) {
  constexpr float kBarred = -std::numeric_limits<float>::infinity();
  for (const int32_t id : rule.barred) {
    assert(id >= 0 && id < vocabulary);
    logits[id] = kBarred;
  }
  for (const LogitBias& bias : rule.bias) {
    assert(bias.id >= 0 && bias.id < vocabulary);
    if (logits[bias.id] != kBarred) logits[bias.id] = FiniteFloat(double{logits[bias.id]} + bias.bias);
  }
  for (const SeenToken& seen : rule.seen) {
    assert(seen.id >= 0 && seen.id < vocabulary);
    if (logits[seen.id] == kBarred) continue;
    double z = logits[seen.id];
    z = z > 0 ? z / rule.repetition_penalty : z * rule.repetition_penalty;
    z -= rule.frequency_penalty * seen.output_count;
    if (seen.output_count > 0) z -= rule.presence_penalty;
    logits[seen.id] = FiniteFloat(z);
  }
}

}  // namespace deepinfer::sampling

#endif  // DEEPINFER_OPS_SAMPLING_ORDER_H_
