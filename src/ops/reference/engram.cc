#include "ops/reference/engram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/reference/dot.h"
#include "ops/reference/rows.h"
#include "ops/reference/unpack.h"

namespace deepinfer::reference {

void GatherRows(const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out) {
  for (int64_t t = 0; t < rows.rows; ++t) {
    for (int64_t c = 0; c < rows.columns; ++c) {
      UnpackWeightRow(table, rows.row(t)[c], out.row(t) + c * table.columns);
    }
  }
}

void EngramInject(ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight, int n, float eps,
                  FloatView streams) {
  const int64_t width = streams.columns / n;
  const std::vector<float> q = UnpackVector(q_weight);
  const std::vector<float> k = UnpackVector(k_weight);
  std::vector<float> query(static_cast<size_t>(width));
  for (int64_t t = 0; t < streams.rows; ++t) {
    const float* value = kv.row(t) + n * width;
    for (int j = 0; j < n; ++j) {
      float* stream = streams.row(t) + j * width;
      const float* key = kv.row(t) + j * width;
      for (int64_t d = 0; d < width; ++d) {
        const size_t at = static_cast<size_t>(j * width + d);
        query[static_cast<size_t>(d)] = stream[d] * (q[at] * k[at]);
      }
      const float dot = Dot(query.data(), nullptr, key, width) / std::sqrt(static_cast<float>(width)) *
                        InverseRms(stream, width, eps) * InverseRms(key, width, eps);
      const float gate = Sigmoid(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6f)), dot));
      for (int64_t d = 0; d < width; ++d) stream[d] += gate * value[d];
    }
  }
}

}  // namespace deepinfer::reference
