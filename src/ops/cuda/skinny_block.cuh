// The inner part of the FP4 experts: a block of eight warps streams weight rows and 8 * NT activation rows through
// shared memory, chunk by chunk of 128 columns; each warp has two tiles of 16 weight rows of its own.
//
// Within a chunk, lane (g, t) = (lane / 4, lane % 4) holds the 32 columns 32t .. 32t + 31 of weight rows g and g + 8,
// and of activation row g: they have one scale. The order of columns inside an MMA is free as long as both sides agree.
#ifndef DEEPINFER_OPS_CUDA_SKINNY_BLOCK_CUH_
#define DEEPINFER_OPS_CUDA_SKINNY_BLOCK_CUH_

#include <cooperative_groups.h>

#include <cstdint>
#include <type_traits>

#include "ops/cuda/decode_bf16.cuh"
#include "ops/cuda/launch_order.h"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/skinny.h"
#include "ops/cuda/skinny_plan.h"

namespace deepinfer::cuda {

inline constexpr int kSkinnyStages = 4;
inline constexpr int kSkinnyThreads = kSkinnyWarps * 32;
inline constexpr int kWarpTiles = 2;
inline constexpr int kScaleColumns = 32;
inline constexpr int kChunkScales = kSkinnyChunk / kScaleColumns;

/// Where a tile of 16 rows lies in device memory.
struct TileSource {
  const uint8_t* values;  ///< of its first row
  const uint8_t* scales;
};

/// How a tile lies in shared memory: the values of its 16 rows, then their four scale bytes each.
struct TileLayout {
  static constexpr int kRowBytes = kSkinnyChunk / 2;
  static constexpr int kPieces = kRowBytes / 16;
  static constexpr int kValueBytes = kSkinnyTile * kRowBytes;
  static constexpr int kBytes = kValueBytes + kSkinnyTile * kChunkScales;
  static constexpr int PieceAt(int row, int piece) { return row * kRowBytes + 16 * piece; }
};

/// 8 * NT activation rows of a chunk: 16 pieces of 16 bytes a row.
struct RowLayout {
  static constexpr int kPieces = kSkinnyChunk * 2 / 16;
  static constexpr int PieceAt(int row, int piece) { return row * kSkinnyChunk * 2 + SkinnyPieceAt(row, piece); }
};

template <int NT>
inline constexpr int kRowsBytes = 8 * NT* kSkinnyChunk * 2;
template <int NT>
inline constexpr int kStageBytes = kSkinnyWarps* kWarpTiles* TileLayout::kBytes + kRowsBytes<NT>;
template <int NT>
inline constexpr int kSkinnyBytes = kSkinnyStages* kStageBytes<NT>;

/// What a thread copies of one of its warp's tiles: from lane-dependent places that move on by a chunk.
struct TileCopies {
  using Layout = TileLayout;
  static constexpr int kCopies = kSkinnyTile * Layout::kPieces / 32;
  static constexpr int kRowStep = 32 / Layout::kPieces;  // rows between a lane's copies
  const uint8_t* values;
  const uint8_t* scales;
  uint32_t row_step_bytes;

  __device__ __forceinline__ TileCopies(const TileSource& tile, uint32_t row_bytes, uint32_t scale_row_bytes, int lane)
      : values(tile.values + static_cast<uint32_t>(lane / Layout::kPieces) * row_bytes + lane % Layout::kPieces * 16),
        scales(tile.scales + static_cast<uint32_t>(lane % kSkinnyTile) * scale_row_bytes),
        row_step_bytes(row_bytes * kRowStep) {}
  __device__ __forceinline__ void Start(uint32_t shared, int chunk, int lane) const {
    const uint8_t* from = values + chunk * Layout::kRowBytes;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int at = Layout::PieceAt(lane / Layout::kPieces, lane % Layout::kPieces) + i * kRowStep * Layout::kRowBytes;
      CopyAsync16(shared + at, from + i * row_step_bytes);
    }
    if (lane < kSkinnyTile) {
      CopyAsync4(shared + Layout::kValueBytes + lane * kChunkScales, scales + chunk * kChunkScales);
    }
  }
};

/// What a thread copies of the activation rows: pieces thread + 256 i, 16 a row.
template <int NT>
struct RowCopies {
  static constexpr int kCopies = (RowLayout::kPieces * 8 * NT + kSkinnyThreads - 1) / kSkinnyThreads;
  const uint16_t* values[kCopies];

  /// row_of(i): the address of row i, i < 8 * NT.
  template <typename RowOf>
  __device__ __forceinline__ explicit RowCopies(const RowOf& row_of) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int row = thread / RowLayout::kPieces + i * (kSkinnyThreads / RowLayout::kPieces);
      values[i] = row < 8 * NT ? row_of(row) + thread % RowLayout::kPieces * 8 : nullptr;
    }
  }
  __device__ __forceinline__ void Start(uint32_t shared, int chunk) const {
    const int thread = static_cast<int>(threadIdx.x);
    const int at = RowLayout::PieceAt(thread / RowLayout::kPieces, thread % RowLayout::kPieces);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (values[i] != nullptr) {
        CopyAsync16(shared + at + i * (kSkinnyThreads / RowLayout::kPieces) * kSkinnyChunk * 2,
                    values[i] + chunk * kSkinnyChunk);
      }
    }
  }
};

/// A warp's tiles in a stage that threads filled, as MultiplyTiles reads them.
struct CopiedTiles {
  using Layout = TileLayout;
  uint32_t at;
  /// The scale byte of 32 columns of row g + 8 * upper.
  __device__ __forceinline__ uint32_t Scale(int m, int upper, int g, int t) const {
    return LoadShared8(at + m * Layout::kBytes + Layout::kValueBytes + t + (g + 8 * upper) * kChunkScales);
  }
  __device__ __forceinline__ uint4 Words(int m, int upper, int g, int piece) const {
    return LoadShared128(at + m * Layout::kBytes + Layout::PieceAt(g + 8 * upper, piece));
  }
};

/// sums[m][n] += tile m times rows 8n .. 8n + 7 at `rows`, both in shared memory.
template <int NT, typename Tiles>
__device__ __forceinline__ void MultiplyTiles(const Tiles& tiles, uint32_t rows, int lane,
                                              float (&sums)[kWarpTiles][NT][4]) {
  const int g = lane / 4;
  const int t = lane % 4;
  uint32_t factor[kWarpTiles][2];
  uint4 words[kWarpTiles][2];  // 32 columns
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      factor[m][upper] = DecodeFactor<true>(tiles.Scale(m, upper, g, t));
      words[m][upper] = tiles.Words(m, upper, g, t);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // eight columns
    uint32_t a[kWarpTiles][2][4];
#pragma unroll
    for (int m = 0; m < kWarpTiles; ++m) {
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) DecodeFp4Weight(Word(words[m][upper], i), factor[m][upper], a[m][upper]);
    }
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      const uint4 b = LoadShared128(rows + RowLayout::PieceAt(8 * n + g, 4 * t + i));
#pragma unroll
      for (int m = 0; m < kWarpTiles; ++m) {
        MmaBf16(sums[m][n], a[m][0][0], a[m][1][0], a[m][0][1], a[m][1][1], b.x, b.y);
        MmaBf16(sums[m][n], a[m][0][2], a[m][1][2], a[m][0][3], a[m][1][3], b.z, b.w);
      }
    }
  }
}

/// accumulators[m][n] += tile m times rows 8n .. 8n + 7 at `rows`. The MMAs cut off what does not fit their sums, so
/// each chunk has sums of its own, which are then added with rounding.
template <int NT, typename Tiles>
__device__ __forceinline__ void MultiplyChunk(const Tiles& tiles, uint32_t rows, int lane,
                                              float (&accumulators)[kWarpTiles][NT][4]) {
  float sums[kWarpTiles][NT][4] = {};
  MultiplyTiles<NT>(tiles, rows, lane, sums);
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) accumulators[m][n][i] += sums[m][n][i];
    }
  }
}

template <int NT>
__device__ __forceinline__ void Clear(float (&accumulators)[kWarpTiles][NT][4]) {
#pragma unroll
  for (int m = 0; m < kWarpTiles; ++m) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) accumulators[m][n][i] = 0;
    }
  }
}

/// accumulators = the warp's tiles times the block's rows over chunks first .. last - 1. By the whole block; `shared`:
/// kSkinnyBytes, which nobody uses any more when it returns. make_rows() gives the RowCopies; it is called, and rows
/// are read, after the kernel ahead has ended.
template <int NT, typename MakeRows>
__device__ __forceinline__ void StreamChunks(uint32_t shared, const TileSource (&tiles)[kWarpTiles], uint32_t row_bytes,
                                             uint32_t scale_row_bytes, const MakeRows& make_rows, int first, int last,
                                             float (&accumulators)[kWarpTiles][NT][4]) {
  constexpr uint32_t kStage = kStageBytes<NT>;
  constexpr uint32_t kTile = TileLayout::kBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t own =
      shared + kRowsBytes<NT> + threadIdx.x / 32 * kWarpTiles * kTile;  // the warp's tiles within a stage
  static_assert(kWarpTiles == 2);
  const TileCopies first_tile(tiles[0], row_bytes, scale_row_bytes, lane);
  const TileCopies last_tile(tiles[1], row_bytes, scale_row_bytes, lane);
  const auto start_tiles = [&](int chunk, uint32_t stage) {
    first_tile.Start(own + stage, chunk, lane);
    last_tile.Start(own + stage + kTile, chunk, lane);
  };
#pragma unroll
  for (int i = 0; i < kSkinnyStages - 1; ++i) {
    if (first + i < last) start_tiles(first + i, i * kStage);
  }
  WaitForKernelAhead();
  const RowCopies<NT> rows = make_rows();
#pragma unroll
  for (int i = 0; i < kSkinnyStages - 1; ++i) {
    if (first + i < last) rows.Start(shared + i * kStage, first + i);
    CommitCopies();  // the first group has all tiles so far
  }
  Clear(accumulators);
  uint32_t read = 0, write = (kSkinnyStages - 1) * kStage;
  for (int chunk = first; chunk < last; ++chunk) {
    WaitCopies<kSkinnyStages - 2>();
    __syncthreads();  // everyone's copies are there, and nobody reads the stage that is filled next
    if (chunk + kSkinnyStages - 1 < last) {
      start_tiles(chunk + kSkinnyStages - 1, write);
      rows.Start(shared + write, chunk + kSkinnyStages - 1);
    }
    CommitCopies();  // empty groups keep the count
    MultiplyChunk<NT>(CopiedTiles{own + read}, shared + read, lane, accumulators);
    read = read == (kSkinnyStages - 1) * kStage ? 0 : read + kStage;
    write = write == (kSkinnyStages - 1) * kStage ? 0 : write + kStage;
  }
  WaitCopies<0>();
  __syncthreads();
}

/// Stores accumulators as [16][8 * NT] floats at `out`.
template <int NT>
__device__ __forceinline__ void StoreTile(float* out, const float (&accumulators)[NT][4], int lane) {
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int n = 0; n < NT; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<float2*>(out + (g + 8 * half) * 8 * NT + n * 8 + 2 * t) =
          make_float2(accumulators[n][2 * half] * kSkinnyFactor, accumulators[n][2 * half + 1] * kSkinnyFactor);
    }
  }
}

/// The sum over the blocks of a cluster, in order of their rank, of the float at `own` in each one's shared memory.
template <typename Cluster>
__device__ __forceinline__ float ClusterSum(const Cluster& cluster, float* own, int parts) {
  float sum = *cluster.map_shared_rank(own, 0);
  for (int rank = 1; rank < parts; ++rank) sum += *cluster.map_shared_rank(own, static_cast<unsigned>(rank));
  return sum;
}

/// Launches `kernel` with blocks in clusters of `parts` along x, early (skinny.h).
template <typename... Arguments>
void LaunchClusters(cudaStream_t stream, dim3 grid, int parts, int threads, int shared_bytes,
                    void (*kernel)(Arguments...), const std::type_identity_t<Arguments>&... arguments) {
  AllowSharedBytes(reinterpret_cast<const void*>(kernel), shared_bytes);
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = TakeLaunchInOrder(stream) ? 0 : 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(parts);
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = parts > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, static_cast<Arguments>(arguments)...);
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_SKINNY_BLOCK_CUH_
