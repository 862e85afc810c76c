// The inner part of the skinny products: a block of eight warps streams weight rows and 8 * NT activation rows through
// shared memory, chunk by chunk of their columns; each warp has MT tiles of 16 weight rows of its own.
//
// Within a block of 32 columns, lane (g, t) = (lane / 4, lane % 4) holds columns 8t .. 8t + 7 of weight rows g and g +
// 8, and of activation row g. The order of columns inside the MMA is free as long as both sides agree: FP8 takes them
// in pairs (0,1)(2,3) and (4,5)(6,7); FP4 in pairs (0,4)(2,6) and (1,5)(3,7), which is how nibbles come apart cheaply.
#ifndef DEEPINFER_OPS_CUDA_SKINNY_BLOCK_CUH_
#define DEEPINFER_OPS_CUDA_SKINNY_BLOCK_CUH_

#include <cooperative_groups.h>

#include <cstdint>

#include "ops/cuda/number_formats.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/skinny.h"
#include "ops/cuda/skinny_plan.h"

namespace deepinfer::cuda {

inline constexpr int kSkinnyStages = 4;
inline constexpr int kSkinnyThreads = kSkinnyWarps * 32;
inline constexpr int kBlocksPerChunk = kSkinnyChunk / 32;

/// Where a tile of 16 rows lies in device memory.
struct TileSource {
  const uint8_t* values;  ///< of its first row
  const uint8_t* scales;
};

/// How a tile lies in shared memory, for FP8 (one scale row for the tile) and FP4 (one scale row a weight row). Pieces
/// of 16 bytes change places by row so that the eight rows of a load meet all banks.
template <bool fp4>
struct TileLayout {
  static constexpr int kRowBytes = fp4 ? kSkinnyChunk / 2 : kSkinnyChunk;
  static constexpr int kPieces = kRowBytes / 16;
  static constexpr int kValueBytes = kSkinnyTile * kRowBytes;
  static constexpr int kBytes = kValueBytes + (fp4 ? kSkinnyTile * 4 : 16);
  static constexpr int PieceAt(int row, int piece) {
    return row * kRowBytes + 16 * (fp4 ? piece ^ (row / 2 % 4) : piece ^ (2 * (row % 4)));
  }
};

/// 8 * NT activation rows of a chunk: FP8 tiles of 8 rows, then a word of four scale bytes per row.
template <int NT>
inline constexpr int kRowsBytes = NT*(8 * kSkinnyChunk + 8 * 4);

template <bool fp4, int MT, int NT>
inline constexpr int kStageBytes = kSkinnyWarps* MT* TileLayout<fp4>::kBytes + kRowsBytes<NT>;
template <bool fp4, int MT, int NT>
inline constexpr int kSkinnyBytes = kSkinnyStages* kStageBytes<fp4, MT, NT>;

/// Starts copying chunk `chunk` of one tile to `shared`. row_bytes, scale_row_bytes: of the weight.
template <bool fp4>
__device__ __forceinline__ void CopyTile(uint32_t shared, const TileSource& tile, int64_t row_bytes,
                                         int64_t scale_row_bytes, int chunk, int lane) {
  using Layout = TileLayout<fp4>;
#pragma unroll
  for (int i = 0; i < kSkinnyTile * Layout::kPieces / 32; ++i) {
    const int index = i * 32 + lane;
    const int row = index / Layout::kPieces;
    const int piece = index % Layout::kPieces;
    CopyAsync16(shared + Layout::PieceAt(row, piece),
                tile.values + row * row_bytes + chunk * Layout::kRowBytes + piece * 16);
  }
  if (fp4) {
    if (lane < kSkinnyTile) {
      CopyAsync4(shared + Layout::kValueBytes + lane * 4, tile.scales + lane * scale_row_bytes + chunk * 4);
    }
  } else if (lane == 0) {
    CopyAsync4(shared + Layout::kValueBytes, tile.scales + chunk * 4);
  }
}

/// The scale of block `block` from a word of four E8M0 bytes; byte 0 is 2^-127, byte 255 gives infinity.
__device__ __forceinline__ float ScaleOf(uint32_t bytes, int block) {
  const uint32_t bits = block == 3 ? bytes >> 1 : bytes << (23 - 8 * block);
  return __uint_as_float(max(bits & 0x7f800000u, 0x00400000u));
}

/// Eight E2M1 codes as F16 values 2^14 too small, in the pairs (0,4) (2,6) (1,5) (3,7).
__device__ __forceinline__ void NibblesToHalves(uint32_t word, uint32_t (&halves)[4]) {
  const uint32_t even = (word << 4 & 0x80808080u) | (word << 1 & 0x0e0e0e0eu);
  const uint32_t odd = (word & 0x80808080u) | (word >> 3 & 0x0e0e0e0eu);
  halves[0] = even << 8 & 0xff00ff00u;
  halves[1] = even & 0xff00ff00u;
  halves[2] = odd << 8 & 0xff00ff00u;
  halves[3] = odd & 0xff00ff00u;
}

/// Eight E4M3 codes as F16: in pairs (0,1) (2,3) (4,5) (6,7), or in those of NibblesToHalves.
template <bool fp4>
__device__ __forceinline__ void BytesToHalves(uint2 bytes, uint32_t (&halves)[4]) {
  if (fp4) {
    const uint32_t first = __byte_perm(bytes.x, bytes.y, 0x5140);   // 0 4 1 5
    const uint32_t second = __byte_perm(bytes.x, bytes.y, 0x7362);  // 2 6 3 7
    halves[0] = E4m3PairToHalf2(static_cast<uint16_t>(first));
    halves[1] = E4m3PairToHalf2(static_cast<uint16_t>(second));
    halves[2] = E4m3PairToHalf2(static_cast<uint16_t>(first >> 16));
    halves[3] = E4m3PairToHalf2(static_cast<uint16_t>(second >> 16));
  } else {
    halves[0] = E4m3PairToHalf2(static_cast<uint16_t>(bytes.x));
    halves[1] = E4m3PairToHalf2(static_cast<uint16_t>(bytes.x >> 16));
    halves[2] = E4m3PairToHalf2(static_cast<uint16_t>(bytes.y));
    halves[3] = E4m3PairToHalf2(static_cast<uint16_t>(bytes.y >> 16));
  }
}

/// What one thread copies of the activation rows: pieces thread + 256 i of 16 bytes, eight a row, and the scales of row
/// `thread`.
template <int NT>
struct RowCopies {
  static constexpr int kPieces = (64 * NT + kSkinnyThreads - 1) / kSkinnyThreads;
  const uint8_t* codes[kPieces];
  const uint8_t* scales;

  /// row(i): the address of codes and of scales of row i of the block, i < 8 * NT.
  template <typename CodesOf, typename ScalesOf>
  __device__ __forceinline__ RowCopies(const CodesOf& codes_of, const ScalesOf& scales_of) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int piece = thread + i * kSkinnyThreads;
      codes[i] = piece < 64 * NT ? codes_of(piece / 8) + piece % 8 * 16 : nullptr;
    }
    scales = thread < 8 * NT ? scales_of(thread) : nullptr;
  }
  __device__ __forceinline__ void Start(uint32_t shared, int chunk) const {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int piece = thread + i * kSkinnyThreads;
      if (codes[i] != nullptr) {
        CopyAsync16(shared + TileLayout<false>::PieceAt(piece / 8, piece % 8), codes[i] + chunk * kSkinnyChunk);
      }
    }
    if (scales != nullptr) {
      CopyAsync4(shared + NT * 8 * kSkinnyChunk + thread * 4, scales + chunk * kBlocksPerChunk);
    }
  }
};

/// accumulators[m][n] += tile m at `tiles` times rows 8n .. 8n + 7 at `rows`, both in shared memory.
template <bool fp4, int MT, int NT>
__device__ __forceinline__ void MultiplyChunk(uint32_t tiles, uint32_t rows, int lane,
                                              float (&accumulators)[MT][NT][4]) {
  using Layout = TileLayout<fp4>;
  const int g = lane / 4;
  const int t = lane % 4;
  uint32_t scale_words[MT][2];
#pragma unroll
  for (int m = 0; m < MT; ++m) {
    const uint32_t at = tiles + m * Layout::kBytes + Layout::kValueBytes;
    scale_words[m][0] = LoadShared32(fp4 ? at + g * 4 : at);
    scale_words[m][1] = fp4 ? LoadShared32(at + (g + 8) * 4) : 0;
  }
  uint2 row_scales[NT];
#pragma unroll
  for (int n = 0; n < NT; ++n) row_scales[n] = LoadShared64(rows + NT * 8 * kSkinnyChunk + n * 32 + t * 8);
#pragma unroll
  for (int block = 0; block < kBlocksPerChunk; ++block) {
    uint32_t a[MT][2][4];  // rows g and g + 8
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = g + 8 * half;
        const uint32_t tile = tiles + m * Layout::kBytes;
        if (fp4) {
          NibblesToHalves(LoadShared32(tile + Layout::PieceAt(row, block) + t * 4), a[m][half]);
        } else {
          BytesToHalves<false>(LoadShared64(tile + Layout::PieceAt(row, 2 * block + t / 2) + t % 2 * 8), a[m][half]);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      uint32_t b[4];
      const uint32_t at = rows + n * 8 * kSkinnyChunk + TileLayout<false>::PieceAt(g, 2 * block + t / 2) + t % 2 * 8;
      BytesToHalves<fp4>(LoadShared64(at), b);
      const float x0 = ScaleOf(row_scales[n].x, block);
      const float x1 = ScaleOf(row_scales[n].y, block);
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        float sum[4] = {0, 0, 0, 0};
        MmaF16(sum, a[m][0][0], a[m][1][0], a[m][0][1], a[m][1][1], b[0], b[1]);
        MmaF16(sum, a[m][0][2], a[m][1][2], a[m][0][3], a[m][1][3], b[2], b[3]);
        const float low = ScaleOf(scale_words[m][0], block);
        const float high = fp4 ? ScaleOf(scale_words[m][1], block) : low;
        float(&out)[4] = accumulators[m][n];
        out[0] = fmaf(sum[0], low * x0, out[0]);
        out[1] = fmaf(sum[1], low * x1, out[1]);
        out[2] = fmaf(sum[2], high * x0, out[2]);
        out[3] = fmaf(sum[3], high * x1, out[3]);
      }
    }
  }
}

/// accumulators = the warp's tiles times the block's rows over chunks first .. last - 1. By the whole block; `shared`:
/// kSkinnyBytes, which nobody uses any more when it returns.
template <bool fp4, int MT, int NT>
__device__ __forceinline__ void StreamChunks(uint32_t shared, const TileSource (&tiles)[MT], int64_t row_bytes,
                                             int64_t scale_row_bytes, const RowCopies<NT>& rows, int first, int last,
                                             float (&accumulators)[MT][NT][4]) {
  constexpr uint32_t kStage = kStageBytes<fp4, MT, NT>;
  constexpr uint32_t kWarpTiles = MT * TileLayout<fp4>::kBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t own = kRowsBytes<NT> + threadIdx.x / 32 * kWarpTiles;  // the warp's tiles within a stage
  const auto start = [&](int chunk) {
    if (chunk < last) {
      const uint32_t stage = shared + static_cast<uint32_t>((chunk - first) % kSkinnyStages) * kStage;
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        CopyTile<fp4>(stage + own + m * TileLayout<fp4>::kBytes, tiles[m], row_bytes, scale_row_bytes, chunk, lane);
      }
      rows.Start(stage, chunk);
    }
    CommitCopies();  // empty groups keep the count
  };
#pragma unroll
  for (int i = 0; i < kSkinnyStages - 1; ++i) start(first + i);
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) accumulators[m][n][i] = 0;
    }
  }
  for (int chunk = first; chunk < last; ++chunk) {
    WaitCopies<kSkinnyStages - 2>();
    __syncthreads();  // everyone's copies are there, and nobody reads the stage that is filled next
    start(chunk + kSkinnyStages - 1);
    const uint32_t stage = shared + static_cast<uint32_t>((chunk - first) % kSkinnyStages) * kStage;
    MultiplyChunk<fp4, MT, NT>(stage + own, stage, lane, accumulators);
  }
  WaitCopies<0>();
  __syncthreads();
}

/// Stores accumulators as [16][8 * NT] floats at `out`, times `factor`.
template <int NT>
__device__ __forceinline__ void StoreTile(float* out, const float (&accumulators)[NT][4], float factor, int lane) {
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int n = 0; n < NT; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[(g + i / 2 * 8) * 8 * NT + n * 8 + 2 * t + i % 2] = accumulators[n][i] * factor;
    }
  }
}

/// The sum over the blocks of a cluster, in order of their rank, of the float at `own` in each one's shared memory.
__device__ __forceinline__ float ClusterSum(cooperative_groups::cluster_group& cluster, const float* own) {
  float sum = *cluster.map_shared_rank(own, 0);
  for (unsigned rank = 1; rank < cluster.num_blocks(); ++rank) sum += *cluster.map_shared_rank(own, rank);
  return sum;
}

/// Launches `kernel` with blocks of kSkinnyThreads in clusters of `parts` along x.
template <typename... Arguments>
void LaunchClusters(cudaStream_t stream, dim3 grid, int parts, int shared_bytes, void (*kernel)(Arguments...),
                    Arguments... arguments) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(parts);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(kSkinnyThreads);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_SKINNY_BLOCK_CUH_
