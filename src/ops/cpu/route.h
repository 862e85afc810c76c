// Route: scores of the experts and the choice among them (spec c.9). Contract: ops/ops.h.
//
// Thread-safety: one caller at a time per pool and scratch. Ownership: RouteScratch owns its buffer.
#ifndef DEEPINFER_OPS_CPU_ROUTE_H_
#define DEEPINFER_OPS_CPU_ROUTE_H_

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "ops/cpu/linear.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

struct RouteScratch {
  Status Reserve(const ScratchLimits& limits);
  int64_t bytes() const { return scores.bytes(); }

  AlignedBuffer<float> scores;  // [rows, experts]
};

void Route(ThreadPool& pool, LinearScratch& linear, RouteScratch& scratch, ConstFloatView x, const WeightMatrix& gate,
           const WeightVector& bias, bool normalise, float scaling, TensorView<int32_t> picks, FloatView weights);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_ROUTE_H_
