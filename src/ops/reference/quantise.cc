#include "ops/reference/quantise.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"

namespace deepinfer::reference {
namespace {

float AbsoluteMaximum(const float* x, int count) {
  float maximum = 0;
  for (int i = 0; i < count; ++i) maximum = std::max(maximum, std::fabs(x[i]));
  return maximum;
}

// Element 2i into the low nibble of byte i. Even elements come first and clear the byte.
void StoreE2m1(uint8_t* values, int index, uint8_t nibble) {
  uint8_t& byte = values[index / 2];
  byte = index % 2 == 0 ? nibble : static_cast<uint8_t>(byte | nibble << 4);
}

}  // namespace

uint8_t Fp8ScaleByte(const float* x) {
  return CeilPowerOfTwoByte(std::max(AbsoluteMaximum(x, 32), 1e-4f) * (1.0f / 448));
}

uint8_t IndexFp4ScaleByte(const float* x) {
  const float smallest = std::ldexp(6.0f, -126);
  return CeilPowerOfTwoByte(std::max(AbsoluteMaximum(x, 32), smallest) * (1.0f / 6));
}

uint8_t CompressedFp4ScaleByte(const float* x) {
  const float smallest = std::ldexp(6.0f, -9);
  return FloatToE4m3(std::max(AbsoluteMaximum(x, 16), smallest) / 6);
}

void QuantiseActivations(const float* x, int64_t columns, float* out) {
  for (int64_t group = 0; group < columns; group += 32) {
    const float scale = E8m0ToFloat(Fp8ScaleByte(x + group));
    for (int64_t k = group; k < group + 32; ++k) out[k] = E4m3ToFloat(FloatToE4m3(x[k] / scale)) * scale;
  }
}

void QuantiseIndexQuery(const float* x, int64_t columns, float* out) {
  for (int64_t group = 0; group < columns; group += 32) {
    const float scale = E8m0ToFloat(IndexFp4ScaleByte(x + group));
    for (int64_t k = group; k < group + 32; ++k) out[k] = E2m1ToFloat(FloatToE2m1(x[k] / scale)) * scale;
  }
}

void PackRow(const float* x, const PackedRows& rows, int64_t row) {
  uint8_t* values = rows.values(row);
  uint8_t* scales = rows.scales(row);
  for (int c = 0; c < rows.channels; ++c) {
    switch (rows.format) {
      case RowFormat::kWindowFp8:
        if (c % 32 == 0) scales[c / 32] = Fp8ScaleByte(x + c);
        values[c] = FloatToE4m3(x[c] / E8m0ToFloat(scales[c / 32]));
        break;
      case RowFormat::kCompressedFp4:
        if (c % 16 == 0) scales[c / 16] = CompressedFp4ScaleByte(x + c);
        StoreE2m1(values, c, FloatToE2m1(x[c] / E4m3ToFloat(scales[c / 16])));
        break;
      case RowFormat::kIndexFp4:
        if (c % 32 == 0) scales[c / 32] = IndexFp4ScaleByte(x + c);
        StoreE2m1(values, c, FloatToE2m1(x[c] / E8m0ToFloat(scales[c / 32])));
        break;
    }
  }
}

}  // namespace deepinfer::reference
