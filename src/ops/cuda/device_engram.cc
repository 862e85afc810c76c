#include "ops/cuda/device_engram.h"

#include <algorithm>
#include <span>
#include <vector>

#include "ops/cuda/kernels.h"

namespace deepinfer::cuda {

void GatherHeldRows(Staging& s, const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out) {
  // A list may take a quarter of what is sent at once.
  const int64_t row_bytes = std::max<int64_t>(rows.columns * static_cast<int64_t>(sizeof(int64_t)), 1);
  const int64_t at_once = std::max<int64_t>(1, CommandList::kUploadBytes / 4 / row_bytes);
  const WeightMatrix held = s.Weight(table);
  std::vector<int64_t> list;
  for (int64_t first = 0; first < rows.rows; first += at_once) {
    const int64_t end = std::min(rows.rows, first + at_once);
    list.clear();
    for (int64_t t = first; t < end; ++t) list.insert(list.end(), rows.row(t), rows.row(t) + rows.columns);
    s.Launch(&GatherTableRows, held, s.Array(std::span<const int64_t>(list)), rows.columns, out.RowRange(first, end));
  }
}

}  // namespace deepinfer::cuda
