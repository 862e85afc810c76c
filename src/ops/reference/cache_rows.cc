#include "ops/reference/cache_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/reference/quantise.h"

namespace deepinfer::reference {

void StoreRows(ConstFloatView x, const PackedRows& rows, std::span<const int64_t> destination) {
  for (int64_t t = 0; t < x.rows; ++t) PackRow(x.row(t), rows, destination[static_cast<size_t>(t)]);
}

void CopyRows(const PackedRows& from, std::span<const int64_t> source, const PackedRows& to,
              std::span<const int64_t> destination) {
  const RowBytes bytes = PackedRowBytes(from.format, from.channels);
  for (size_t i = 0; i < source.size(); ++i) {
    std::memcpy(to.values(destination[i]), from.values(source[i]), static_cast<size_t>(bytes.values));
    std::memcpy(to.scales(destination[i]), from.scales(source[i]), static_cast<size_t>(bytes.scales));
  }
}

void PoolPairs(std::span<const float* const> first, std::span<const float* const> second, FloatView out) {
  const int64_t width = out.columns;
  for (int64_t i = 0; i < out.rows; ++i) {
    const float* kv[2] = {first[static_cast<size_t>(i)], second[static_cast<size_t>(i)]};
    const float* gate[2] = {kv[0] + width, kv[1] + width};
    for (int64_t c = 0; c < width; ++c) {
      const float maximum = std::max(gate[0][c], gate[1][c]);
      const float e0 = std::exp(gate[0][c] - maximum);
      const float e1 = std::exp(gate[1][c] - maximum);
      out.row(i)[c] = kv[0][c] * (e0 / (e0 + e1)) + kv[1][c] * (e1 / (e0 + e1));
    }
  }
}

}  // namespace deepinfer::reference
