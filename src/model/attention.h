// Attention of one layer: latent queries, one shared key = value vector per position, a sliding window plus the rows
// that the layer's index source selected, a sink, and the grouped output projection (spec c.5; DSpark stages c.11).
//
// Window rows of the step are packed into the workspace first, so that a chunk may be longer than the ring: attention
// reads the ring for older positions and the fresh rows for its own, then the last rows move into the ring.
//
// Thread-safety: as the StepContext.
#ifndef DEEPINFER_MODEL_ATTENTION_H_
#define DEEPINFER_MODEL_ATTENTION_H_

#include "checkpoint/weights.h"
#include "model/step.h"

namespace deepinfer {

/// output [T, D] = attention(input [T, D]) of a backbone layer or DSpark stage (`layer` counts stages after the
/// backbone). A backbone layer appends to its window ring; a stage reads its draft ring and stores nothing. A kv source
/// has published its rows before (compressor.h).
void Attend(StepContext& context, int layer, const AttentionWeights& weights, ConstFloatView input, FloatView output);

/// Rotated, normalised window vectors: kv [T', Dh] of input [T', D] at the positions of `rope` [T', R].
void WindowVectors(StepContext& context, const AttentionWeights& weights, ConstFloatView input, ConstFloatView rope,
                   FloatView kv);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_ATTENTION_H_
