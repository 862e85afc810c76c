// Linear: y = W x for stored weights (spec c.1). Contract: ops/ops.h; summation order: ops/dot_order.h.
//
// Thread-safety: pure function.
#ifndef DEEPINFER_OPS_REFERENCE_LINEAR_H_
#define DEEPINFER_OPS_REFERENCE_LINEAR_H_

#include "ops/ops.h"

namespace deepinfer::reference {

/// x [T, weight.columns * groups], out [T, weight.rows].
void Linear(ConstFloatView x, const WeightMatrix& weight, ActivationFormat activation, int groups, FloatView out);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_LINEAR_H_
