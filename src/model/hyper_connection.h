// Single-pass manifold hyper-connections: n residual streams per token and how a sublayer reads and writes them (spec
// c.3).
//
// Thread-safety: as the StepContext. Streams are [T, n*D], stream major.
#ifndef DEEPINFER_MODEL_HYPER_CONNECTION_H_
#define DEEPINFER_MODEL_HYPER_CONNECTION_H_

#include "checkpoint/weights.h"
#include "model/step.h"

namespace deepinfer {

/// The normalised input of a sublayer: streams collapsed with `pre` (the first n columns of it).
void SublayerInput(StepContext& context, ConstFloatView pre, const WeightVector& norm, FloatView input);

/// The same, and the coefficients from the streams: pre (for the next sublayer), post and comb (for this one). mix [T,
/// (2+n)n] is not `pre`.
void EnterSublayer(StepContext& context, const HyperConnectionWeights& weights, ConstFloatView pre,
                   const WeightVector& norm, FloatView mix, FloatView input);

/// Writes a sublayer's output back into the streams.
void SpreadOutput(StepContext& context, ConstFloatView output, ConstFloatView mix);

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_HYPER_CONNECTION_H_
