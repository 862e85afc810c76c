// Sampling: the token of a row, the check of drafts. Contracts: ops/ops.h, ops/sampling.h.
//
// A row is one worker's work. Ids are never sorted as a whole: bands of falling logits are collected and ranked until a
// filter has what it needs, and every filter ends as a cut of the ranks, which later passes test lane by lane.
// Thread-safety: one caller at a time per pool and scratch. Ownership: SamplingScratch owns its buffers.
#ifndef DEEPINFER_OPS_CPU_SAMPLING_H_
#define DEEPINFER_OPS_CPU_SAMPLING_H_

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

/// Memory becomes resident when a rule needs it: plain rows touch none.
struct SamplingScratch {
  Status Reserve(const ScratchLimits& limits, int workers);
  int64_t bytes() const { return rows.bytes() + numbers.bytes(); }

  int64_t vocabulary = 0;         // V, rounded up to whole cache lines
  AlignedBuffer<float> rows;      // [workers, 2, V]: changed logits of a target row and of a draft row
  AlignedBuffer<double> numbers;  // [workers, 2, V]: probabilities p and q; rank keys in their place
};

void ChooseTokens(ThreadPool& pool, SamplingScratch& scratch, ConstFloatView logits, std::span<const TokenRule> rules,
                  std::span<TokenChoice> choices);
void AcceptDrafts(ThreadPool& pool, SamplingScratch& scratch, std::span<const DraftCheck> checks,
                  std::span<DraftVerdict> verdicts);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_SAMPLING_H_
