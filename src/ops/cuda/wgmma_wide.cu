// Wide products on SM90 (wide.h): a block makes 128 outputs of up to 128 rows. Two warp groups have 64 outputs each:
// they decode codes into the registers that WGMMA takes as one factor; the other, rows of activations, lies in shared
// memory. A thread of a third group has TMA bring both. Two blocks with the same rows are a cluster: each brings half
// of them, to both.
//
// The sums are those of the skinny products to the bit: wgmma adds 16 products to an accumulator as mma.sync does, in
// whatever order they stand (CudaWide.LinearHasTheBitsOfDirectLinear), so what counts is which 16 columns an MMA has,
// where a chunk ends and how chunks are added.
#include "ops/cuda/decode_bf16.cuh"
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/skinny_plan.h"
#include "ops/cuda/skinny_rows.cuh"
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
constexpr int kBarrierBytes = (2 * kStages + 2 * kPieces + 2) * 8;

template <bool fp4>
constexpr int kPieceSteps = fp4 ? 2 : 1;

/// Stretches of the columns that have totals of their own.
template <bool fp4>
constexpr int kStretches = fp4 ? kColumnParts : kDirectWarps;

/// Of a block: stages, pieces, barriers, and all scales of FP4; the start is aligned to 1024.
constexpr int64_t WideBytes(bool fp4, int64_t columns) {
  return 1024 + kStages * kStageBytes + kPieces * kPieceBytes + kBarrierBytes + (fp4 ? kOutputs * columns / 32 : 0);
}
constexpr int64_t kMostBytes = 227 * 1024;

/// What a block works on.
struct WideTile {
  int code_row, code_column;  // of the weight's map: its first piece
  const uint8_t* scales;      // of its first output
  int first_row;              // of x and out
  int row_count;              // that exist
  int first_output;
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
  __device__ __forceinline__ uint32_t ScalesFull() const { return Barriers() + (2 * kStages + 2 * kPieces) * 8; }
  __device__ __forceinline__ uint32_t Scales() const { return Barriers() + kBarrierBytes; }
  __device__ __forceinline__ static uint32_t StepPhase(int step) { return step / kStages % 2; }
  __device__ __forceinline__ static uint32_t PiecePhase(int piece) { return piece / kPieces % 2; }
};

/// The first stage of a stretch.
template <bool fp4>
__device__ __forceinline__ int FirstStep(int steps, int stretch) {
  if (fp4) return kChunkSteps * SkinnyFirstChunk(steps / kChunkSteps, kColumnParts, stretch);
  return DirectFirstStep(steps, stretch);
}

// All that a block reads, by one thread. x: its columns begin at first_column.
template <bool fp4>
__device__ __forceinline__ void Bring(const Ring& ring, const CUtensorMap& x, const CUtensorMap& codes,
                                      const WideTile& tile, int columns, int first_column) {
  const int steps = columns / kColumns;
  const uint32_t rank = blockIdx.x % kCluster;
  const uint32_t halves = tile.row_count > kHalfRows ? 2 : 1;
  if (fp4) {
    const uint32_t bytes = static_cast<uint32_t>(kOutputs * (columns / 32));
    BarrierExpect(ring.ScalesFull(), bytes);
    LoadBulk(ring.Scales(), tile.scales, bytes, ring.ScalesFull());
  }
  for (int step = 0; step < steps; ++step) {
    if (step % kPieceSteps<fp4> == 0) {
      const int piece = step / kPieceSteps<fp4>;
      BarrierWait(ring.CodesEmpty(piece), Ring::PiecePhase(piece) ^ 1);
      BarrierExpect(ring.CodesFull(piece), kPieceBytes);
      LoadBox(ring.Codes(piece), &codes, tile.code_column + piece * kPieceRowBytes, tile.code_row,
              ring.CodesFull(piece));
    }
    BarrierWait(ring.RowsEmpty(step), Ring::StepPhase(step) ^ 1);
    BarrierExpect(ring.RowsFull(step), halves * kHalfBytes);
    if (rank < halves) {
      LoadBoxForAll<(1 << kCluster) - 1>(ring.Rows(step) + rank * kHalfBytes, &x, first_column + step * kColumns,
                                         tile.first_row + static_cast<int>(rank) * kHalfRows, ring.RowsFull(step));
    }
  }
}

/// The codes of one thread: 16 bytes of two weight rows, eight apart, as a lane of the skinny products reads them.
template <bool fp4>
class Codes {
 public:
  /// row: the first of the two within the block.
  __device__ __forceinline__ Codes(const Ring& ring, const uint8_t* scales, int columns, int row)
      : ring_(ring), row_(row), lane_(static_cast<int>(threadIdx.x) % 32), scale_row_bytes_(columns / 32) {
    scales_ = scales + row / 32 * scale_row_bytes_;
  }

  /// Of stage `step`, for four MMAs: factors[k] is the factor of the k-th.
  __device__ __forceinline__ void Decode(int step, uint32_t (&factors)[4][4]) {
    const int piece = step / kPieceSteps<fp4>;
    const int t = lane_ % 4;
    if (step % kPieceSteps<fp4> == 0) {
      const uint32_t at = ring_.Codes(piece) + row_ * kPieceRowBytes + 16 * t;
      if constexpr (fp4) {
        const uint32_t scale = ring_.Scales() + row_ * scale_row_bytes_ + 4 * piece + t;
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
          DecodeFp4(later ? Word(words_[upper], 2 + i) : Word(words_[upper], i), scale[upper], pairs[upper]);
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
  const int row_, lane_, scale_row_bytes_;
  const uint8_t* scales_;
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
__device__ __forceinline__ void MultiplyChunk(const Ring& ring, int step, Codes<fp4>& codes, float (&chunk)[floats]) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    uint32_t factors[4][4];
    codes.Decode(step + i, factors);
    BarrierWait(ring.RowsFull(step + i), Ring::StepPhase(step + i));
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kColumns / 16; ++k) {
      const uint64_t rows = SwizzledMatrix(ring.Rows(step + i) + k * 32);
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
        BarrierArriveRead(PeerAddress(ring.RowsEmpty(step + i), rank));
      }
    }
  }
}

// A multiplying warp group. kRows: of the tile, 64 or 128, of which row_count exist.
template <bool fp4, int kRows>
__device__ __forceinline__ void Multiply(const Ring& ring, const WideTile& tile, int columns, int group,
                                         const FloatView& out) {
  constexpr int kFloats = kRows / 2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) % kGroup / 32;
  const int row = group * kGroupOutputs + warp * 16 + lane / 4;  // of the block's outputs
  const int steps = columns / kColumns;
  Codes<fp4> codes(ring, tile.scales, columns, row);
  if (fp4) BarrierWait(ring.ScalesFull(), 0);
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
      MultiplyChunk<fp4, 2>(ring, step, codes, chunk);
      AddTo(total, chunk);
    }
    if (step < end) {  // a last one of half the columns; not with FP4
      MultiplyChunk<fp4, 1>(ring, step, codes, chunk);
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
__device__ __forceinline__ void WideBlock(const CUtensorMap& x, const CUtensorMap& codes, const WideTile& tile,
                                          int columns, int first_column, const FloatView& out) {
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
    BarrierInit(ring.ScalesFull(), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  ClusterArrive();
  ClusterWait();
  const int group = thread / kGroup;
  if (group == kMultipliers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (thread % kGroup == 0) Bring<fp4>(ring, x, codes, tile, columns, first_column);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    if (tile.row_count > kHalfRows) {
      Multiply<fp4, kWideTileRows>(ring, tile, columns, group, out);
    } else {
      Multiply<fp4, kHalfRows>(ring, tile, columns, group, out);
    }
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
  // Blocks that run at once share rows: y, the tile of rows, changes slowest.
  const int first_output = static_cast<int>(blockIdx.x) * kOutputs;
  const int columns = static_cast<int>(weight.columns);
  WideTile tile;
  tile.code_row = first_output;
  tile.code_column = 0;
  tile.scales = weight.scale + int64_t{first_output} / 32 * (columns / 32);
  tile.first_row = static_cast<int>(blockIdx.y) * kWideTileRows;
  tile.row_count = rows - tile.first_row;
  tile.first_output = first_output;
  WideBlock<false>(map, codes, tile, columns, first_output / outputs_per_group * columns, out);
#endif
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kWideThreads, 1)
    WideExpertsKernel(const __grid_constant__ CUtensorMap map, const __grid_constant__ SpaceMap space,
                      WideExperts experts, FloatView out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  WaitForKernelAhead();
  StartKernelBehind();
  const ExpertTile listed = experts.tiles[blockIdx.y];
  if (listed.expert < 0) return;  // the whole cluster
  const int begin = experts.offsets[listed.expert];
  const int columns = static_cast<int>(experts.columns);
  const int64_t place = int64_t{listed.expert} * experts.pointer_step;
  WideTile tile;
  tile.first_output = static_cast<int>(blockIdx.x) * kOutputs;
  const SpacePlace first = PlaceIn(space, experts.values[place], tile.first_output, static_cast<uint32_t>(columns / 2));
  tile.code_row = first.row;
  tile.code_column = first.column;
  tile.scales = experts.scales[place] + int64_t{tile.first_output} * (columns / 32);
  tile.first_row = begin + listed.first;
  tile.row_count = experts.offsets[listed.expert + 1] - tile.first_row;
  WideBlock<true>(map, space.map, tile, columns, 0, out);
#endif
}

__global__ void SwiGluQuantiseKernel(ConstFloatView gates, ConstFloatView ups, const float* weights, float limit,
                                     Bf16Rows hidden) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t t = blockIdx.x;
  for (int64_t group = threadIdx.x / 32; group < hidden.columns / 32; group += blockDim.x / 32) {
    float gate = RowOf(gates, t)[group * 32 + lane];
    float up = RowOf(ups, t)[group * 32 + lane];
    if (limit > 0) {
      gate = fminf(gate, limit);
      up = fminf(fmaxf(up, -limit), limit);
    }
    StoreGroup(gate * Sigmoid(gate) * up * weights[t], ColumnOrder::kFp4Wide, hidden.values + t * hidden.columns,
               group * 32 + lane);
  }
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
  LaunchEarly(stream, dim3(Blocks(weight.rows, kOutputs), Blocks(rows, kWideTileRows)), kWideThreads,
              WideBytes(false, weight.columns), WideLinearKernel, map, codes, weight, static_cast<int>(rows),
              static_cast<int>(weight.rows / groups), out);
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
  const dim3 grid(Blocks(experts.outputs, kOutputs), static_cast<unsigned>(experts.tile_count));
  LaunchEarly(stream, grid, kWideThreads, WideBytes(true, experts.columns), WideExpertsKernel, map, space, experts,
              out);
  return true;
}

void SwiGluQuantise(cudaStream_t stream, ConstFloatView gate, ConstFloatView up, const float* weights, float limit,
                    const Bf16Rows& hidden) {
  if (gate.rows == 0) return;
  LaunchEarly(stream, dim3(static_cast<unsigned>(gate.rows)), kThreads, 0, SwiGluQuantiseKernel, gate, up, weights,
              limit, hidden);
}

}  // namespace deepinfer::cuda
