// Tile sizes of the linear kernels, shared by the F32 and the BF16 translation units. Constants only.
// Thread-safety and ownership: nothing to say.
#ifndef DEEPINFER_OPS_CPU_LINEAR_LIMITS_H_
#define DEEPINFER_OPS_CPU_LINEAR_LIMITS_H_

#include <cstdint>

#include "ops/cpu/linear.h"

/// Before a loop over registers of a tile: without full unrolling the tile would live in memory.
#if defined(__clang__)
#define DEEPINFER_UNROLL _Pragma("unroll")
#else
#define DEEPINFER_UNROLL _Pragma("GCC unroll 16")
#endif

namespace deepinfer::cpu {

/// Weight rows decoded side by side.
inline constexpr int64_t kPanelRows = 16;
/// Columns of one panel: 4 chunks, so that half a panel and three activation rows stay in the L1 cache.
inline constexpr int64_t kPanelColumns = 4 * kChunk;
/// Per weight row and chunk: 128 weights, then 16 scale lanes.
inline constexpr int64_t kPanelChunkFloats = kChunk + 16;
inline constexpr int64_t kPanelFloats = kPanelRows * (kPanelColumns / kChunk) * kPanelChunkFloats;
inline constexpr int64_t kAccumulatorFloats = kRowBlock * kPanelRows * 16;

/// How far ahead of the weights in use the stream kernels prefetch.
inline constexpr int64_t kPrefetchBytes = 2048;

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_LINEAR_LIMITS_H_
