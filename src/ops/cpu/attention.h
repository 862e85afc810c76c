// Attention and compressor pooling of the CPU backend (spec c.5, c.6).
//
// One (token, head) is computed as
//   score_j = scale * (q . key_j)       blocks of 32 channels in split order (unpack-inl.h), then over the blocks
//   m       = max(sink, score_0, score_1, ...)
//   out     = sum_j e^(score_j - m) key_j / (sum_j e^(score_j - m) + e^(sink - m))
// with fused multiply-adds, the first sum of the last line in blocks of 128 keys of the list, then over the blocks, the
// second in key order. Lanes are heads in the first product and channels in the second, so nothing is ever added across
// lanes: the bits depend on the key list alone, not on vector width, thread count, batch, chunking or whether a row
// came from the ring.
//
// A key is de-quantised once per token, which is exact, and serves all heads as key and value. Many tokens are split
// over the threads by cost; for few, the threads share each token: first by keys, then by heads, then by channels.
//
// Thread-safety: one caller at a time per scratch. Ownership: AttentionScratch owns its buffers.
#ifndef DEEPINFER_OPS_CPU_ATTENTION_H_
#define DEEPINFER_OPS_CPU_ATTENTION_H_

#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "ops/cpu/attention_kernels.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

struct AttentionScratch {
  /// Uses limits.heads, head_width and attended_rows.
  Status Reserve(const ScratchLimits& limits, int workers);
  int64_t bytes() const { return floats.bytes() + keys.bytes() + bounds.bytes(); }

  AlignedBuffer<float> floats;    // [workers, floats_per_worker]: de-quantised keys, scores, queries, sums
  AlignedBuffer<KeyRow> keys;     // [workers, attended_rows]
  AlignedBuffer<int64_t> bounds;  // [workers + 1] first token of each worker
  int64_t floats_per_worker = 0;
  int64_t attended_rows = 0;
};

/// Ops::Attention. Channels are a multiple of 32; keys of one token at most ScratchLimits::attended_rows.
void Attention(ThreadPool& pool, AttentionScratch& scratch, ConstFloatView q, int heads,
               std::span<const AttentionSequence> sequences, int window, const SelectedRows& selected,
               const WeightVector& sink, float scale, FloatView out);

/// Ops::PoolPairs.
void PoolPairs(ThreadPool& pool, std::span<const float* const> first, std::span<const float* const> second,
               FloatView out);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_ATTENTION_H_
