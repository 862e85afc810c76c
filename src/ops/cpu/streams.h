// Streams: the hyper-connection CPU ops over n residual streams (spec c.3). Contracts: ops/ops.h.
//
// Thread-safety: one caller at a time per pool and scratch. Ownership: views only.
#ifndef DEEPINFER_OPS_CPU_STREAMS_H_
#define DEEPINFER_OPS_CPU_STREAMS_H_

#include "base/thread_pool.h"
#include "ops/cpu/linear.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

/// Most residual streams the kernels take.
inline constexpr int kMaxStreams = 16;

void MixStreams(ThreadPool& pool, LinearScratch& scratch, ConstFloatView streams, int n, const WeightMatrix& fn,
                const WeightVector& base, const WeightVector& scale, int sinkhorn_iterations, float hc_eps,
                float rms_eps, FloatView out);
void CollapseNorm(ThreadPool& pool, ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight,
                  float eps, FloatView normed, FloatView collapsed);
void SpreadStreams(ThreadPool& pool, ConstFloatView y, ConstFloatView mix, int n, FloatView streams);
void MeanStreams(ThreadPool& pool, ConstFloatView streams, int n, FloatView out);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_STREAMS_H_
