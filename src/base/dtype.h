// Element types of checkpoints and caches, and the exact value of their smallest formats.
//
// Thread-safety: pure functions. Sources: OCP MX specification (E4M3, E2M1, E8M0); spec section (b) for what the
// release stores in which format.
#ifndef DEEPINFER_BASE_DTYPE_H_
#define DEEPINFER_BASE_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace deepinfer {

enum class DType : uint8_t {
  kF32,
  kBF16,
  kF8E4M3,  ///< 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinities, 0x7f and 0xff are NaN
  kE8M0,    ///< a power of two, 2^(byte - 127); 255 is NaN
  kI8,      ///< in checkpoints: two packed E2M1 values, low nibble first
};

/// Bytes of one element as stored.
size_t DTypeBytes(DType dtype);

/// The safetensors spelling: F32, BF16, F8_E4M3, F8_E8M0, I8.
std::string_view DTypeName(DType dtype);

/// Value of a BF16 bit pattern.
inline float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// Nearest BF16, ties to even; NaN stays NaN.
uint16_t FloatToBf16(float value);

/// Value of an E4M3 byte (NaN for 0x7f and 0xff).
float E4m3ToFloat(uint8_t byte);

/// Nearest E4M3 byte, ties to even, saturating at +-448; the sign of zero is kept. `value` is finite.
uint8_t FloatToE4m3(float value);

/// Value of an E2M1 nibble: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives.
float E2m1ToFloat(uint8_t nibble);

/// Nearest E2M1 nibble, ties to even, saturating at +-6; the sign of zero is kept. `value` is finite.
uint8_t FloatToE2m1(float value);

/// 2^(byte - 127); byte 255 is NaN.
float E8m0ToFloat(uint8_t byte);

/// The E8M0 byte of 2^ceil(log2(value)), value > 0, normal.
inline uint8_t CeilPowerOfTwoByte(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7fffff) != 0));
}

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_DTYPE_H_
