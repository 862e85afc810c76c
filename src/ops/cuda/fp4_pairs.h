// Pair order: how the eight FP4 codes of a word of 32 bits lie in weights that the GPU reads.
//
// As released, code i of a word is its bits 4i .. 4i + 3: a magnitude of three bits, then the sign. The products take
// codes as pairs (0,4) (1,5) (2,6) (3,7) of BF16, whose bits are those of kFp4PairBits: in either half a sign, and a
// magnitude as the lowest bits of the exponent and the first of the mantissa, which is the code's value times 2^-126.
// In pair order the bits lie so that pair 0 is a mask away, pair 1 a shift and a mask, pair 2 a turn and a mask; pair 3
// takes what they leave, and two steps more. No four shifts or turns of those eight bits cover a word, so one pair
// has to. Bits of a word, s the sign of a code and 2 1 0 its magnitude:
//
//     bit    31  30  29  28  27  26  25  24  23  22  21  20  19  18  17  16
//     code   4s  30  3s  5s  32  31  6s  42  41  40  52  51  50  62  61  60
//     bit    15  14  13  12  11  10   9   8   7   6   5   4   3   2   1   0
//     code   0s  70  7s  1s  72  71  2s  02  01  00  12  11  10  22  21  20
//
// What is released has the order of the files; WeightStore and Staging bring it to pair order (OrderFp4 in
// weight_store.h). KV rows and index keys stay as the CPU has them, too. Thread-safety: pure functions, of host and
// device.
#ifndef DEEPINFER_OPS_CUDA_FP4_PAIRS_H_
#define DEEPINFER_OPS_CUDA_FP4_PAIRS_H_

#include <cstdint>

namespace deepinfer::cuda {

inline constexpr uint32_t kFp4PairBits = 0x81c081c0u;
inline constexpr int kFp4Turn = 6;  ///< to the left

/// A word in pair order, turned.
constexpr uint32_t TurnFp4(uint32_t word) { return word << kFp4Turn | word >> (32 - kFp4Turn); }

/// The pairs of a word in pair order, 2^126 too small; `turned`: TurnFp4(word). Code p is in the lower half of
/// pairs[p].
constexpr void SplitFp4(uint32_t word, uint32_t turned, uint32_t (&pairs)[4]) {
  pairs[0] = word & kFp4PairBits;
  pairs[1] = word << 3 & kFp4PairBits;
  pairs[2] = turned & kFp4PairBits;
  // A product puts its bits to three places each, and none where another is.
  pairs[3] = (turned & 0x001b001bu) * (1u << 2 | 1u << 7 | 1u << 12) & kFp4PairBits;
}

/// A released word in pair order.
constexpr uint32_t ToPairOrder(uint32_t word) {
  uint32_t pairs[4] = {};
  for (int p = 0; p < 4; ++p) {
    const uint32_t codes = word >> (4 * p) & 0x000f000fu;
    pairs[p] = (codes & 0x00080008u) << 12 | (codes & 0x00070007u) << 6;
  }
  const uint32_t last = (pairs[3] >> 2 & 0x00100010u) | (pairs[3] >> 7 & 0x00030003u) | (pairs[3] >> 12 & 0x00080008u);
  const uint32_t turned = pairs[2] | last;
  return pairs[0] | pairs[1] >> 3 | turned >> kFp4Turn | turned << (32 - kFp4Turn);
}

/// And back.
constexpr uint32_t FromPairOrder(uint32_t word) {
  uint32_t pairs[4] = {};
  SplitFp4(word, TurnFp4(word), pairs);
  uint32_t codes = 0;
  for (int p = 0; p < 4; ++p) codes |= ((pairs[p] >> 12 & 0x00080008u) | (pairs[p] >> 6 & 0x00070007u)) << (4 * p);
  return codes;
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_FP4_PAIRS_H_
