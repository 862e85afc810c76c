// Rows: the small per-row CPU ops: embedding, RMS norm, SwiGLU, addition. Contracts: ops/ops.h.
//
// Thread-safety: one caller at a time per pool. Ownership: views only.
#ifndef DEEPINFER_OPS_CPU_ROWS_H_
#define DEEPINFER_OPS_CPU_ROWS_H_

#include "base/thread_pool.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

void Embed(ThreadPool& pool, const WeightMatrix& table, std::span<const int32_t> ids, FloatView out);
void RmsNorm(ThreadPool& pool, ConstFloatView x, const WeightVector& weight, float eps, FloatView out);
/// One row on the calling thread: hidden = SwiGlu(gate, up) * factor. All [columns]; hidden may be gate.
void SwiGluRow(const float* gate, const float* up, float limit, float factor, float* hidden, int64_t columns);

/// One row on the calling thread: out += y. Both [columns].
void AddRow(const float* y, float* out, int64_t columns);

void SwiGlu(ThreadPool& pool, ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden);
void Add(ThreadPool& pool, ConstFloatView y, FloatView out);
void Scale(float factor, FloatView x);
void CopyFloats(std::span<const float* const> from, int64_t columns, std::span<float* const> to);
void KeepRows(std::span<const int32_t> rows, FloatView x);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_ROWS_H_
