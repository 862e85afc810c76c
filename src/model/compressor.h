// Compressor: a kv source's shared compressed KV rows and index keys (spec c.6).
//
// Ratio 2 pools the pair of positions (2j, 2j+1) once the second one has been processed; the raw rows of an open pair,
// and of the tokens that a rollback may bring back, live in the sequence's tail.
//
// Thread-safety: as the StepContext.
#ifndef DEEPINFER_MODEL_COMPRESSOR_H_
#define DEEPINFER_MODEL_COMPRESSOR_H_

#include "checkpoint/weights.h"
#include "model/step.h"

namespace deepinfer {

/// Appends the rows and keys of every group that the step's tokens close. input [T, D]: what also enters attention.
void PublishCompressedRows(StepContext& context, int layer, const AttentionWeights& weights, ConstFloatView input);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_COMPRESSOR_H_
