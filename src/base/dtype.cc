#include "base/dtype.h"

#include <cmath>
#include <limits>

namespace deepinfer {
namespace {

// Rounds |value| to a grid of `mantissa_bits` with exponents not below `min_exponent`, ties to even.
float RoundToGrid(float magnitude, int min_exponent, int mantissa_bits) {
  if (magnitude == 0) return 0;
  const int exponent = std::max(std::ilogb(magnitude), min_exponent);
  const float step = std::ldexp(1.0f, exponent - mantissa_bits);
  return std::nearbyint(magnitude / step) * step;
}

}  // namespace

size_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kBF16:
      return 2;
    case DType::kF8E4M3:
    case DType::kE8M0:
    case DType::kI8:
      return 1;
  }
  return 0;
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kE8M0:
      return "F8_E8M0";
    case DType::kI8:
      return "I8";
  }
  return "?";
}

uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float E4m3ToFloat(uint8_t byte) {
  const int exponent = (byte >> 3) & 15;
  const int mantissa = byte & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude =
      exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9) : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t FloatToE4m3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = RoundToGrid(std::min(std::fabs(value), 448.0f), -6, 3);
  if (magnitude == 0) return sign;
  const int exponent = std::ilogb(magnitude);
  if (exponent < -6) return static_cast<uint8_t>(sign | static_cast<int>(std::ldexp(magnitude, 9)));
  const int mantissa = static_cast<int>(std::ldexp(magnitude, 3 - exponent)) - 8;
  return static_cast<uint8_t>(sign | ((exponent + 7) << 3) | mantissa);
}

float E2m1ToFloat(uint8_t nibble) {
  static constexpr float kMagnitude[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float magnitude = kMagnitude[nibble & 7];
  return (nibble & 8) != 0 ? -magnitude : magnitude;
}

uint8_t FloatToE2m1(float value) {
  const uint8_t sign = std::signbit(value) ? 8 : 0;
  const float magnitude = RoundToGrid(std::min(std::fabs(value), 6.0f), 0, 1);
  const float twice = magnitude * 2;  // 0 1 2 3 4 6 8 12
  const int code = twice <= 4 ? static_cast<int>(twice) : twice == 6 ? 5 : twice == 8 ? 6 : 7;
  return static_cast<uint8_t>(sign | code);
}

float E8m0ToFloat(uint8_t byte) {
  if (byte == 255) return std::numeric_limits<float>::quiet_NaN();
  if (byte == 0) return std::bit_cast<float>(0x00400000u);
  return std::bit_cast<float>(static_cast<uint32_t>(byte) << 23);
}

}  // namespace deepinfer
