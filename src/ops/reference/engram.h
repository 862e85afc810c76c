// Engram: gather of n-gram table rows and their gated injection into the residual streams (spec c.8). Contracts:
// ops/ops.h.
//
// Thread-safety: pure functions.
#ifndef DEEPINFER_OPS_REFERENCE_ENGRAM_H_
#define DEEPINFER_OPS_REFERENCE_ENGRAM_H_

#include "ops/ops.h"

namespace deepinfer::reference {

void GatherRows(const WeightMatrix& table, TensorView<const int64_t> rows, FloatView out);
void EngramInject(ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight, int n, float eps,
                  FloatView streams);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_ENGRAM_H_
