// Wide products on SM90 (wide.h): a block makes 128 outputs of up to 128 rows. Two warp groups have 64 outputs each:
// they decode codes into the registers that WGMMA takes as one factor; the other, rows of activations, lies in shared
// memory. A thread of a third group has TMA bring both. Two blocks with the same rows are a cluster: each brings half
// of them, to both. A cluster takes one tile of outputs and rows after the other, and what the next one reads is on its
// way while the last one is multiplied and stored.
//
// The sums are those of the skinny products to the bit: wgmma adds 16 products to an accumulator as mma.sync does, in
// whatever order they stand (CudaWide.LinearHasTheBitsOfDirectLinear), so what counts is which 16 columns an MMA has,
// where a chunk ends and how chunks are added.
#include <algorithm>

#include "ops/cuda/decode_bf16.cuh"
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/row_dot.cuh"
#include "ops/cuda/row_forms.cuh"
#include "ops/cuda/skinny_plan.h"
#include "ops/cuda/space_map.cuh"
#include "ops/cuda/tensor_map.h"
#include "ops/cuda/wgmma.cuh"
#include "ops/cuda/wide.h"

namespace deepinfer::cuda {
namespace {

constexpr int kOutputs = 128;   // of a block
constexpr int kColumns = 64;    // of a stage: 128 bytes of BF16, the swizzle's width
constexpr int kChunkSteps = 2;  // stages that share an accumulator
constexpr int kGroup = 128;     // threads of a warp group
constexpr int kGroupOutputs = 64;
constexpr int kMultipliers = kOutputs / kGroupOutputs;  // warp groups
constexpr int kWideThreads = (1 + kMultipliers) * kGroup;
constexpr int kMultiplyingWarps = kMultipliers * kGroup / 32;
constexpr int kCluster = 2;
constexpr int kHalfRows = kWideTileRows / kCluster;
constexpr int kHalfBytes = kHalfRows * kColumns * 2;
constexpr int kStages = 8;  // of rows
constexpr int kStageBytes = kCluster * kHalfBytes;
// Codes come in pieces of 128 outputs by 64 bytes: a stage of FP8, two of FP4.
constexpr int kPieces = 4;
constexpr int kPieceRowBytes = 64;
constexpr int kPieceBytes = kOutputs * kPieceRowBytes;
constexpr int kTiles = 2;  // that are known: the one that is multiplied, and the next
constexpr int kTileBytes = 32;
constexpr int kBarrierBytes = 2 * (kStages + kPieces + kTiles) * 8;

template <bool fp4>
constexpr int kPieceSteps = fp4 ? 2 : 1;

/// Stretches of the columns that have totals of their own.
template <bool fp4>
constexpr int kStretches = fp4 ? kColumnParts : kDirectWarps;

/// Of a tile of FP4: all its scales.
constexpr int64_t ScaleBytes(int64_t columns) { return kOutputs * columns / 32; }
/// Of a block: stages, pieces, barriers, tiles; the start is aligned to 1024.
constexpr int64_t WideBytes(bool fp4, int64_t columns) {
  return 1024 + kStages * kStageBytes + kPieces * kPieceBytes + kBarrierBytes +
         kTiles * (kTileBytes + (fp4 ? ScaleBytes(columns) : 0));
}
constexpr int64_t kMostBytes = 227 * 1024;

/// What a block works on, as the multiplying groups need it.
struct WideTile {
  const uint8_t* scales;  // of its first output
  int first_row;          // of x and out
  int row_count;          // that exist; 0: there is nothing more to do
  int first_output;
};
static_assert(sizeof(WideTile) <= kTileBytes);

/// And where it is read from.
struct TileSource {
  WideTile tile;
  int code_row, code_column;  // of the weight's map: its first piece
  int first_column;           // of x
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// Where the block's tiles and barriers lie.
struct Ring {
  uint32_t base;
  __device__ __forceinline__ uint32_t Rows(int step) const { return base + step % kStages * kStageBytes; }
  __device__ __forceinline__ uint32_t Codes(int piece) const {
    return base + kStages * kStageBytes + piece % kPieces * kPieceBytes;
  }
  __device__ __forceinline__ uint32_t Barriers() const { return Codes(0) + kPieces * kPieceBytes; }
  __device__ __forceinline__ uint32_t RowsFull(int step) const { return Barriers() + step % kStages * 8; }
  __device__ __forceinline__ uint32_t RowsEmpty(int step) const { return RowsFull(step) + kStages * 8; }
  __device__ __forceinline__ uint32_t CodesFull(int piece) const {
    return Barriers() + (2 * kStages + piece % kPieces) * 8;
  }
  __device__ __forceinline__ uint32_t CodesEmpty(int piece) const { return CodesFull(piece) + kPieces * 8; }
  __device__ __forceinline__ uint32_t TileFull(int n) const {
    return Barriers() + (2 * kStages + 2 * kPieces + n % kTiles) * 8;
  }
  __device__ __forceinline__ uint32_t TileEmpty(int n) const { return TileFull(n) + kTiles * 8; }
  __device__ __forceinline__ uint32_t Tile(int n) const { return Barriers() + kBarrierBytes + n % kTiles * kTileBytes; }
  __device__ __forceinline__ uint32_t Scales(int n, int columns) const {
    return Barriers() + kBarrierBytes + kTiles * kTileBytes + n % kTiles * static_cast<int>(ScaleBytes(columns));
  }
  __device__ __forceinline__ static uint32_t StepPhase(int step) { return step / kStages % 2; }
  __device__ __forceinline__ static uint32_t PiecePhase(int piece) { return piece / kPieces % 2; }
  __device__ __forceinline__ static uint32_t TilePhase(int n) { return n / kTiles % 2; }
};

/// What Bring() wrote of the n-th tile.
__device__ __forceinline__ WideTile LoadTile(const Ring& ring, int n) {
  const uint4 words = LoadShared128(ring.Tile(n));
  WideTile tile;
  tile.scales = reinterpret_cast<const uint8_t*>(uint64_t{words.y} << 32 | words.x);
  tile.first_row = static_cast<int>(words.z);
  tile.row_count = static_cast<int>(words.w);
  tile.first_output = static_cast<int>(LoadShared32(ring.Tile(n) + 16));
  return tile;
}

/// The first stage of a stretch.
template <bool fp4>
__device__ __forceinline__ int FirstStep(int steps, int stretch) {
  if (fp4) return kChunkSteps * SkinnyFirstChunk(steps / kChunkSteps, kColumnParts, stretch);
  return DirectFirstStep(steps, stretch);
}

// All that a block reads, by one thread. source_of(n): its n-th tile, with no rows behind the last.
template <bool fp4, typename SourceOf>
__device__ __forceinline__ void Bring(const Ring& ring, const CUtensorMap& x, const CUtensorMap& codes, int columns,
                                      const SourceOf& source_of) {
  const int steps = columns / kColumns;
  const uint32_t rank = blockIdx.x % kCluster;
  int at = 0;  // of all steps so far
  for (int n = 0;; ++n) {
    const TileSource source = source_of(n);
    const WideTile& tile = source.tile;
    const uint32_t scale_bytes = fp4 && tile.row_count > 0 ? static_cast<uint32_t>(ScaleBytes(columns)) : 0;
    BarrierWait(ring.TileEmpty(n), Ring::TilePhase(n) ^ 1);
    const uint64_t scales = reinterpret_cast<uint64_t>(tile.scales);
    const uint32_t low[4] = {static_cast<uint32_t>(scales), static_cast<uint32_t>(scales >> 32),
                             static_cast<uint32_t>(tile.first_row), static_cast<uint32_t>(tile.row_count)};
    const uint32_t high[4] = {static_cast<uint32_t>(tile.first_output)};
    StoreShared128(ring.Tile(n), low);
    StoreShared128(ring.Tile(n) + 16, high);
    BarrierExpect(ring.TileFull(n), scale_bytes);
    if (tile.row_count == 0) return;
    if (fp4) LoadBulk(ring.Scales(n, columns), tile.scales, scale_bytes, ring.TileFull(n));
    const uint32_t halves = tile.row_count > kHalfRows ? 2 : 1;
    for (int step = 0; step < steps; ++step, ++at) {
      if (step % kPieceSteps<fp4> == 0) {
        const int piece = at / kPieceSteps<fp4>;
        BarrierWait(ring.CodesEmpty(piece), Ring::PiecePhase(piece) ^ 1);
        BarrierExpect(ring.CodesFull(piece), kPieceBytes);
        LoadBox(ring.Codes(piece), &codes, source.code_column + step / kPieceSteps<fp4> * kPieceRowBytes,
                source.code_row, ring.CodesFull(piece));
      }
      BarrierWait(ring.RowsEmpty(at), Ring::StepPhase(at) ^ 1);
      BarrierExpect(ring.RowsFull(at), halves * kHalfBytes);
      if (rank < halves) {
        LoadBoxForAll<(1 << kCluster) - 1>(ring.Rows(at) + rank * kHalfBytes, &x, source.first_column + step * kColumns,
                                           tile.first_row + static_cast<int>(rank) * kHalfRows, ring.RowsFull(at));
      }
    }
  }
}

/// The codes of one thread: 16 bytes of two weight rows, eight apart, as a lane of the skinny products reads them.
template <bool fp4>
class Codes {
 public:
  /// Of the n-th tile. row: the first of the two within the block.
  __device__ __forceinline__ Codes(const Ring& ring, int n, int columns, int row)
      : ring_(ring),
        row_(row),
        lane_(static_cast<int>(threadIdx.x) % 32),
        scale_row_bytes_(columns / 32),
        first_step_(n * (columns / kColumns)),
        shared_scales_(ring.Scales(n, columns)),
        scales_(fp4 ? nullptr : LoadTile(ring, n).scales + row / 32 * scale_row_bytes_) {}

  /// Of stage `step` of the tile, for four MMAs: factors[k] is the factor of the k-th.
  __device__ __forceinline__ void Decode(int step, uint32_t (&factors)[4][4]) {
    const int piece = (first_step_ + step) / kPieceSteps<fp4>;
    const int t = lane_ % 4;
    if (step % kPieceSteps<fp4> == 0) {
      const uint32_t at = ring_.Codes(piece) + row_ * kPieceRowBytes + 16 * t;
      if constexpr (fp4) {
        const uint32_t scale = shared_scales_ + row_ * scale_row_bytes_ + 4 * (step / 2) + t;
        scale_[0] = LoadShared8(scale);
        scale_[1] = LoadShared8(scale + 8 * scale_row_bytes_);
      } else {
        scale_[0] = scale_[1] = __ldg(scales_ + 2 * step + t / 2);
      }
      BarrierWait(ring_.CodesFull(piece), Ring::PiecePhase(piece));
      words_[0] = LoadShared128(at);
      words_[1] = LoadShared128(at + 8 * kPieceRowBytes);
    }
    const uint32_t scale[2] = {DecodeFactor<fp4>(scale_[0]), DecodeFactor<fp4>(scale_[1])};
    if constexpr (fp4) {
      // Two words of the four; which ones hangs on the step, and an index that is not constant would not be a register.
      const bool later = step % 2 != 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t pairs[2][4];
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) {
          DecodeFp4Weight(later ? Word(words_[upper], 2 + i) : Word(words_[upper], i), scale[upper], pairs[upper]);
        }
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          factors[2 * i + m][0] = pairs[0][2 * m];
          factors[2 * i + m][1] = pairs[1][2 * m];
          factors[2 * i + m][2] = pairs[0][2 * m + 1];
          factors[2 * i + m][3] = pairs[1][2 * m + 1];
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t pairs[2][2];
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) DecodeFp8(Word(words_[upper], i), scale[upper], pairs[upper]);
        factors[i][0] = pairs[0][0];
        factors[i][1] = pairs[1][0];
        factors[i][2] = pairs[0][1];
        factors[i][3] = pairs[1][1];
      }
    }
    if ((step + 1) % kPieceSteps<fp4> == 0) {
      __syncwarp();
      if (lane_ == 0) BarrierArrive(ring_.CodesEmpty(piece));
    }
  }

 private:
  const Ring& ring_;
  const int row_, lane_, scale_row_bytes_, first_step_;
  const uint32_t shared_scales_;
  const uint8_t* const scales_;  // FP8: in device memory
  uint32_t scale_[2];
  uint4 words_[2];
};

template <int count>
__device__ __forceinline__ void AddTo(float (&sums)[count], const float (&values)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) sums[i] += values[i];
}

// chunk = the group's outputs of the tile's rows over `count` steps. The other group keeps the tensor cores busy while
// this one decodes.
template <bool fp4, int count, int floats>
__device__ __forceinline__ void MultiplyChunk(const Ring& ring, int first_step, int step, Codes<fp4>& codes,
                                              float (&chunk)[floats]) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    uint32_t factors[4][4];
    codes.Decode(step + i, factors);
    const int at = first_step + step + i;
    BarrierWait(ring.RowsFull(at), Ring::StepPhase(at));
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kColumns / 16; ++k) {
      const uint64_t rows = SwizzledMatrix(ring.Rows(at) + k * 32);
      if (i == 0 && k == 0) {
        Wgmma64<false>(chunk, factors[k], rows);
      } else {
        Wgmma64<true>(chunk, factors[k], rows);
      }
    }
    WgmmaCommit();
    WgmmaWait<0>();
    // Every warp for itself: one that lags would otherwise miss a phase of the barrier and wait for ever.
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (uint32_t rank = 0; rank < kCluster; ++rank) {
        BarrierArriveRead(PeerAddress(ring.RowsEmpty(at), rank));
      }
    }
  }
}

// A multiplying warp group at the n-th tile. kRows: of the tile, 64 or 128, of which row_count exist.
template <bool fp4, int kRows>
__device__ __forceinline__ void MultiplyTile(const Ring& ring, int n, int columns, int group, const FloatView& out) {
  constexpr int kFloats = kRows / 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) % kGroup / 32;
  const int row = group * kGroupOutputs + warp * 16 + lane / 4;  // of the block's outputs
  const int steps = columns / kColumns;
  const int first_step = n * steps;
  Codes<fp4> codes(ring, n, columns, row);

  float sums[kFloats];
  float total[kFloats];
  float chunk[kFloats];
  int step = 0;
#pragma unroll 1
  for (int stretch = 0; stretch < kStretches<fp4>; ++stretch) {
    const int end = FirstStep<fp4>(steps, stretch + 1);
#pragma unroll
    for (int i = 0; i < kFloats; ++i) total[i] = 0;
#pragma unroll 1
    for (; step + 1 < end; step += 2) {
      MultiplyChunk<fp4, 2>(ring, first_step, step, codes, chunk);
      AddTo(total, chunk);
    }
    if (step < end) {  // a last one of half the columns; not with FP4
      MultiplyChunk<fp4, 1>(ring, first_step, step, codes, chunk);
      AddTo(total, chunk);
      ++step;
    }
    if (stretch == 0) {
#pragma unroll
      for (int i = 0; i < kFloats; ++i) sums[i] = total[i];
    } else {
      AddTo(sums, total);
    }
  }
  const WideTile tile = LoadTile(ring, n);  // only now: registers are short above
  __syncwarp();
  if (lane == 0) BarrierArrive(ring.TileEmpty(n));
  // Eight lanes store outputs that follow one another.
  float* const to = out.data + tile.first_row * out.stride + tile.first_output + row;
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = 8 * j + 2 * (lane % 4) + i;
      if (token < tile.row_count) {
        to[token * out.stride] = sums[4 * j + i] * kSkinnyFactor;
        to[token * out.stride + 8] = sums[4 * j + 2 + i] * kSkinnyFactor;
      }
    }
  }
}

template <bool fp4>
__device__ __forceinline__ void Multiply(const Ring& ring, int columns, int group, const FloatView& out) {
  for (int n = 0;; ++n) {
    BarrierWait(ring.TileFull(n), Ring::TilePhase(n));
    const int row_count = LoadTile(ring, n).row_count;
    if (row_count == 0) return;
    // Many experts have few rows. The last tile of a linear has them once: its other half is what the stage held
    // before.
    if (!fp4 || row_count > kHalfRows) {
      MultiplyTile<fp4, kWideTileRows>(ring, n, columns, group, out);
    } else {
      MultiplyTile<fp4, kHalfRows>(ring, n, columns, group, out);
    }
  }
}

/// source_of(index): the block's part of tile number `index` of all.
template <bool fp4, typename SourceOf>
__device__ __forceinline__ void WideBlock(const CUtensorMap& x, const CUtensorMap& codes, int columns,
                                          const FloatView& out, const SourceOf& source_of) {
  extern __shared__ uint8_t raw[];
  const Ring ring{(SharedAddress(raw) + 1023u) & ~1023u};
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int s = 0; s < kStages; ++s) {
      BarrierInit(ring.RowsFull(s), 1);
      BarrierInit(ring.RowsEmpty(s), kCluster * kMultiplyingWarps);
    }
    for (int s = 0; s < kPieces; ++s) {
      BarrierInit(ring.CodesFull(s), 1);
      BarrierInit(ring.CodesEmpty(s), kMultiplyingWarps);
    }
    for (int s = 0; s < kTiles; ++s) {
      BarrierInit(ring.TileFull(s), 1);
      BarrierInit(ring.TileEmpty(s), kMultiplyingWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  ClusterArrive();
  ClusterWait();
  const int group = thread / kGroup;
  if (group == kMultipliers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (thread % kGroup == 0) {
      const int cluster = static_cast<int>(blockIdx.x) / kCluster;
      const int clusters = static_cast<int>(gridDim.x) / kCluster;
      Bring<fp4>(ring, x, codes, columns, [&](int n) { return source_of(cluster + n * clusters); });
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    Multiply<fp4>(ring, columns, group, out);
  }
  // A block that has ended could not take what the other one still sends: arrivals at its barriers.
  __syncwarp();
  ClusterArrive();
  ClusterWait();
}

#endif  // SM90

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kWideThreads, 1)
    WideLinearKernel(const __grid_constant__ CUtensorMap map, const __grid_constant__ CUtensorMap codes,
                     WeightMatrix weight, int rows, int outputs_per_group, FloatView out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  WaitForKernelAhead();
  StartKernelBehind();
  const int columns = static_cast<int>(weight.columns);
  const int pairs = static_cast<int>(weight.rows) / (kCluster * kOutputs);
  WideBlock<false>(map, codes, columns, out, [&](int index) {
    TileSource source = {};
    // Clusters that run at once share rows: the tile of rows changes slowest.
    source.tile.first_row = index / pairs * kWideTileRows;
    if (source.tile.first_row >= rows) return source;
    const int first_output = (index % pairs * kCluster + static_cast<int>(blockIdx.x) % kCluster) * kOutputs;
    source.tile.row_count = rows - source.tile.first_row;
    source.tile.first_output = first_output;
    source.tile.scales = weight.scale + int64_t{first_output} / 32 * (columns / 32);
    source.code_row = first_output;
    source.first_column = first_output / outputs_per_group * columns;
    return source;
  });
#endif
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kWideThreads, 1)
    WideExpertsKernel(const __grid_constant__ CUtensorMap map, const __grid_constant__ SpaceMap space,
                      WideExperts experts, FloatView out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  WaitForKernelAhead();
  StartKernelBehind();
  const int columns = static_cast<int>(experts.columns);
  const int pairs = static_cast<int>(experts.outputs) / (kCluster * kOutputs);
  WideBlock<true>(map, space.map, columns, out, [&](int index) {
    TileSource source = {};
    if (index / pairs >= experts.tile_count) return source;
    const ExpertTile listed = experts.tiles[index / pairs];
    if (listed.expert < 0) return source;
    const int first_output = (index % pairs * kCluster + static_cast<int>(blockIdx.x) % kCluster) * kOutputs;
    const int64_t place = int64_t{listed.expert} * experts.pointer_step;
    const SpacePlace first = PlaceIn(space, experts.values[place], first_output, static_cast<uint32_t>(columns / 2));
    source.code_row = first.row;
    source.code_column = first.column;
    source.tile.scales = experts.scales[place] + int64_t{first_output} * (columns / 32);
    source.tile.first_row = experts.offsets[listed.expert] + listed.first;
    source.tile.row_count = experts.offsets[listed.expert + 1] - source.tile.first_row;
    source.tile.first_output = first_output;
    return source;
  });
#endif
}

template <bool kVector>
__global__ void SwiGluQuantiseKernel(ConstFloatView gates, ConstFloatView ups, const float* weights, float limit,
                                     Bf16Rows hidden) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  const int64_t c = OwnColumn() * kDotLaneColumns;
  if (c >= hidden.columns) return;
  float gate[kDotLaneColumns], up[kDotLaneColumns];
  LoadColumns<kVector>(RowOf(gates, t), c, hidden.columns, gate);
  LoadColumns<kVector>(RowOf(ups, t), c, hidden.columns, up);
  const float weight = weights[t];
  float values[kDotLaneColumns];
#pragma unroll
  for (int i = 0; i < kDotLaneColumns; ++i) values[i] = SwiGluValue(gate[i], up[i], limit) * weight;
  uint16_t bits[kDotLaneColumns];
  QuantiseColumns(values, bits);
  StoreInOrder<ColumnOrder::kFp4Wide>(bits, hidden.values + t * hidden.columns, c);
}

/// As many clusters as run at once.
dim3 WideGrid(int64_t tiles) {
  return dim3(kCluster * static_cast<unsigned>(std::min<int64_t>(tiles, Processors() / kCluster)));
}

// x as a tensor map: boxes of 64 rows by 64 columns in the 128-byte swizzle. Rows behind the last read as 0.
bool MakeMap(const Bf16Rows& x, int64_t rows, CUtensorMap* map) {
  return MakeTensorMap(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, x.values, rows, x.columns, x.columns * 2, kHalfRows, kColumns,
                       CU_TENSOR_MAP_SWIZZLE_128B, map);
}

}  // namespace

bool WideFits(const WeightMatrix& weight, int groups) {
  const bool fp4 = weight.format == WeightFormat::kF4Row32;
  if (!fp4 && weight.format != WeightFormat::kF8Block32) return false;
  // Every stretch has columns, so that none adds a zero where the skinny products add nothing.
  const int stretches = fp4 ? kStretches<true> : kStretches<false>;
  const int64_t piece_columns = fp4 ? kChunkSteps * kColumns : kColumns;
  if (weight.columns % piece_columns != 0 || weight.columns / piece_columns < stretches) return false;
  if (fp4 && weight.columns < 512) return false;  // a SpaceMap might not reach all experts, as with bulk
  // Experts are known to be aligned (DeviceExpert).
  const bool aligned =
      fp4 || (reinterpret_cast<uintptr_t>(weight.data) % 16 == 0 && reinterpret_cast<uintptr_t>(weight.scale) % 2 == 0);
  return aligned && weight.rows / groups % (kCluster * kOutputs) == 0 && WideBytes(fp4, weight.columns) <= kMostBytes &&
         IsSm90();
}

bool WideLinear(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WeightMatrix& weight, int groups,
                FloatView out) {
  if (rows == 0) return true;
  CUtensorMap map;
  CUtensorMap codes;
  if (!MakeMap(x, rows, &map) ||
      !MakeTensorMap(CU_TENSOR_MAP_DATA_TYPE_UINT8, weight.data, weight.rows, weight.columns, weight.columns, kOutputs,
                     kPieceRowBytes, CU_TENSOR_MAP_SWIZZLE_NONE, &codes)) {
    return false;
  }
  const int64_t tiles = weight.rows / (kCluster * kOutputs) * Blocks(rows, kWideTileRows);
  LaunchEarly(stream, WideGrid(tiles), kWideThreads, WideBytes(false, weight.columns), WideLinearKernel, map, codes,
              weight, static_cast<int>(rows), static_cast<int>(weight.rows / groups), out);
  return true;
}

bool WideExpertsProduct(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WideExperts& experts,
                        FloatView out) {
  if (rows == 0 || experts.tile_count == 0) return true;
  CUtensorMap map;
  SpaceMap space;
  if (!MakeMap(x, rows, &map) ||
      !MakeSpaceMap(experts.near, experts.columns / 2, kOutputs, kPieceRowBytes, CU_TENSOR_MAP_SWIZZLE_NONE, &space)) {
    return false;
  }
  const int64_t tiles = experts.outputs / (kCluster * kOutputs) * experts.tile_count;
  LaunchEarly(stream, WideGrid(tiles), kWideThreads, WideBytes(true, experts.columns), WideExpertsKernel, map, space,
              experts, out);
  return true;
}

void SwiGluQuantise(cudaStream_t stream, ConstFloatView gate, ConstFloatView up, const float* weights, float limit,
                    const Bf16Rows& hidden) {
  if (gate.rows == 0) return;
  LaunchEarly(stream, ColumnGrid(gate.rows, hidden.columns / kDotLaneColumns), kThreads, 0,
              TakesVectors(gate) && TakesVectors(up) ? &SwiGluQuantiseKernel<true> : &SwiGluQuantiseKernel<false>, gate,
              up, weights, limit, hidden);
}

}  // namespace deepinfer::cuda
