// Wide products on SM90 (wide.h): a block makes 128 outputs of 64 * MT * 2 rows. One warp group decodes weights into
// shared memory while TMA brings the activations; two others multiply. Four stages of 64 columns are on their way at a
// time.
#include "ops/cuda/decode_bf16.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/skinny_rows.cuh"
#include "ops/cuda/tensor_map.h"
#include "ops/cuda/wgmma.cuh"
#include "ops/cuda/wide.h"

namespace deepinfer::cuda {
namespace {

constexpr int kStages = 4;
constexpr int kOutputs = 128;  // of a block
constexpr int kColumns = 64;   // of a stage: 128 bytes of BF16, the swizzle's width
constexpr int kGroup = 128;    // threads of a warp group
constexpr int kWideThreads = 3 * kGroup;
constexpr int kWeightBytes = kOutputs * kColumns * 2;

template <int MT>
struct WideShape {
  static constexpr int kRows = 2 * 64 * MT;  // of a block
  static constexpr int kRowBytes = kRows * kColumns * 2;
  static constexpr int kStageBytes = kRowBytes + kWeightBytes;
  static constexpr int kBytes = kStages * kStageBytes + 1024 + 2 * kStages * 8;  // aligned to 1024; barriers
};

/// What a block works on.
struct WideTile {
  const uint8_t* values;  // of its first output
  const uint8_t* scales;
  int first_row;  // of x and out
  int row_count;  // that exist
  int first_output;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// One output's 64 columns, by one thread: codes in registers, BF16 to shared memory.
template <bool fp4>
struct WeightPiece {
  uint4 words[fp4 ? 2 : 4];
  uint32_t scales;  // two bytes
  __device__ __forceinline__ void Load(const uint8_t* values, const uint8_t* scale_row, int stage) {
    const uint4* from = reinterpret_cast<const uint4*>(values + stage * (fp4 ? kColumns / 2 : kColumns));
#pragma unroll
    for (int i = 0; i < (fp4 ? 2 : 4); ++i) words[i] = __ldg(from + i);
    scales = __ldg(reinterpret_cast<const uint16_t*>(scale_row + stage * 2));
  }
  __device__ __forceinline__ void Store(uint32_t shared, int row) const {
#pragma unroll
    for (int piece = 0; piece < 8; ++piece) {  // eight columns, 16 bytes
      const uint32_t factor = DecodeFactor<fp4>(scales >> (piece / 4 * 8) & 255u);
      uint32_t pairs[4];
      if (fp4) {
        DecodeFp4(Word(words[piece / 4], piece % 4), factor, pairs);
      } else {
        DecodeFp8(Word(words[piece / 2], piece % 2 * 2), factor, pairs);
        DecodeFp8(Word(words[piece / 2], piece % 2 * 2 + 1), factor, pairs + 2);
      }
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared + row * 128 + ((piece ^ row % 8) << 4)),
                   "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                   : "memory");
    }
  }
};

// The multiplying warp group `half`: its first `tiles` tiles over all steps.
template <int MT, int tiles>
__device__ __forceinline__ void MultiplySteps(uint32_t base, uint32_t full, uint32_t empty, int steps, int half,
                                              float (&sums)[MT][64]) {
  using Shape = WideShape<MT>;
  for (int step = 0; step < steps; ++step) {
    const int s = step % kStages;
    const uint32_t stage = base + s * Shape::kStageBytes;
    BarrierWait(full + s * 8, step / kStages % 2);
    WgmmaFence();
#pragma unroll
    for (int k = 0; k < kColumns / 16; ++k) {
      const uint64_t b = SwizzledMatrix(stage + Shape::kRowBytes + k * 32);
#pragma unroll
      for (int m = 0; m < tiles; ++m) {
        Wgmma64x128(sums[m], SwizzledMatrix(stage + (m * 2 + half) * 64 * kColumns * 2 + k * 32), b);
      }
    }
    WgmmaCommit();
    WgmmaWait<0>();  // the other warp group keeps the tensor cores busy meanwhile
    // Every warp for itself: one that lags (a group without tiles has nothing that holds its warps together) would
    // otherwise miss a phase of `full` and wait for ever.
    if (threadIdx.x % 32 == 0) BarrierArrive(empty + s * 8);
  }
}

template <bool fp4, int MT>
__device__ __forceinline__ void WideBlock(const CUtensorMap& map, const WideTile& tile, int columns, int first_column,
                                          const FloatView& out) {
  using Shape = WideShape<MT>;
  extern __shared__ uint8_t raw[];
  const uint32_t base = (SharedAddress(raw) + 1023u) & ~1023u;
  const uint32_t full = base + kStages * Shape::kStageBytes;
  const uint32_t empty = full + kStages * 8;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    for (int s = 0; s < kStages; ++s) {
      BarrierInit(full + s * 8, kGroup);  // the decoding threads; one of them also announces the bytes of TMA
      BarrierInit(empty + s * 8, 8);      // the multiplying warps
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int steps = columns / kColumns;
  const int group = thread / kGroup;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    const int64_t row_bytes = fp4 ? columns / 2 : columns;
    const uint8_t* values = tile.values + thread * row_bytes;
    const uint8_t* scales = tile.scales + (fp4 ? thread : thread / 32) * (columns / 32);
    const int boxes = min(Shape::kRows, tile.row_count + 127) / 128;
    // Two steps' codes in registers, by turns: those of the step after next are on their way while one is decoded.
    WeightPiece<fp4> even, odd;
    even.Load(values, scales, 0);
    if (steps > 1) odd.Load(values, scales, 1);
    const auto decode = [&](WeightPiece<fp4>& piece, int step) {
      const int s = step % kStages;
      const uint32_t stage = base + s * Shape::kStageBytes;
      BarrierWait(empty + s * 8, (step / kStages % 2) ^ 1);
      if (thread == 0) {
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(full + s * 8),
                     "r"(boxes * 128 * kColumns * 2)
                     : "memory");
        for (int box = 0; box < boxes; ++box) {
          LoadBox(stage + box * 128 * kColumns * 2, &map, first_column + step * kColumns, tile.first_row + box * 128,
                  full + s * 8);
        }
      }
      piece.Store(stage + Shape::kRowBytes, thread);
      FenceSharedForAsync();
      BarrierArrive(full + s * 8);
      if (step + 2 < steps) piece.Load(values, scales, step + 2);
    };
    for (int step = 0; step < steps; step += 2) {
      decode(even, step);
      if (step + 1 < steps) decode(odd, step + 1);
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
  // Tiles of 64 rows go to the two warp groups by turns; those without a row are left out.
  const int half = group - 1;
  const int mine = min(MT, max(0, (tile.row_count - half * 64 + 127) / 128));
  float sums[MT][64];
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int i = 0; i < 64; ++i) sums[m][i] = 0;
  }
  if (mine == MT) {
    MultiplySteps<MT, MT>(base, full, empty, steps, half, sums);
  } else if (mine == 1) {
    MultiplySteps<MT, 1>(base, full, empty, steps, half, sums);
  } else {
    MultiplySteps<MT, 0>(base, full, empty, steps, half, sums);
  }
  const int lane = thread % 32;
  const int warp = thread % kGroup / 32;
#pragma unroll
  for (int m = 0; m < MT; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = (m * 2 + half) * 64 + warp * 16 + lane / 4 + 8 * h;
      if (row >= tile.row_count) continue;
      float* to = out.data + (tile.first_row + row) * out.stride + tile.first_output + lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        *reinterpret_cast<float2*>(to + j * 8) =
            make_float2(sums[m][4 * j + 2 * h] * kSkinnyFactor, sums[m][4 * j + 2 * h + 1] * kSkinnyFactor);
      }
    }
  }
}

#endif  // SM90

template <int MT>
__global__ void __launch_bounds__(kWideThreads, 1)
    WideLinearKernel(const __grid_constant__ CUtensorMap map, WeightMatrix weight, int rows, int outputs_per_group,
                     FloatView out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  // Blocks that run at once share rows: y, the tile of rows, changes slowest.
  const int first_output = static_cast<int>(blockIdx.x) * kOutputs;
  const int columns = static_cast<int>(weight.columns);
  WideTile tile;
  tile.values = weight.data + int64_t{first_output} * columns;
  tile.scales = weight.scale + int64_t{first_output} / 32 * (columns / 32);
  tile.first_row = static_cast<int>(blockIdx.y) * WideShape<MT>::kRows;
  tile.row_count = rows - tile.first_row;
  tile.first_output = first_output;
  WideBlock<false, MT>(map, tile, columns, first_output / outputs_per_group * columns, out);
#endif
}

template <int MT>
__global__ void __launch_bounds__(kWideThreads, 1)
    WideExpertsKernel(const __grid_constant__ CUtensorMap map, WideExperts experts, FloatView out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  int32_t id;
  int first;
  if (experts.tiles != nullptr) {
    const ExpertTile listed = experts.tiles[blockIdx.y];
    if (listed.expert < 0) return;
    id = listed.expert;
    first = listed.first;
  } else {
    id = experts.active[blockIdx.z];
    first = static_cast<int>(blockIdx.y) * WideShape<MT>::kRows;
  }
  const int begin = experts.offsets[id];
  const int count = experts.offsets[id + 1] - begin;
  if (first >= count) return;
  const int columns = static_cast<int>(experts.columns);
  WideTile tile;
  tile.first_output = static_cast<int>(blockIdx.x) * kOutputs;
  tile.values = experts.values[id * experts.pointer_step] + int64_t{tile.first_output} * (columns / 2);
  tile.scales = experts.scales[id * experts.pointer_step] + int64_t{tile.first_output} * (columns / 32);
  tile.first_row = begin + first;
  tile.row_count = count - first;
  WideBlock<true, MT>(map, tile, columns, 0, out);
#endif
}

__global__ void SwiGluQuantiseKernel(ConstFloatView gates, ConstFloatView ups, const float* weights, float limit,
                                     Bf16Rows hidden) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t t = blockIdx.x;
  for (int64_t group = threadIdx.x / 32; group < hidden.columns / 32; group += blockDim.x / 32) {
    float gate = RowOf(gates, t)[group * 32 + lane];
    float up = RowOf(ups, t)[group * 32 + lane];
    if (limit > 0) {
      gate = fminf(gate, limit);
      up = fminf(fmaxf(up, -limit), limit);
    }
    StoreGroup(gate * Sigmoid(gate) * up * weights[t], ColumnOrder::kFp4,
               hidden.values + t * hidden.columns + group * 32, lane);
  }
}

// x as a tensor map: boxes of 128 rows by 64 columns in the 128-byte swizzle. Rows behind the last read as 0.
bool MakeMap(const Bf16Rows& x, int64_t rows, CUtensorMap* map) {
  return MakeTensorMap(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, x.values, rows, x.columns, x.columns * 2, 128, kColumns,
                       CU_TENSOR_MAP_SWIZZLE_128B, map);
}

}  // namespace

bool WideFits(const WeightMatrix& weight, int groups) {
  return (weight.format == WeightFormat::kF8Block32 || weight.format == WeightFormat::kF4Row32) &&
         weight.columns % kColumns == 0 && weight.rows / groups % kOutputs == 0 && IsSm90();
}

bool WideLinear(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WeightMatrix& weight, int groups,
                FloatView out) {
  if (rows == 0) return true;
  CUtensorMap map;
  if (!MakeMap(x, rows, &map)) return false;
  constexpr int MT = 2;
  cudaFuncSetAttribute(WideLinearKernel<MT>, cudaFuncAttributeMaxDynamicSharedMemorySize, WideShape<MT>::kBytes);
  const dim3 grid(Blocks(weight.rows, kOutputs), Blocks(rows, WideShape<MT>::kRows));
  WideLinearKernel<MT><<<grid, kWideThreads, WideShape<MT>::kBytes, stream>>>(
      map, weight, static_cast<int>(rows), static_cast<int>(weight.rows / groups), out);
  return true;
}

bool WideExpertsProduct(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WideExperts& experts,
                        FloatView out) {
  const bool listed = experts.tiles != nullptr;
  if (rows == 0 || (listed ? experts.tile_count : experts.active_count) == 0) return true;
  CUtensorMap map;
  if (!MakeMap(x, rows, &map)) return false;
  const auto launch = [&](auto kernel, int block_rows, int bytes) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const unsigned outputs = Blocks(experts.outputs, kOutputs);
    const dim3 grid =
        listed ? dim3(outputs, static_cast<unsigned>(experts.tile_count))
               : dim3(outputs, Blocks(experts.most_rows, block_rows), static_cast<unsigned>(experts.active_count));
    kernel<<<grid, kWideThreads, bytes, stream>>>(map, experts, out);
  };
  static_assert(WideShape<1>::kRows == kLowTileRows && WideShape<2>::kRows == kHighTileRows);
  if ((listed ? experts.tile_rows : experts.most_rows) <= kLowTileRows) {
    launch(WideExpertsKernel<1>, WideShape<1>::kRows, WideShape<1>::kBytes);
  } else {
    launch(WideExpertsKernel<2>, WideShape<2>::kRows, WideShape<2>::kBytes);
  }
  return true;
}

void SwiGluQuantise(cudaStream_t stream, ConstFloatView gate, ConstFloatView up, const float* weights, float limit,
                    const Bf16Rows& hidden) {
  if (gate.rows == 0) return;
  SwiGluQuantiseKernel<<<static_cast<unsigned>(gate.rows), kThreads, 0, stream>>>(gate, up, weights, limit, hidden);
}

}  // namespace deepinfer::cuda
