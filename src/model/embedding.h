// The two ends of the model: token embedding into equal residual streams, and the language head (spec c.2).
//
// Thread-safety: as the StepContext.
#ifndef DEEPINFER_MODEL_EMBEDDING_H_
#define DEEPINFER_MODEL_EMBEDDING_H_

#include <span>

#include "checkpoint/weights.h"
#include "model/step.h"

namespace deepinfer {

/// All n streams of each row of the step = embedding of its token. Returns the coefficients for layer 0.
FloatView EmbedStreams(StepContext& context, const WeightMatrix& table);

/// Logits of the step rows `rows` (ascending) into the first rows of the result buffer. `pre`: what the last layer
/// returned.
FloatView ComputeLogits(StepContext& context, const Weights& weights, ConstFloatView pre,
                        std::span<const int32_t> rows);

/// Writes DSpark's input of tap `slot`: the mean of the streams (spec c.2, c.11).
void TapStreams(StepContext& context, int slot);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_EMBEDDING_H_
