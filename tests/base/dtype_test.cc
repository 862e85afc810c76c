// Number formats: every code, every midpoint, saturation and the sign of zero.
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace deepinfer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What an E4M3 byte means, from the format's definition.
double E4m3Definition(int byte) {
  const int exponent = byte >> 3 & 15;
  const int mantissa = byte & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa / 8.0, -6) : std::ldexp(1 + mantissa / 8.0, exponent - 7);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(DTypeTest, E4m3CodesRoundTrip) {
  for (int byte = 0; byte < 256; ++byte) {
    const float value = E4m3ToFloat(static_cast<uint8_t>(byte));
    if ((byte & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << byte;
      continue;
    }
    EXPECT_EQ(value, E4m3Definition(byte)) << byte;
    EXPECT_EQ(std::signbit(value), (byte & 0x80) != 0) << byte;
    EXPECT_EQ(FloatToE4m3(value), byte);
  }
}

TEST(DTypeTest, E4m3RoundsToNearestTiesToEven) {
  for (int byte = 0; byte < 0x7e; ++byte) {
    const float low = E4m3ToFloat(static_cast<uint8_t>(byte));
    const float high = E4m3ToFloat(static_cast<uint8_t>(byte + 1));
    const float middle = (low + high) / 2;
    const int even = byte % 2 == 0 ? byte : byte + 1;
    EXPECT_EQ(FloatToE4m3(middle), even) << middle;
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, 0.0f)), byte) << middle;
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, kInfinity)), byte + 1) << middle;
    EXPECT_EQ(FloatToE4m3(-middle), even | 0x80) << middle;
  }
}

TEST(DTypeTest, E4m3SaturatesAndKeepsTheSignOfZero) {
  for (const float value : {448.0f, 449.0f, 464.0f, 480.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(FloatToE4m3(value), 0x7e) << value;
    EXPECT_EQ(FloatToE4m3(-value), 0xfe) << value;
  }
  EXPECT_EQ(FloatToE4m3(0.0f), 0x00);
  EXPECT_EQ(FloatToE4m3(-0.0f), 0x80);
  EXPECT_EQ(FloatToE4m3(-1e-30f), 0x80);
  EXPECT_EQ(FloatToE4m3(std::numeric_limits<float>::denorm_min()), 0x00);
}

TEST(DTypeTest, E2m1CodesRoundTrip) {
  const float magnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int code = 0; code < 16; ++code) {
    const float value = E2m1ToFloat(static_cast<uint8_t>(code));
    EXPECT_EQ(std::fabs(value), magnitudes[code & 7]);
    EXPECT_EQ(std::signbit(value), code >= 8);
    EXPECT_EQ(FloatToE2m1(value), code);
  }
}

TEST(DTypeTest, E2m1TiesOfTheSpec) {
  const float ties[7][2] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2}, {2.5f, 2}, {3.5f, 4}, {5, 4}};
  for (int i = 0; i < 7; ++i) {
    const float tie = ties[i][0];
    EXPECT_EQ(E2m1ToFloat(FloatToE2m1(tie)), ties[i][1]) << tie;
    EXPECT_EQ(E2m1ToFloat(FloatToE2m1(-tie)), -ties[i][1]) << tie;
    EXPECT_EQ(FloatToE2m1(std::nextafter(tie, 0.0f)), i) << tie;
    EXPECT_EQ(FloatToE2m1(std::nextafter(tie, kInfinity)), i + 1) << tie;
  }
}

TEST(DTypeTest, E2m1SaturatesAndKeepsTheSignOfZero) {
  for (const float value : {6.0f, 7.0f, 1e30f, kInfinity}) {
    EXPECT_EQ(FloatToE2m1(value), 7) << value;
    EXPECT_EQ(FloatToE2m1(-value), 15) << value;
  }
  EXPECT_EQ(FloatToE2m1(0.0f), 0);
  EXPECT_EQ(FloatToE2m1(-0.0f), 8);
  EXPECT_EQ(FloatToE2m1(-0.1f), 8);
}

TEST(DTypeTest, Bf16PatternsRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = Bf16ToFloat(static_cast<uint16_t>(bits));
    const uint16_t back = FloatToBf16(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(back))) << bits;
    } else {
      EXPECT_EQ(back, bits);
    }
  }
}

TEST(DTypeTest, Bf16RoundsToNearestTiesToEven) {
  const auto from_bits = [](uint32_t bits) { return FloatToBf16(std::bit_cast<float>(bits)); };
  EXPECT_EQ(from_bits(0x3f808000), 0x3f80);  // tie, even below
  EXPECT_EQ(from_bits(0x3f818000), 0x3f82);  // tie, even above
  EXPECT_EQ(from_bits(0x3f808001), 0x3f81);
  EXPECT_EQ(from_bits(0x3f817fff), 0x3f81);
  EXPECT_EQ(from_bits(0xbf818000), 0xbf82);
  EXPECT_EQ(from_bits(0x3fffffff), 0x4000);  // carries into the exponent
  EXPECT_EQ(from_bits(0x7f7fffff), 0x7f80);  // past the largest BF16: infinity
  EXPECT_EQ(from_bits(0x80000000), 0x8000);
}

TEST(DTypeTest, Bf16KeepsNaN) {
  // A payload in the low half alone must not turn into infinity.
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::bit_cast<float>(0xffffffffu)))));
}

TEST(DTypeTest, E8m0IsAPowerOfTwo) {
  for (int byte = 0; byte < 255; ++byte) {
    EXPECT_EQ(E8m0ToFloat(static_cast<uint8_t>(byte)), std::ldexp(1.0, byte - 127)) << byte;
  }
  EXPECT_TRUE(std::isnan(E8m0ToFloat(255)));
}

TEST(DTypeTest, CeilPowerOfTwoByteRoundsUp) {
  for (int byte = 1; byte < 254; ++byte) {
    const float power = E8m0ToFloat(static_cast<uint8_t>(byte));
    EXPECT_EQ(CeilPowerOfTwoByte(power), byte);
    EXPECT_EQ(CeilPowerOfTwoByte(std::nextafter(power, kInfinity)), byte + 1);
    EXPECT_EQ(CeilPowerOfTwoByte(power * 1.5f), byte + 1);
  }
}

TEST(DTypeTest, NamesAndBytes) {
  EXPECT_EQ(DTypeBytes(DType::kF32), 4u);
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2u);
  EXPECT_EQ(DTypeBytes(DType::kF8E4M3), 1u);
  EXPECT_EQ(DTypeBytes(DType::kE8M0), 1u);
  EXPECT_EQ(DTypeBytes(DType::kI8), 1u);
  EXPECT_EQ(DTypeName(DType::kF8E4M3), "F8_E4M3");
  EXPECT_EQ(DTypeName(DType::kE8M0), "F8_E8M0");
}

}  // namespace
}  // namespace deepinfer
