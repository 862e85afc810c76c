// One layer (or DSpark stage): attention and feed-forward between hyper-connections (spec c.3).
//
// Thread-safety: as the StepContext.
#ifndef DEEPINFER_MODEL_LAYER_H_
#define DEEPINFER_MODEL_LAYER_H_

#include "checkpoint/weights.h"
#include "model/step.h"

namespace deepinfer {

/// Runs layer `layer` on the step's streams. `pre` are the coefficients its attention collapses with: of the previous
/// layer's feed-forward, or the one-hot of the first. Returns the coefficients for the next layer.
ConstFloatView RunLayer(StepContext& context, int layer, const LayerWeights& weights, ConstFloatView pre);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_LAYER_H_
