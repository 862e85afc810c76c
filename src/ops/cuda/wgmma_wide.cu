// Wide products on SM90 (wide.h): a block makes 128 outputs of 128 rows. Two warp groups decode weights within
// shared memory while TMA brings codes and activations; two others multiply, 64 rows each. Two blocks with the same
// rows are a cluster: each brings half of them, to both.
//
// The sums are those of the skinny products to the bit: wgmma adds 16 products to an accumulator as mma.sync does, in
// whatever order they stand (CudaWide.TheBitsOfMmaSync checks that), so what counts is which 16 columns an MMA has,
// where a chunk ends and how chunks are added. ColumnOrder::kFp8Wide and kFp4Wide put the 16 columns side by side.
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

constexpr int kStages = 5;
constexpr int kOutputs = 128;   // of a block
constexpr int kColumns = 64;    // of a stage: 128 bytes of BF16, the swizzle's width
constexpr int kChunkSteps = 2;  // stages that share an accumulator
constexpr int kGroup = 128;     // threads of a warp group
constexpr int kGroupRows = 64;
constexpr int kCluster = 2;
constexpr int kDecoders = 2;  // warp groups, by turns: what one of them waits for, the other does not
constexpr int kWideThreads = (kDecoders + 2) * kGroup;
constexpr int kHalfBytes = kGroupRows * kColumns * 2;
constexpr int kRowsBytes = kCluster * kHalfBytes;
constexpr int kStageBytes = kRowsBytes + kOutputs * kColumns * 2;
// Codes come in boxes of 128 outputs by 64 bytes: a stage of FP8, two of FP4.
constexpr int kCodeStages = 4;
constexpr int kCodeRowBytes = 64;
constexpr int kCodeBytes = kOutputs * kCodeRowBytes;
constexpr int kBarriers = 2 * kStages + kCodeStages + 1;
static_assert(kWideTileRows == kCluster * kGroupRows && kCodeStages % kDecoders == 0);

/// Of a block, aligned to 1024: stages, codes, barriers, and all scales of FP4.
constexpr int WideBytes(bool fp4, int64_t columns) {
  return 1024 + kStages * kStageBytes + kCodeStages * kCodeBytes + (kBarriers * 8 + 15) / 16 * 16 +
         (fp4 ? kOutputs * static_cast<int>(columns / 32) : 0);
}
constexpr int kMostBytes = 227 * 1024;

/// What a block works on.
struct WideTile {
  int code_row, code_column;  // of the weight's map: its first box
  const uint8_t* scales;      // of its first output
  int first_row;              // of x and out
  int row_count;              // that exist
  int first_output;
};

/// Stretches of the columns that have totals of their own.
template <bool fp4>
constexpr int kStretches = fp4 ? kColumnParts : kDirectWarps;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void StoreShared128(uint32_t shared, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// One output's columns of kSteps stages, by one thread: codes in registers, BF16 to shared memory. Words of 16 bytes
// are what a lane of the skinny products reads; its MMAs take four columns from each of the four words of a row.
template <bool fp4>
struct WeightPiece {
  static constexpr int kSteps = fp4 ? 2 : 1;
  uint4 words[4];
  uint32_t scales;  // two bytes, or four

  /// Row `row` of a box of codes, in the 64-byte swizzle.
  __device__ __forceinline__ void Load(uint32_t codes, int row) {
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = LoadShared128(codes + row * kCodeRowBytes + ((i ^ row / 2 % 4) << 4));
  }

  /// The stage `step` of the piece to row `row` of a swizzled tile.
  template <int step>
  __device__ __forceinline__ void Store(uint32_t shared, int row) const {
    const auto put = [&](int eighth, const uint32_t* first, const uint32_t* second) {
      StoreShared128(shared + row * kColumns * 2 + ((eighth ^ row % 8) << 4), first[0], first[1], second[0], second[1]);
    };
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {  // words 2 pair and 2 pair + 1
      if constexpr (fp4) {
        const uint32_t first = DecodeFactor<true>(scales >> 16 * pair & 255u);
        const uint32_t second = DecodeFactor<true>(scales >> (16 * pair + 8) & 255u);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t a[4], b[4];
          DecodeFp4(Word(words[2 * pair], 2 * step + i), first, a);
          DecodeFp4(Word(words[2 * pair + 1], 2 * step + i), second, b);
          put(4 * i + pair, a, b);
          put(4 * i + 2 + pair, a + 2, b + 2);
        }
      } else {
        const uint32_t factor = DecodeFactor<false>(scales >> 8 * pair & 255u);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t a[2], b[2];
          DecodeFp8(Word(words[2 * pair], i), factor, a);
          DecodeFp8(Word(words[2 * pair + 1], i), factor, b);
          put(2 * i + pair, a, b);
        }
      }
    }
  }
};

/// The first stage of a stretch.
template <bool fp4>
__device__ __forceinline__ int FirstStep(int steps, int stretch) {
  if (fp4) return kChunkSteps * SkinnyFirstChunk(steps / kChunkSteps, kColumnParts, stretch);
  return DirectFirstStep(steps, stretch);
}

__device__ __forceinline__ void AddTo(float (&sums)[64], const float (&values)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] += values[i];
}

/// Where the block's tiles and barriers lie.
struct Ring {
  uint32_t base;
  __device__ __forceinline__ uint32_t Codes(int piece) const {
    return base + kStages * kStageBytes + piece % kCodeStages * kCodeBytes;
  }
  __device__ __forceinline__ uint32_t Barriers() const { return Codes(0) + kCodeStages * kCodeBytes; }
  __device__ __forceinline__ uint32_t Stage(int step) const { return base + step % kStages * kStageBytes; }
  __device__ __forceinline__ uint32_t Full(int step) const { return Barriers() + step % kStages * 8; }
  __device__ __forceinline__ uint32_t Empty(int step) const { return Full(step) + kStages * 8; }
  __device__ __forceinline__ uint32_t CodesFull(int piece) const {
    return Barriers() + (2 * kStages + piece % kCodeStages) * 8;
  }
  __device__ __forceinline__ uint32_t ScalesFull() const { return Barriers() + (kBarriers - 1) * 8; }
  __device__ __forceinline__ uint32_t Scales() const { return Barriers() + (kBarriers * 8 + 15) / 16 * 16; }
  __device__ __forceinline__ static uint32_t Phase(int step) { return step / kStages % 2; }
};

// chunk = the 64 rows of `half` over `count` steps. The other warp group keeps the tensor cores busy while this one
// waits.
template <int count>
__device__ __forceinline__ void MultiplyChunk(const Ring& ring, int step, int half, float (&chunk)[64]) {
#pragma unroll
  for (int i = 0; i < count; ++i) BarrierWait(ring.Full(step + i), Ring::Phase(step + i));
  WgmmaFence();
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const uint32_t rows = ring.Stage(step + i) + half * kHalfBytes;
    const uint32_t weights = ring.Stage(step + i) + kRowsBytes;
#pragma unroll
    for (int k = 0; k < kColumns / 16; ++k) {
      const uint64_t a = SwizzledMatrix(rows + k * 32);
      const uint64_t b = SwizzledMatrix(weights + k * 32);
      if (i == 0 && k == 0) {
        Wgmma64x128<false>(chunk, a, b);
      } else {
        Wgmma64x128(chunk, a, b);
      }
    }
  }
  WgmmaCommit();
  WgmmaWait<0>();
}

// A multiplying warp group: its 64 rows over all steps. sums: of the whole columns.
template <bool fp4>
__device__ __forceinline__ void MultiplySteps(const Ring& ring, int steps, int half, bool has_rows, float (&sums)[64]) {
  const bool leader = threadIdx.x % 32 == 0;
  const auto release = [&](int step) {
    // Every warp for itself: one that lags would otherwise miss a phase of `full` and wait for ever.
    if (leader) {
#pragma unroll
      for (uint32_t rank = 0; rank < kCluster; ++rank) BarrierArriveRead(PeerAddress(ring.Empty(step), rank));
    }
  };
  if (!has_rows) {
    for (int step = 0; step < steps; ++step) {
      BarrierWait(ring.Full(step), Ring::Phase(step));
      release(step);
    }
    return;
  }
  float total[64];
  float chunk[64];
  int step = 0;
#pragma unroll 1
  for (int stretch = 0; stretch < kStretches<fp4>; ++stretch) {
    const int end = FirstStep<fp4>(steps, stretch + 1);
#pragma unroll
    for (int i = 0; i < 64; ++i) total[i] = 0;
#pragma unroll 1
    for (; step + 1 < end; step += 2) {
      MultiplyChunk<2>(ring, step, half, chunk);
      release(step);
      release(step + 1);
      AddTo(total, chunk);
    }
    if (step < end) {  // a last one of half the columns
      MultiplyChunk<1>(ring, step, half, chunk);
      release(step);
      AddTo(total, chunk);
      ++step;
    }
    if (stretch == 0) {
#pragma unroll
      for (int i = 0; i < 64; ++i) sums[i] = total[i];
    } else {
      AddTo(sums, total);
    }
  }
}

// A decoding warp group: every second piece. One thread has TMA bring codes and rows; no load into registers is under
// way at a fence, which would wait for it.
template <bool fp4>
__device__ __forceinline__ void FillSteps(const Ring& ring, const CUtensorMap& map, const CUtensorMap& codes,
                                          const WideTile& tile, int columns, int first_column, uint32_t rank,
                                          int decoder) {
  using Piece = WeightPiece<fp4>;
  const int thread = static_cast<int>(threadIdx.x) % kGroup;
  const int pieces = columns / kColumns / Piece::kSteps;
  const int scale_row_bytes = columns / 32;
  const uint8_t* const scales = tile.scales + thread / 32 * scale_row_bytes;  // FP8
  const uint32_t halves = tile.row_count > kGroupRows ? 2 : 1;
  const auto bring_codes = [&](int at) {
    BarrierExpect(ring.CodesFull(at), kCodeBytes);
    LoadBox(ring.Codes(at), &codes, tile.code_column + at * kCodeRowBytes, tile.code_row, ring.CodesFull(at));
  };
  if (thread == 0) {
    if (fp4 && decoder == 0) {
      BarrierExpect(ring.ScalesFull(), static_cast<uint32_t>(kOutputs * scale_row_bytes));
      LoadBulk(ring.Scales(), tile.scales, static_cast<uint32_t>(kOutputs * scale_row_bytes), ring.ScalesFull());
    }
    for (int at = decoder; at < min(pieces, kCodeStages); at += kDecoders) bring_codes(at);
  }
  if (fp4) BarrierWait(ring.ScalesFull(), 0);
  const auto fill = [&](int step, const auto& store) {
    BarrierWait(ring.Empty(step), Ring::Phase(step) ^ 1);
    if (thread == 0) {
      asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(ring.Full(step)),
                   "r"(halves * kHalfBytes)
                   : "memory");
      if (rank < halves) {
        LoadBoxForAll<(1 << kCluster) - 1>(ring.Stage(step) + rank * kHalfBytes, &map, first_column + step * kColumns,
                                           tile.first_row + static_cast<int>(rank) * kGroupRows, ring.Full(step));
      }
    }
    store(ring.Stage(step) + kRowsBytes);
    FenceSharedForAsync();
    BarrierArrive(ring.Full(step));
  };
  for (int at = decoder; at < pieces; at += kDecoders) {
    Piece piece;
    piece.scales = fp4 ? LoadShared32(ring.Scales() + thread * scale_row_bytes + at * 4)
                       : __ldg(reinterpret_cast<const uint16_t*>(scales) + at);
    BarrierWait(ring.CodesFull(at), at / kCodeStages % 2);
    piece.Load(ring.Codes(at), thread);
    if (decoder == 0) {  // everyone has read
      NamedBarrier<1, kGroup>();
    } else {
      NamedBarrier<2, kGroup>();
    }
    if (thread == 0 && at + kCodeStages < pieces) bring_codes(at + kCodeStages);
    fill(at * Piece::kSteps, [&](uint32_t to) { piece.template Store<0>(to, thread); });
    if constexpr (Piece::kSteps > 1) {
      fill(at * Piece::kSteps + 1, [&](uint32_t to) { piece.template Store<1>(to, thread); });
    }
  }
}

template <bool fp4>
__device__ __forceinline__ void WideBlock(const CUtensorMap& map, const CUtensorMap& codes, const WideTile& tile,
                                          int columns, int first_column, const FloatView& out) {
  extern __shared__ uint8_t raw[];
  const Ring ring{(SharedAddress(raw) + 1023u) & ~1023u};
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int s = 0; s < kStages; ++s) {
      BarrierInit(ring.Full(s), kGroup);                       // the decoding threads; one also announces the bytes
      BarrierInit(ring.Empty(s), kCluster * 2 * kGroup / 32);  // the multiplying warps of all blocks
    }
    for (int s = 0; s < kCodeStages; ++s) BarrierInit(ring.CodesFull(s), 1);
    BarrierInit(ring.ScalesFull(), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  ClusterArrive();
  ClusterWait();
  const int group = thread / kGroup;
  if (group < kDecoders) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
    FillSteps<fp4>(ring, map, codes, tile, columns, first_column, blockIdx.x % kCluster, group);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    const int half = group - kDecoders;
    const bool has_rows = half * kGroupRows < tile.row_count;
    float sums[64];
    MultiplySteps<fp4>(ring, columns / kColumns, half, has_rows, sums);
    const int lane = thread % 32;
    const int warp = thread % kGroup / 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = half * kGroupRows + warp * 16 + lane / 4 + 8 * h;
      if (row >= tile.row_count) continue;
      float* const to = out.data + (tile.first_row + row) * out.stride + tile.first_output + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        *reinterpret_cast<float2*>(to + j * 8) =
            make_float2(sums[4 * j + 2 * h] * kSkinnyFactor, sums[4 * j + 2 * h + 1] * kSkinnyFactor);
      }
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
  return MakeTensorMap(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, x.values, rows, x.columns, x.columns * 2, kGroupRows, kColumns,
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
                     kCodeRowBytes, CU_TENSOR_MAP_SWIZZLE_64B, &codes)) {
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
      !MakeSpaceMap(experts.near, experts.columns / 2, kOutputs, kCodeRowBytes, CU_TENSOR_MAP_SWIZZLE_64B, &space)) {
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
