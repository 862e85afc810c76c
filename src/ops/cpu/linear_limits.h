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

/// Most weight rows decoded side by side.
inline constexpr int64_t kPanelRows = 16;
/// Most chunks in a panel, over all its weight rows.
inline constexpr int64_t kPanelChunks = 64;
/// Per weight row and chunk: 128 weights, then 16 scale lanes.
inline constexpr int64_t kPanelChunkFloats = kChunk + 16;
inline constexpr int64_t kPanelFloats = kPanelChunks * kPanelChunkFloats;
inline constexpr int64_t kAccumulatorFloats = kRowBlock * kPanelRows * 16;

/// The stream kernels take this many weight rows at a time and this many activation rows.
inline constexpr int64_t kStreamGroup = 8;
inline constexpr int64_t kStreamTile = 8;
static_assert(kStreamGroup * kStreamTile * 16 <= kAccumulatorFloats);
/// Chunks that the BF16 stream kernel takes of one weight row before the next of the group has its turn; the F32 kernel
/// takes 512 bytes, which is the same for FP8.
inline constexpr int64_t kStreamBlock = 4;
/// FP4 weights come one whole row after the other while the activations take no more than this, and are fetched this
/// far ahead.
inline constexpr int64_t kStreamCacheBytes = 12 * 1024;
inline constexpr int64_t kStreamAhead = 3072;

// The functions below are inlined wherever they stand: files compiled for more instructions than the rest of the
// program must leave no copy of them behind.
#define DEEPINFER_LIMITS_INLINE [[gnu::always_inline]] inline constexpr

/// A number of activation rows as a type.
template <int kRows>
struct TileRows {
  static constexpr int value = kRows;
};

/// Calls body(TileRows<rows>()) for 1 <= rows <= kStreamTile.
template <class Body>
DEEPINFER_LIMITS_INLINE void WithTileRows(int64_t rows, const Body& body) {
  switch (rows) {
    case 1:
      return body(TileRows<1>());
    case 2:
      return body(TileRows<2>());
    case 3:
      return body(TileRows<3>());
    case 4:
      return body(TileRows<4>());
    case 5:
      return body(TileRows<5>());
    case 6:
      return body(TileRows<6>());
    case 7:
      return body(TileRows<7>());
    default:
      return body(TileRows<8>());
  }
}

/// Weight rows of a panel and chunks of each.
struct PanelShape {
  int64_t rows;
  int64_t chunks;
};

DEEPINFER_LIMITS_INLINE PanelShape PanelOfHeight(int64_t height, int64_t most_chunks, int64_t chunks) {
  const int64_t most = most_chunks / height;
  const int64_t blocks = (chunks + most - 1) / most;
  return {height, (chunks + blocks - 1) / blocks};
}

/// BF16. Few activation rows: long panels, whose sums visit memory less often. Many: tall ones, which read the
/// activations less often.
DEEPINFER_LIMITS_INLINE PanelShape ChoosePanelBf16(int64_t rows, int64_t chunks) {
  return PanelOfHeight(rows <= 48 ? kPanelRows / 2 : kPanelRows, kPanelChunks, chunks);
}

/// F32: 18 KiB, with three activation rows half of an L1 cache of 48 KiB, which is what another hardware thread on the
/// same core leaves.
DEEPINFER_LIMITS_INLINE PanelShape ChoosePanelF32(int64_t chunks) {
  return PanelOfHeight(kPanelRows / 2, kPanelChunks / 2, chunks);
}

/// Activation rows of the next tile when `rows` are left: threes, and twos rather than a single one.
DEEPINFER_LIMITS_INLINE int64_t BlockTileHeight(int64_t rows) {
  return rows == 4 || rows == 2 ? 2 : rows < 3 ? rows : 3;
}

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_LINEAR_LIMITS_H_
