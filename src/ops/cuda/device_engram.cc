#include "ops/cuda/device_engram.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "ops/cuda/kernels.h"

namespace deepinfer::cuda {

void GatherHostRows(Staging& s, const WeightMatrix& table, TensorView<const int64_t> rows,
                    std::vector<uint8_t>& gathered, FloatView out) {
  const int64_t row_bytes = rows.columns * (table.row_bytes() + table.scale_row_bytes());
  const int64_t rows_at_once = std::max<int64_t>(1, CommandList::kUploadBytes / 4 / std::max<int64_t>(row_bytes, 1));
  for (int64_t first = 0; first < rows.rows; first += rows_at_once) {
    const int64_t count = std::min(rows_at_once, rows.rows - first);
    const int64_t places = count * rows.columns;
    gathered.resize(static_cast<size_t>(count * row_bytes));
    uint8_t* values = gathered.data();
    uint8_t* scales = values + places * table.row_bytes();
    for (int64_t t = first; t < first + count; ++t) {
      for (int64_t c = 0; c < rows.columns; ++c) {
        const int64_t row = rows.row(t)[c];
        std::memcpy(values, table.data + row * table.row_bytes(), static_cast<size_t>(table.row_bytes()));
        values += table.row_bytes();
        if (table.scale == nullptr) continue;
        std::memcpy(scales, table.scale_row(row), static_cast<size_t>(table.scale_row_bytes()));
        scales += table.scale_row_bytes();
      }
    }
    WeightMatrix part = table;
    if (table.format == WeightFormat::kF8Block32) part.format = WeightFormat::kF8Row32;
    part.rows = places;
    uint8_t* const copy =
        const_cast<uint8_t*>(s.Array(std::span<const uint8_t>(gathered)));  // the device's, of this op
    s.Order(copy, places * table.row_bytes(), ValuesOf(table.format));
    part.data = copy;
    part.scale = table.scale == nullptr ? nullptr : part.data + places * table.row_bytes();
    s.Launch(&GatherTableRows, part, static_cast<const int64_t*>(nullptr), rows.columns,
             out.RowRange(first, first + count));
  }
}

void GatherHeldRows(Staging& s, const WeightMatrix& table, TensorView<const int64_t> rows,
                    std::vector<uint8_t>& gathered, FloatView out) {
  // A list may take a quarter of what is sent at once.
  const int64_t row_bytes = rows.columns * static_cast<int64_t>(sizeof(int64_t));
  const int64_t at_once = std::max<int64_t>(1, CommandList::kUploadBytes / 4 / std::max<int64_t>(row_bytes, 1));
  const WeightMatrix held = s.Weight(table);
  for (int64_t first = 0; first < rows.rows; first += at_once) {
    const int64_t end = std::min(rows.rows, first + at_once);
    gathered.resize(static_cast<size_t>((end - first) * row_bytes));
    for (int64_t t = first; t < end; ++t) {
      std::memcpy(gathered.data() + (t - first) * row_bytes, rows.row(t), static_cast<size_t>(row_bytes));
    }
    const uint8_t* list = s.Array(std::span<const uint8_t>(gathered));  // at a multiple of 16 bytes
    s.Launch(&GatherTableRows, held, reinterpret_cast<const int64_t*>(list), rows.columns, out.RowRange(first, end));
  }
}

}  // namespace deepinfer::cuda
