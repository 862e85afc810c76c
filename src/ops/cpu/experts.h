// Experts: the routed experts of one layer for all tokens of a step (spec c.9). Contract: ops/ops.h.
//
// (token, expert) pairs are sorted by expert; each worker owns a range of the inner width, then a range of the output
// width, of every expert. A token's sum runs over its experts in ascending order whoever else is in the batch.
//
// Thread-safety: one caller at a time per pool and scratch. Ownership: ExpertsScratch owns its buffers.
#ifndef DEEPINFER_OPS_CPU_EXPERTS_H_
#define DEEPINFER_OPS_CPU_EXPERTS_H_

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "ops/cpu/linear.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

struct ExpertsScratch {
  Status Reserve(const ScratchLimits& limits, int workers);
  int64_t bytes() const {
    return ordered.bytes() + hidden.bytes() + tiles.bytes() + first_pair.bytes() + pair_token.bytes() +
           pair_weight.bytes();
  }

  int64_t max_tokens = 0;             // tokens per pass
  int64_t max_columns = 0;            // padded width of one ordered row
  AlignedBuffer<float> ordered;       // [pairs, padded columns] inputs, then hidden rows, in dot order
  AlignedBuffer<float> hidden;        // [pairs, inner width]
  AlignedBuffer<float> tiles;         // [workers, 2, kRowBlock, kExpertTile] outputs before they are combined
  AlignedBuffer<int32_t> first_pair;  // [experts + 1]
  AlignedBuffer<int32_t> pair_token;  // [pairs]
  AlignedBuffer<float> pair_weight;   // [pairs]
};

void Experts(ThreadPool& pool, LinearScratch& linear, ExpertsScratch& scratch, ConstFloatView x,
             TensorView<const int32_t> picks, ConstFloatView weights, std::span<const ExpertWeights> experts,
             float limit, ActivationFormat activation, FloatView out);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_EXPERTS_H_
