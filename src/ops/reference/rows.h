// Rows: the small per-row ops: embedding, RMS norm, rotary positions, SwiGLU, addition. Contracts: ops/ops.h.
//
// Thread-safety: pure functions.
#ifndef DEEPINFER_OPS_REFERENCE_ROWS_H_
#define DEEPINFER_OPS_REFERENCE_ROWS_H_

#include "ops/ops.h"

namespace deepinfer::reference {

/// 1 / sqrt(mean(x^2) + eps); the sum of squares is the canonical dot product of x with itself.
float InverseRms(const float* x, int64_t columns, float eps);

/// 1 / (1 + e^-x).
float Sigmoid(float x);

/// silu(min(gate, limit)) * clamp(up, -limit, limit); no clamps when limit <= 0 (spec c.9).
float SwiGluValue(float gate, float up, float limit);

void Embed(const WeightMatrix& table, std::span<const int32_t> ids, FloatView out);
void RmsNorm(ConstFloatView x, const WeightVector& weight, float eps, FloatView out);
void RopeTable(std::span<const int64_t> positions, std::span<const float> frequencies, FloatView cos_sin);
void Rope(FloatView x, int heads, ConstFloatView cos_sin, bool inverse);
void SwiGlu(ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden);
void Add(ConstFloatView y, FloatView out);
void Scale(float factor, FloatView x);
void CopyFloats(std::span<const float* const> from, int64_t columns, std::span<float* const> to);
void KeepRows(std::span<const int32_t> rows, FloatView x);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_ROWS_H_
