#include "base/dtype.h"

#include <array>
#include <cmath>
#include <limits>

namespace deepinfer {
namespace {

// Scalar code decodes millions of these, hence a table.
constexpr std::array<float, 256> MakeE4m3Table() {
  std::array<float, 256> table{};
  for (int byte = 0; byte < 256; ++byte) {
    const int exponent = (byte >> 3) & 15;
    const int mantissa = byte & 7;
    float magnitude = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) / 512;
    for (int e = 1; e < exponent; ++e) magnitude *= 2;
    if (exponent == 15 && mantissa == 7) magnitude = std::numeric_limits<float>::quiet_NaN();
    table[static_cast<size_t>(byte)] = (byte & 0x80) != 0 ? -magnitude : magnitude;
  }
  return table;
}
constexpr std::array<float, 256> kE4m3 = MakeE4m3Table();
constexpr std::array<float, 16> kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

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

float E4m3ToFloat(uint8_t byte) { return kE4m3[byte]; }

uint8_t FloatToE4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude >= std::bit_cast<uint32_t>(448.0f)) return static_cast<uint8_t>(sign | 0x7e);
  if (magnitude < std::bit_cast<uint32_t>(0.015625f)) {  // below 2^-6 the steps are 2^-9; 8 steps are 2^-6 itself
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 512)));
  }
  // Round the 23 mantissa bits to 3, ties to even; a carry moves into the exponent, whose bias goes from 127 to 7.
  const uint32_t rounded = (magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20;
  return static_cast<uint8_t>(sign | (rounded - ((127 - 7) << 3)));
}

float E2m1ToFloat(uint8_t nibble) { return kE2m1[nibble & 15]; }

uint8_t FloatToE2m1(float value) {
  const int sign = std::signbit(value) ? 8 : 0;
  const float m = std::fabs(value);
  // Midpoints between neighbours; a tie goes to the even code.
  const int code = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) + (m >= 3.5f) + (m > 5.0f);
  return static_cast<uint8_t>(sign | code);
}

float E8m0ToFloat(uint8_t byte) {
  if (byte == 255) return std::numeric_limits<float>::quiet_NaN();
  if (byte == 0) return std::bit_cast<float>(0x00400000u);
  return std::bit_cast<float>(static_cast<uint32_t>(byte) << 23);
}

}  // namespace deepinfer
