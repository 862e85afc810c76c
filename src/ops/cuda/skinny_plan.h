// How the FP4 experts (skinny.h) cut a weight: pure functions of its shape, so that the order of sums is too.
#ifndef DEEPINFER_OPS_CUDA_SKINNY_PLAN_H_
#define DEEPINFER_OPS_CUDA_SKINNY_PLAN_H_

#include <cstdint>

namespace deepinfer::cuda {

inline constexpr int kSkinnyChunk = 128;  // columns a block works on at once
inline constexpr int kSkinnyTile = 16;    // weight rows of an MMA
inline constexpr int kSkinnyWarps = 8;    // of a block; each has rows of its own
inline constexpr int kSkinnyRows = kSkinnyWarps * kSkinnyTile;

inline constexpr int kColumnParts = 2;  // of the columns of an expert's weight, with sums of their own
inline constexpr int kDirectWarps = 8;  // DirectLinear: each has a stretch of the columns

/// First step of 64 columns of stretch `warp`; the last stretch ends at `steps`.
constexpr int DirectFirstStep(int steps, int warp) { return steps * warp / kDirectWarps; }

/// First chunk of part `part`; the last part ends at `chunks`.
constexpr int SkinnyFirstChunk(int chunks, int parts, int part) { return chunks * part / parts; }

/// Where a piece of eight columns lies among the 256 bytes of a chunk of an activation row in shared memory: pieces
/// change places by row, so that the rows of a load do not meet in a bank.
constexpr int SkinnyPieceAt(int row, int piece) { return 16 * (piece ^ piece / 8 * 2 ^ row % 2); }

/// Stages of a bulk ring (skinny_bulk.cuh) that an SM of 228 KB has room for in each of `blocks` blocks, each with
/// `rest` bytes besides.
constexpr int64_t BulkStagesThatFit(int64_t stage_bytes, int64_t rest, int blocks) {
  constexpr int64_t kSmBytes = 228 * 1024, kBlockReserve = 1024;
  const int64_t room = kSmBytes / blocks - kBlockReserve - rest;
  return room > 0 ? room / stage_bytes : 0;
}

/// Experts of up to so many rows are read straight from memory, or by threads: by plain loads, each byte once.
inline constexpr int kMostPlainRows = 8;

/// Rows of one expert that few experts of a balanced router exceed, where the host knows no more than the shape: twice
/// the mean and two. Speed hangs on it, bits do not.
constexpr int LikelyRowsOfExpert(int64_t rows, int per_token, int64_t experts) {
  const int64_t likely = (2 * rows * per_token + experts - 1) / experts + 2;
  return static_cast<int>(likely < rows ? likely : rows);
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_SKINNY_PLAN_H_
