// Streams: the n residual streams of single-pass manifold-constrained hyper-connections (spec c.3). Contracts:
// ops/ops.h.
//
// Thread-safety: pure functions.
#ifndef DEEPINFER_OPS_REFERENCE_STREAMS_H_
#define DEEPINFER_OPS_REFERENCE_STREAMS_H_

#include "ops/ops.h"

namespace deepinfer::reference {

void MixStreams(ConstFloatView streams, int n, const WeightMatrix& fn, const WeightVector& base,
                const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps, FloatView out);
void CollapseNorm(ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight, float eps,
                  FloatView normed, FloatView collapsed);
void SpreadStreams(ConstFloatView y, ConstFloatView mix, int n, FloatView streams);
void MeanStreams(ConstFloatView streams, int n, FloatView out);

}  // namespace deepinfer::reference

#endif  // DEEPINFER_OPS_REFERENCE_STREAMS_H_
