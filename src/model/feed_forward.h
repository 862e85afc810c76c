// Feed-forward of one layer: a sqrt-softplus router over many small experts plus one shared expert (spec c.9).
//
// Thread-safety: as the StepContext.
#ifndef DEEPINFER_MODEL_FEED_FORWARD_H_
#define DEEPINFER_MODEL_FEED_FORWARD_H_

#include "checkpoint/weights.h"
#include "model/step.h"

namespace deepinfer {

/// output [T, D] = routed + shared experts of input [T, D], which `mix` writes back into the streams (SpreadOutput);
/// `layer` counts DSpark stages after the backbone.
void FeedForward(StepContext& context, int layer, const FeedForwardWeights& weights, ConstFloatView input,
                 FloatView output, ConstFloatView mix);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_FEED_FORWARD_H_
