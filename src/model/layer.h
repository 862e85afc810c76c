// One layer (or DSpark stage): attention and feed-forward between hyper-connections (spec c.3).
//
// Thread-safety: as the StepContext.
#ifndef DEEPINFER_MODEL_LAYER_H_
#define DEEPINFER_MODEL_LAYER_H_

#include "checkpoint/weights.h"
#include "model/step.h"

namespace deepinfer {

/// The last kv source's part of a layer that every token needs: publishes the compressed rows and index keys of the
/// step (spec c.12). `pre` as for RunLayer, which then runs without publishing.
void PublishLayer(StepContext& context, int layer, const LayerWeights& weights, ConstFloatView pre);

/// Runs layer `layer` on the step's streams. `pre` are the coefficients its attention collapses with: of the previous
/// layer's feed-forward, or the one-hot of the first. Returns the coefficients for the next layer.
FloatView RunLayer(StepContext& context, int layer, const LayerWeights& weights, ConstFloatView pre,
                   bool publish = true);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_LAYER_H_
