// Lists of packed rows: where each row's values and scales lie, so that kernels need no page arithmetic.
//
// Thread-safety: a KeyList belongs to one thread. Ownership: none; the caller owns rows and list memory.
#ifndef DEEPINFER_OPS_CPU_UNPACK_ROWS_H_
#define DEEPINFER_OPS_CPU_UNPACK_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "ops/packed_rows.h"

namespace deepinfer::cpu {

/// Where one packed row lies.
struct KeyRow {
  const uint8_t* values;
  const uint8_t* scales;
  RowFormat format;
};

/// Appends rows to an array that is large enough; divides once per page or row.
class KeyList {
 public:
  explicit KeyList(KeyRow* rows) : begin_(rows), next_(rows) {}

  /// Rows row, row + 1, ... of `from`.
  void AppendRun(const PackedRows& from, int64_t row, int64_t count) {
    if (count <= 0) return;
    const RowBytes bytes = PackedRowBytes(from.format, from.channels);
    int64_t page = row / from.rows_per_page;
    int64_t slot = row % from.rows_per_page;
    while (count > 0) {
      const int64_t here = std::min(count, from.rows_per_page - slot);
      const uint8_t* values = from.pages[page] + from.offset + slot * bytes.values;
      const uint8_t* scales = from.pages[page] + from.offset + from.rows_per_page * bytes.values + slot * bytes.scales;
      for (int64_t i = 0; i < here; ++i) {
        *next_++ = {values + i * bytes.values, scales + i * bytes.scales, from.format};
      }
      count -= here;
      slot = 0;
      ++page;
    }
  }

  void AppendRows(const PackedRows& from, const int32_t* rows, int64_t count) {
    if (count <= 0) return;
    const RowBytes bytes = PackedRowBytes(from.format, from.channels);
    const uint32_t per_page = static_cast<uint32_t>(from.rows_per_page);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t row = static_cast<uint32_t>(rows[i]);
      const uint8_t* page = from.pages[row / per_page] + from.offset;
      const int64_t slot = row % per_page;
      *next_++ = {page + slot * bytes.values, page + per_page * bytes.values + slot * bytes.scales, from.format};
    }
  }

  int64_t size() const { return next_ - begin_; }

 private:
  KeyRow* begin_;
  KeyRow* next_;
};

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_UNPACK_ROWS_H_
