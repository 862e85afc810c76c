// FP8 and FP4 weight codes as BF16, with their block scale, exactly: by placing their bits and one multiplication.
//
// Thread-safety: pure device functions.
#ifndef DEEPINFER_OPS_CUDA_DECODE_BF16_CUH_
#define DEEPINFER_OPS_CUDA_DECODE_BF16_CUH_

#include <cstdint>

#include "ops/cuda/fp4_pairs.h"

namespace deepinfer::cuda {

/// Decoded weights are 2^64 too small, so that no scale leaves the exponents of BF16.
inline constexpr float kSkinnyFactor = 0x1p64f;

__device__ __forceinline__ uint32_t MultiplyBf16(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

/// The factor for decoded codes of a block: its scale with the codes' own offset, twice. FP4 codes as BF16 bits are
/// 2^126 too small, FP8 codes 2^120.
template <bool fp4>
__device__ __forceinline__ uint32_t DecodeFactor(uint32_t scale_byte) {
  constexpr uint32_t kTwice = 1u << 7 | 1u << 23;  // one multiply-add
  return scale_byte * kTwice + (fp4 ? 126 - 64 : 120 - 64) * kTwice;
}

/// Eight E2M1 codes as the CPU has them, of KV rows and index keys, as BF16 pairs (0,4) (1,5) (2,6) (3,7), times
/// `factor`: 17 instructions. A product puts a code to two places, sign and magnitude: it takes the multiplier's pipe,
/// where shifts would queue for the same one as the masks.
__device__ __forceinline__ void DecodeFp4(uint32_t word, uint32_t factor, uint32_t (&pairs)[4]) {
  constexpr uint32_t kBits = 0x81c081c0u;
  constexpr uint32_t kEven = 1u << 12 | 1u << 6, kOdd = 1u << 8 | 1u << 2;
  const uint32_t upper = word >> 8;
  pairs[0] = MultiplyBf16((word & 0x000f000fu) * kEven & kBits, factor);
  pairs[1] = MultiplyBf16((word & 0x00f000f0u) * kOdd & kBits, factor);
  pairs[2] = MultiplyBf16((upper & 0x000f000fu) * kEven & kBits, factor);
  pairs[3] = MultiplyBf16((upper & 0x00f000f0u) * kOdd & kBits, factor);
}

/// The same of a weight's word, which is in pair order: 12 instructions, six of them for the pipe of masks and shifts.
__device__ __forceinline__ void DecodeFp4Weight(uint32_t word, uint32_t factor, uint32_t (&pairs)[4]) {
  uint32_t turned;
  // TurnFp4, which the compiler would see through: a turn for one pair and a shift more for the other.
  asm("shf.l.wrap.b32 %0, %1, %1, %2;" : "=r"(turned) : "r"(word), "n"(kFp4Turn));
  SplitFp4(word, turned, pairs);
#pragma unroll
  for (int p = 0; p < 4; ++p) pairs[p] = MultiplyBf16(pairs[p], factor);
}

/// Four E4M3 codes as BF16 pairs (0,2) (1,3), times `factor`.
__device__ __forceinline__ void DecodeFp8(uint32_t word, uint32_t factor, uint32_t* pairs /* [2] */) {
  constexpr uint32_t kSign = 0x80008000u, kMagnitude = 0x07f007f0u;
  pairs[0] = MultiplyBf16((word << 8 & kSign) | (word << 4 & kMagnitude), factor);
  pairs[1] = MultiplyBf16((word & kSign) | (word >> 4 & kMagnitude), factor);
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_DECODE_BF16_CUH_
