// WeightMatrix: a view of one weight of a checkpoint in its released format, used in place.
//
// Thread-safety: a value; the bytes it points to are read-only. Ownership: none, the mapped checkpoint owns the bytes
// and must outlive the view. Source: spec section (b), "Encodings".
#ifndef DEEPINFER_BASE_WEIGHT_MATRIX_H_
#define DEEPINFER_BASE_WEIGHT_MATRIX_H_

#include <cstdint>

namespace deepinfer {

enum class WeightFormat : uint8_t {
  kF32,
  kBF16,
  kF8Block32,  ///< E4M3 [rows, columns], E8M0 scale [ceil(rows/32), columns/32]
  kF4Row32,    ///< E2M1 [rows, columns/2] bytes, low nibble = even column; E8M0 scale [rows, columns/32]
  kF8Row32,    ///< E4M3 [rows, columns], E8M0 scale [rows, columns/32] (Engram tables)
};

/// A weight [rows = outputs, columns = inputs], row major. `data` and `scale` may lie at any byte address.
struct WeightMatrix {
  const uint8_t* data = nullptr;
  const uint8_t* scale = nullptr;  ///< E8M0 bytes, null for kF32 and kBF16
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;
  int64_t columns = 0;

  bool present() const { return data != nullptr; }

  /// Bytes of one row of values.
  int64_t row_bytes() const {
    switch (format) {
      case WeightFormat::kF32:
        return columns * 4;
      case WeightFormat::kBF16:
        return columns * 2;
      case WeightFormat::kF4Row32:
        return columns / 2;
      case WeightFormat::kF8Block32:
      case WeightFormat::kF8Row32:
        return columns;
    }
    return 0;
  }

  /// Scale bytes of one row of scales; 0 when there are none.
  int64_t scale_row_bytes() const {
    return format == WeightFormat::kF32 || format == WeightFormat::kBF16 ? 0 : columns / 32;
  }

  /// Values plus scales, in bytes.
  int64_t total_bytes() const {
    const int64_t scale_rows = format == WeightFormat::kF8Block32 ? (rows + 31) / 32 : rows;
    return rows * row_bytes() + scale_rows * scale_row_bytes();
  }

  /// The scales that belong to `row`.
  const uint8_t* scale_row(int64_t row) const {
    return scale + (format == WeightFormat::kF8Block32 ? row / 32 : row) * scale_row_bytes();
  }

  /// Rows begin..end as a matrix of their own. For kF8Block32 `begin` is a multiple of 32.
  WeightMatrix RowRange(int64_t begin, int64_t end) const {
    WeightMatrix part = *this;
    part.data = data + begin * row_bytes();
    part.scale = scale == nullptr ? nullptr : scale_row(begin);
    part.rows = end - begin;
    return part;
  }
};

/// A vector of BF16 or F32 values as stored (norm weights, biases, sinks).
struct WeightVector {
  const uint8_t* data = nullptr;
  bool is_bf16 = false;
  int64_t size = 0;

  bool present() const { return data != nullptr; }
};

/// One routed or shared expert (spec c.9).
struct ExpertWeights {
  WeightMatrix w1;  // [I, D] gate
  WeightMatrix w2;  // [D, I] down
  WeightMatrix w3;  // [I, D] up
};

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_WEIGHT_MATRIX_H_
