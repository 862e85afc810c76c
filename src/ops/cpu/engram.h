// Engram: table gather and gated injection into the residual streams (spec c.8). Contracts: ops/ops.h.
//
// Thread-safety: one caller at a time per pool. Ownership: views only.
#ifndef DEEPINFER_OPS_CPU_ENGRAM_H_
#define DEEPINFER_OPS_CPU_ENGRAM_H_

#include "base/thread_pool.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

void GatherRows(ThreadPool& pool, const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out);
void EngramInject(ThreadPool& pool, ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight,
                  int n, float eps, FloatView streams);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_ENGRAM_H_
