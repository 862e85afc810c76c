// Attention: window plus selected compressed rows, keys that are also the values, sink in the denominator (spec c.5).
// Contract: ops/ops.h.
//
// Thread-safety: pure function.
#ifndef DEEPINFER_OPS_REFERENCE_ATTENTION_H_
#define DEEPINFER_OPS_REFERENCE_ATTENTION_H_

#include "ops/ops.h"

namespace deepinfer::reference {

void Attention(ConstFloatView q, int heads, std::span<const AttentionSequence> sequences, int window,
               const SelectedRows& selected, const WeightVector& sink, float scale, FloatView out);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_ATTENTION_H_
