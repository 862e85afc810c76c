#include "ops/reference/rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/reference/dot.h"
#include "ops/reference/unpack.h"

namespace deepinfer::reference {

float InverseRms(const float* x, int64_t columns, float eps) {
  const float mean_square = Dot(x, nullptr, x, columns) / static_cast<float>(columns);
  return 1.0f / std::sqrt(mean_square + eps);
}

float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float SwiGluValue(float gate, float up, float limit) {
  if (limit > 0) {
    gate = std::min(gate, limit);  // one side only: silu is already bounded below
    up = std::clamp(up, -limit, limit);
  }
  return gate * Sigmoid(gate) * up;
}

void Embed(const WeightMatrix& table, std::span<const int32_t> ids, FloatView out) {
  for (int64_t t = 0; t < out.rows; ++t) UnpackWeightRow(table, ids[static_cast<size_t>(t)], out.row(t));
}

void RmsNorm(ConstFloatView x, const WeightVector& weight, float eps, FloatView out) {
  const std::vector<float> w = UnpackVector(weight);
  for (int64_t t = 0; t < x.rows; ++t) {
    const float inverse = InverseRms(x.row(t), x.columns, eps);
    for (int64_t c = 0; c < x.columns; ++c) out.row(t)[c] = w[static_cast<size_t>(c)] * (x.row(t)[c] * inverse);
  }
}

void RopeTable(std::span<const int64_t> positions, std::span<const float> frequencies, FloatView cos_sin) {
  const int64_t pairs = static_cast<int64_t>(frequencies.size());
  for (int64_t t = 0; t < cos_sin.rows; ++t) {
    for (int64_t i = 0; i < pairs; ++i) {
      const float angle = static_cast<float>(positions[static_cast<size_t>(t)]) * frequencies[static_cast<size_t>(i)];
      cos_sin.row(t)[i] = std::cos(angle);
      cos_sin.row(t)[pairs + i] = std::sin(angle);
    }
  }
}

void Rope(FloatView x, int heads, ConstFloatView cos_sin, bool inverse) {
  const int64_t width = x.columns / heads;
  const int64_t rotary = cos_sin.columns;
  const int64_t pairs = rotary / 2;
  for (int64_t t = 0; t < x.rows; ++t) {
    const float* cosine = cos_sin.row(t);
    const float* sine = cosine + pairs;
    for (int h = 0; h < heads; ++h) {
      float* rotated = x.row(t) + (h + 1) * width - rotary;
      for (int64_t i = 0; i < pairs; ++i) {
        const float a = rotated[2 * i];
        const float b = rotated[2 * i + 1];
        const float s = inverse ? -sine[i] : sine[i];
        rotated[2 * i] = a * cosine[i] - b * s;
        rotated[2 * i + 1] = a * s + b * cosine[i];
      }
    }
  }
}

void SwiGlu(ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden) {
  for (int64_t t = 0; t < hidden.rows; ++t) {
    for (int64_t c = 0; c < hidden.columns; ++c) {
      hidden.row(t)[c] = SwiGluValue(gate.row(t)[c], up.row(t)[c], limit);
    }
  }
}

void Add(ConstFloatView y, FloatView out) {
  for (int64_t t = 0; t < out.rows; ++t) {
    for (int64_t c = 0; c < out.columns; ++c) out.row(t)[c] += y.row(t)[c];
  }
}

void Scale(float factor, FloatView x) {
  for (int64_t t = 0; t < x.rows; ++t) {
    for (int64_t c = 0; c < x.columns; ++c) x.row(t)[c] *= factor;
  }
}

void CopyFloats(std::span<const float* const> from, int64_t columns, std::span<float* const> to) {
  for (size_t i = 0; i < from.size(); ++i) {
    for (int64_t c = 0; c < columns; ++c) to[i][c] = from[i][c];
  }
}

void KeepRows(std::span<const int32_t> rows, FloatView x) {
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t c = 0; c < x.columns; ++c) x.row(static_cast<int64_t>(i))[c] = x.row(rows[i])[c];
  }
}

}  // namespace deepinfer::reference
