// Counter-based random numbers: a pure function of (key, position, lane, purpose), so a draw does not depend on how
// many were made before it. Promise 2 rests on this: drafting, verification, replay and a moved request see the same
// noise.
//
// The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011).
// Thread-safety: pure functions. The values are part of the product's contract: tests pin them.
#ifndef DEEPINFER_BASE_COUNTER_RNG_H_
#define DEEPINFER_BASE_COUNTER_RNG_H_

#include <array>
#include <cstdint>

namespace deepinfer {

/// Keeps draws for different ends independent of each other.
enum class RandomPurpose : uint32_t {
  kToken = 1,     ///< Gumbel noise of the token at a position; coupled drafts use the same
  kSeed = 2,      ///< seeds derived from a seed
  kDraft = 3,     ///< Gumbel noise of a draft that rejection sampling will check
  kAccept = 4,    ///< whether that draft stands (lane 0)
  kResidual = 5,  ///< the token in the place of one that does not (lane 0)
};

/// Ten rounds of Philox4x32.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// 64 random bits for lane `lane` (a vocabulary id) at absolute position `position`.
uint64_t CounterBits(uint64_t seed, uint64_t position, uint32_t lane, RandomPurpose purpose);

/// Maps 64 random bits into the open interval (0, 1): the mid-points of 2^52 equal cells, all exact in double.
double OpenUnit(uint64_t bits);

/// Standard Gumbel noise, -log(-log(u)), of 64 random bits.
double Gumbel(uint64_t bits);

/// An upper bound of Gumbel(bits) that costs no logarithm.
double GumbelBound(uint64_t bits);

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_COUNTER_RNG_H_
