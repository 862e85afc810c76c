// MoE: sqrt-softplus router and routed experts (spec c.9). Contracts: ops/ops.h.
//
// Thread-safety: pure functions.
#ifndef DEEPINFER_OPS_REFERENCE_MOE_H_
#define DEEPINFER_OPS_REFERENCE_MOE_H_

#include "ops/ops.h"

namespace deepinfer::reference {

void Route(ConstFloatView x, const WeightMatrix& gate, const WeightVector& bias, bool normalise, float scaling,
           TensorView<int32_t> picks, FloatView weights);
void Experts(ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
             std::span<const ExpertWeights> experts, float limit, ActivationFormat activation, FloatView out);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_MOE_H_
