// Index scores and top-k selection of the CPU backend (spec c.6).
//
// Index queries and keys are E2M1 with one power of two per 32 channels, so the dot product of one group of 32 is an
// integer (in quarters of the scales' product) and is computed as one. Then
//   dot(h, j)  = sum over groups, ascending, of scale_q * scale_k * integer      each product exact in F32
//   score(j)   = sum over heads, ascending, of w[h] * max(dot, 0)                 rounded product, then addition
// Both sums run vertically (a lane is a key), so scores have the same bits on every instruction set.
//
// The k best rows are found in one pass over the scores (index_top_k.h). Many tokens are split over the threads by
// cost, and up to kIndexGroup tokens of a sequence share each unpacked panel of keys; for few tokens the threads split
// the keys and one merges.
//
// Thread-safety: one caller at a time per scratch. Ownership: IndexScratch owns its buffers.
#ifndef DEEPINFER_OPS_CPU_INDEX_H_
#define DEEPINFER_OPS_CPU_INDEX_H_

#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

/// Tokens that share an unpacked panel of keys.
inline constexpr int kIndexGroup = 8;

struct IndexScratch {
  /// Uses limits.heads, head_width, attended_rows (no less than index_topk), candidate_blocks and index_rows; nothing
  /// is held when index_rows is 0.
  Status Reserve(const ScratchLimits& limits, int workers);
  int64_t bytes() const { return memory.bytes() + entries.bytes() + bounds.bytes(); }

  AlignedBuffer<uint8_t> memory;    // [workers, bytes_per_worker]: panel, scores, quantised queries
  AlignedBuffer<uint64_t> entries;  // [workers, entries_per_worker]: running top-k lists
  AlignedBuffer<int64_t> bounds;    // [workers + 1] first token of each worker
  int64_t bytes_per_worker = 0;
  int64_t entries_per_worker = 0;
  int64_t index_rows = 0;
};

/// Ops::SelectRows. settings.head_width is a multiple of 32.
void SelectRows(ThreadPool& pool, IndexScratch& scratch, ConstFloatView q, ConstFloatView head_weights,
                std::span<const IndexSequence> sequences, const IndexSettings& settings,
                const CandidateBlocks& candidates, const SelectedRows& selected);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_INDEX_H_
