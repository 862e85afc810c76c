// PackedRows: the quantised KV formats of spec c.7 and how rows lie in pages.
//
// Within a page all value bytes of its rows come first, then all scale bytes (spec c.7, "Packing"):
//   values of slot s at  page + s * value_bytes
//   scales of slot s at  page + rows_per_page * value_bytes + s * scale_bytes
// Element 2i sits in the low nibble of byte i. Row r lives in the page at pages[r / rows_per_page] + offset, slot
// r % rows_per_page.
//
// Thread-safety: a value; distinct rows may be written by different threads. Ownership: none.
#ifndef DEEPINFER_OPS_PACKED_ROWS_H_
#define DEEPINFER_OPS_PACKED_ROWS_H_

#include <cstddef>
#include <cstdint>

namespace deepinfer {

enum class RowFormat : uint8_t {
  kWindowFp8,      ///< E4M3, one E8M0 scale per 32 channels: 528 bytes for 512 channels
  kCompressedFp4,  ///< E2M1, one E4M3 scale per 16 channels: 288 bytes for 512 channels
  kIndexFp4,       ///< E2M1, one E8M0 scale per 32 channels: 68 bytes for 128 channels
};

/// Bytes of values and of scales of one row.
struct RowBytes {
  int64_t values;
  int64_t scales;
  int64_t total() const { return values + scales; }
};
constexpr RowBytes PackedRowBytes(RowFormat format, int64_t channels) {
  switch (format) {
    case RowFormat::kWindowFp8:
      return {channels, channels / 32};
    case RowFormat::kCompressedFp4:
      return {channels / 2, channels / 16};
    case RowFormat::kIndexFp4:
      return {channels / 2, channels / 32};
  }
  return {0, 0};
}

struct PackedRows {
  uint8_t* const* pages = nullptr;  // [ceil(rows / rows_per_page)]
  int32_t rows_per_page = 1;
  RowFormat format = RowFormat::kWindowFp8;
  int32_t channels = 0;
  int64_t offset = 0;  ///< bytes from an entry of `pages` to the page
  /// The list itself in the memory of the device that the pages lie in; null where that is host memory.
  uint8_t* const* device_pages = nullptr;

  uint8_t* values(int64_t row) const {
    return pages[row / rows_per_page] + offset + (row % rows_per_page) * PackedRowBytes(format, channels).values;
  }
  uint8_t* scales(int64_t row) const {
    const RowBytes bytes = PackedRowBytes(format, channels);
    return pages[row / rows_per_page] + offset + rows_per_page * bytes.values + (row % rows_per_page) * bytes.scales;
  }
};

}  // namespace deepinfer

#endif  // DEEPINFER_OPS_PACKED_ROWS_H_
