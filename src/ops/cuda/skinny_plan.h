// How the skinny products (skinny.h) cut a weight: pure functions of its shape, so that the order of sums is too.
#ifndef DEEPINFER_OPS_CUDA_SKINNY_PLAN_H_
#define DEEPINFER_OPS_CUDA_SKINNY_PLAN_H_

#include <cstdint>

namespace deepinfer::cuda {

inline constexpr int kSkinnyChunk = 128;  // columns a block works on at once
inline constexpr int kSkinnyTile = 16;    // weight rows of an MMA
inline constexpr int kSkinnyWarps = 8;    // of a block; each has rows of its own
inline constexpr int kSkinnyRows = kSkinnyWarps * kSkinnyTile;

/// Blocks that share the columns of the same rows: a cluster, which adds their sums in order. More parts fill the GPU
/// with small weights, as long as each still has four chunks to stream.
constexpr int SkinnyParts(int64_t row_blocks, int64_t columns) {
  constexpr int64_t kFullGpu = 264;  // two blocks on each of 132 SMs
  const int64_t chunks = columns / kSkinnyChunk;
  int parts = 1;
  while (parts < 8 && chunks / (2 * parts) >= 4 && row_blocks * parts < kFullGpu) parts *= 2;
  return parts;
}

/// First chunk of part `part`; the last part ends at `chunks`.
constexpr int SkinnyFirstChunk(int64_t chunks, int parts, int part) { return static_cast<int>(chunks * part / parts); }

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_SKINNY_PLAN_H_
