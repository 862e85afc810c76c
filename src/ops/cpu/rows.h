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
void SwiGlu(ThreadPool& pool, ConstFloatView gate, ConstFloatView up, float limit, FloatView hidden);
void Add(ThreadPool& pool, ConstFloatView y, FloatView out);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_ROWS_H_
