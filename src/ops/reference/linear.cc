#include "ops/reference/linear.h"

#include <algorithm>
#include <vector>

#include "ops/reference/dot.h"
#include "ops/reference/quantise.h"
#include "ops/reference/unpack.h"

namespace deepinfer::reference {

void Linear(ConstFloatView x, const WeightMatrix& weight, ActivationFormat activation, int groups, FloatView out) {
  const bool has_scales = weight.scale != nullptr;
  const int64_t outputs_per_group = weight.rows / groups;

  std::vector<float> input(static_cast<size_t>(x.rows * x.columns));  // what the weights see
  for (int64_t t = 0; t < x.rows; ++t) {
    float* row = input.data() + t * x.columns;
    if (has_scales && activation == ActivationFormat::kFp8Groups32) {
      QuantiseActivations(x.row(t), x.columns, row);
    } else {
      std::copy_n(x.row(t), x.columns, row);
    }
  }

  std::vector<float> values(static_cast<size_t>(weight.columns));
  std::vector<float> scales(static_cast<size_t>(weight.columns / 32));
  for (int64_t o = 0; o < weight.rows; ++o) {
    UnpackUnscaledRow(weight, o, values.data());
    if (has_scales) UnpackScaleRow(weight, o, scales.data());
    const int64_t first_column = o / outputs_per_group * weight.columns;
    for (int64_t t = 0; t < x.rows; ++t) {
      const float* row = input.data() + t * x.columns + first_column;
      out.row(t)[o] = Dot(values.data(), has_scales ? scales.data() : nullptr, row, weight.columns);
    }
  }
}

}  // namespace deepinfer::reference
