#include "ops/reference/unpack.h"

#include <cstring>

#include "base/dtype.h"

namespace deepinfer::reference {
namespace {

// Stored numbers may lie at any byte address.
float LoadF32(const uint8_t* data, int64_t index) {
  float value;
  std::memcpy(&value, data + index * 4, sizeof(value));
  return value;
}

float LoadBf16(const uint8_t* data, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, sizeof(bits));
  return Bf16ToFloat(bits);
}

// Element 2i sits in the low nibble of byte i.
float LoadE2m1(const uint8_t* data, int64_t index) {
  return E2m1ToFloat(static_cast<uint8_t>(index % 2 == 0 ? data[index / 2] & 15 : data[index / 2] >> 4));
}

}  // namespace

std::vector<float> UnpackVector(const WeightVector& vector) {
  std::vector<float> values(static_cast<size_t>(vector.size));
  for (int64_t i = 0; i < vector.size; ++i) {
    values[static_cast<size_t>(i)] = vector.is_bf16 ? LoadBf16(vector.data, i) : LoadF32(vector.data, i);
  }
  return values;
}

void UnpackUnscaledRow(const WeightMatrix& weight, int64_t row, float* out) {
  const uint8_t* data = weight.data + row * weight.row_bytes();
  for (int64_t k = 0; k < weight.columns; ++k) {
    switch (weight.format) {
      case WeightFormat::kF32:
        out[k] = LoadF32(data, k);
        break;
      case WeightFormat::kBF16:
        out[k] = LoadBf16(data, k);
        break;
      case WeightFormat::kF8Block32:
      case WeightFormat::kF8Row32:
        out[k] = E4m3ToFloat(data[k]);
        break;
      case WeightFormat::kF4Row32:
        out[k] = LoadE2m1(data, k);
        break;
    }
  }
}

void UnpackScaleRow(const WeightMatrix& weight, int64_t row, float* out) {
  const uint8_t* scales = weight.scale_row(row);
  for (int64_t block = 0; block < weight.columns / 32; ++block) out[block] = E8m0ToFloat(scales[block]);
}

void UnpackWeightRow(const WeightMatrix& weight, int64_t row, float* out) {
  UnpackUnscaledRow(weight, row, out);
  if (weight.scale == nullptr) return;
  const uint8_t* scales = weight.scale_row(row);
  for (int64_t k = 0; k < weight.columns; ++k) out[k] *= E8m0ToFloat(scales[k / 32]);
}

void UnpackRow(const PackedRows& rows, int64_t row, float* out) {
  const uint8_t* values = rows.values(row);
  const uint8_t* scales = rows.scales(row);
  for (int32_t c = 0; c < rows.channels; ++c) {
    switch (rows.format) {
      case RowFormat::kWindowFp8:
        out[c] = E4m3ToFloat(values[c]) * E8m0ToFloat(scales[c / 32]);
        break;
      case RowFormat::kCompressedFp4:
        out[c] = LoadE2m1(values, c) * E4m3ToFloat(scales[c / 16]);
        break;
      case RowFormat::kIndexFp4:
        out[c] = LoadE2m1(values, c) * E8m0ToFloat(scales[c / 32]);
        break;
    }
  }
}

}  // namespace deepinfer::reference
