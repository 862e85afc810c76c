// FP4 experts straight from memory (direct_experts.h): a warp has 16 weight rows and all their columns; a lane reads 16
// bytes, 32 codes with one scale, of two of the rows at a time into registers, several steps ahead, decodes and
// multiplies. The expert's activation rows lie in shared memory as a whole, so no warp waits for another while it
// streams. The order of a sum is that of skinny_block.cuh: 128 columns in one chain of MMAs, chunk after chunk within
// each half of the columns, then the halves.
#include <algorithm>
#include <atomic>
#include <bit>
#include <iterator>

#include "ops/cuda/decode_bf16.cuh"
#include "ops/cuda/direct_experts.h"
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/experts_plan.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/skinny_plan.h"
#include "ops/cuda/skinny_rows.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kStepChunks = 2;  // 128 bytes of each row
constexpr int kStepColumns = kStepChunks * kSkinnyChunk;
constexpr int kStepBytes = kStepColumns / 2;
constexpr int kStepScales = kStepColumns / 32;
constexpr int kTileChannels = kSkinnyTile / 2;  // of a warp: a row of w1 and one of w3 each
constexpr int64_t kMostSharedBytes = 227 * 1024;

/// Speed hangs on a form, bits do not: `warps` of a block with a tile each, 8 * NT activation rows at once, `depth`
/// steps of weights in registers, `blocks` on an SM as far as registers go, `ahead` further steps on their way to L2.
template <int warps, int NT, int depth, int blocks, int ahead = 0>
struct Form {
  static constexpr int kWarps = warps;
  static constexpr int kThreads = 32 * warps;
  static constexpr int kRowTiles = NT;
  static constexpr int kDepth = depth;
  static constexpr int kBlocks = blocks;
  static constexpr int kAhead = ahead;
};

/// 16 weight rows: where the first of either eight lies.
struct Tile {
  const uint8_t* values[2];
  const uint8_t* scales[2];
};

__device__ __forceinline__ uint4 LoadStream(const uint8_t* at) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(at));
  return value;
}

__device__ __forceinline__ void PrefetchToL2(const uint8_t* at, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes) : "memory");
}

/// Where piece p (eight columns) of local row `row` lies in its chunk: pieces change places so that the lanes of a load
/// meet in no bank.
__device__ __forceinline__ int PieceAt(int row, int piece) { return 16 * (piece ^ piece / 8 * 2 ^ row % 2); }

/// Rows first .. of the pass to shared memory, by the whole block; nobody reads them before a barrier.
template <typename RowOf>
__device__ __forceinline__ void CopyRows(uint32_t shared, const RowOf& row_of, int count, int columns) {
  for (int r = 0; r < count; ++r) {
    const uint16_t* const row = row_of(r);
    const uint32_t to = shared + static_cast<uint32_t>(r * columns * 2);
    for (int p = static_cast<int>(threadIdx.x); p < columns / 8; p += static_cast<int>(blockDim.x)) {
      CopyAsync16(to + p / 16 * (kSkinnyChunk * 2) + PieceAt(r, p % 16), row + p * 8);
    }
  }
  CommitCopies();
}

/// A warp's weights on their way through its registers. Lane (g, t) = (lane / 4, lane % 4) has columns 32t .. 32t + 31
/// of each chunk, of rows g and g + 8 of the tile.
template <typename F>
class Weights {
 public:
  __device__ __forceinline__ Weights(const Tile& tile, int columns) : steps_(columns / kStepColumns) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row_bytes = columns / 2;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      values_[upper] = tile.values[upper] + lane / 4 * row_bytes + lane % 4 * 16;
      scales_[upper] = tile.scales[upper] + lane / 4 * (columns / 32);
    }
    if constexpr (F::kAhead > 0) {
      row_ = lane < kSkinnyTile ? (lane < 8 ? tile.values[0] : tile.values[1]) + lane % 8 * row_bytes : nullptr;
    }
#pragma unroll
    for (int s = 0; s < F::kDepth; ++s) {
      if (s < steps_) {
        LoadScales(s);
#pragma unroll
        for (int c = 0; c < kStepChunks; ++c) LoadWords(s, c);
        Advance();
      }
    }
    Prefetch(F::kDepth);
  }

  /// sums = the tile times the rows at `rows`, lane (g, t)'s pieces 4t .. 4t + 3 of row 8n + g.
  template <int NT>
  __device__ __forceinline__ void Multiply(uint32_t (&rows)[NT][4], float (&sums)[NT][4]) {
    const uint32_t select = (threadIdx.x % 4) * 0x0101u + 0x4040u;
    const int half = SkinnyFirstChunk(steps_ * kStepChunks, kColumnParts, 1);
    float first[NT][4] = {};
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
    }
    for (int begin = 0; begin < steps_; begin += F::kDepth) {
#pragma unroll
      for (int s = 0; s < F::kDepth; ++s) {
        const int step = begin + s;
        if (step >= steps_) break;
        const bool more = step + F::kDepth < steps_;
        if constexpr (F::kAhead > 0) {
          if (step % F::kAhead == 0) Prefetch(step + F::kDepth + F::kAhead);
        }
        const uint2 scales[2] = {held_[s].scales[0], held_[s].scales[1]};
        if (more) LoadScales(s);
#pragma unroll
        for (int c = 0; c < kStepChunks; ++c) {
          if (step * kStepChunks + c == half) {
#pragma unroll
            for (int n = 0; n < NT; ++n) {
#pragma unroll
              for (int i = 0; i < 4; ++i) {
                first[n][i] = sums[n][i];
                sums[n][i] = 0;
              }
            }
          }
          const uint32_t factors[2] = {Factor(c == 0 ? scales[0].x : scales[0].y, select),
                                       Factor(c == 0 ? scales[1].x : scales[1].y, select)};
          MultiplyChunk<NT>(held_[s].words[c], factors, rows, c * kSkinnyChunk * 2, sums);
          if (more) LoadWords(s, c);
        }
        if (more) Advance();
#pragma unroll
        for (int n = 0; n < NT; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) rows[n][i] += kStepColumns * 2;
        }
      }
    }
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = first[n][i] * kSkinnyFactor + sums[n][i] * kSkinnyFactor;
    }
  }

 private:
  struct Step {
    uint4 words[kStepChunks][2];
    uint2 scales[2];  // a word a chunk, a byte a lane of four
  };

  /// Starts kAhead steps, the first of them `from`, on their way to L2.
  __device__ __forceinline__ void Prefetch(int from) {
    if constexpr (F::kAhead > 0) {
      const int count = min(F::kAhead, steps_ - from);
      if (row_ != nullptr && count > 0) {
        PrefetchToL2(row_ + from * kStepBytes, static_cast<uint32_t>(count * kStepBytes));
      }
    }
  }
  __device__ __forceinline__ void LoadScales(int s) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      held_[s].scales[upper] = __ldg(reinterpret_cast<const uint2*>(scales_[upper]));
    }
  }
  __device__ __forceinline__ void LoadWords(int s, int chunk) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      held_[s].words[chunk][upper] = LoadStream(values_[upper] + chunk * (kSkinnyChunk / 2));
    }
  }
  __device__ __forceinline__ void Advance() {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      values_[upper] += kStepBytes;
      scales_[upper] += kStepScales;
    }
  }
  /// DecodeFactor of the byte that `select` puts to both halves.
  static __device__ __forceinline__ uint32_t Factor(uint32_t word, uint32_t select) {
    return __byte_perm(word, 0, select) * (1u << 7) + DecodeFactor<true>(0);
  }

  template <int NT>
  static __device__ __forceinline__ void MultiplyChunk(const uint4 (&words)[2], const uint32_t (&factors)[2],
                                                       const uint32_t (&rows)[NT][4], int offset,
                                                       float (&sums)[NT][4]) {
    float chunk[NT][4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // eight columns
      uint32_t a[2][4];
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) DecodeFp4(Word(words[upper], i), factors[upper], a[upper]);
#pragma unroll
      for (int n = 0; n < NT; ++n) {
        const uint4 b = LoadShared128(rows[n][i] + offset);
        MmaBf16(chunk[n], a[0][0], a[1][0], a[0][1], a[1][1], b.x, b.y);
        MmaBf16(chunk[n], a[0][2], a[1][2], a[0][3], a[1][3], b.z, b.w);
      }
    }
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] += chunk[n][i];
    }
  }

  const uint8_t* values_[2];
  const uint8_t* scales_[2];
  const uint8_t* row_ = nullptr;  // what this lane prefetches
  int steps_;
  Step held_[F::kDepth];
};

/// Where the lane reads its pieces of `count` local rows; rows behind the last repeat one, their sums go nowhere.
template <int NT>
__device__ __forceinline__ void PlaceRows(uint32_t shared, int count, int columns, uint32_t (&rows)[NT][4]) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    const int row = min(8 * n + g, count - 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows[n][i] = shared + static_cast<uint32_t>(row * columns * 2 + PieceAt(row, 4 * t + i));
    }
  }
}

/// The common part of a pass over `count` rows: after the first steps of weights are under way.
template <int NT, typename F, typename RowOf>
__device__ __forceinline__ void MultiplyPass(Weights<F>& weights, uint32_t shared, const RowOf& row_of, int count,
                                             int columns, float (&sums)[NT][4]) {
  CopyRows(shared, row_of, count, columns);
  WaitCopies<0>();
  __syncthreads();
  uint32_t rows[NT][4];
  PlaceRows<NT>(shared, count, columns, rows);
  weights.Multiply(rows, sums);
}

// 8 * kWarps hidden channels of one expert; a warp's tile is eight rows of w1, then the same of w3, so a lane has gate
// and up of a channel.
template <typename F>
__global__ void __launch_bounds__(F::kThreads, F::kBlocks)
    DirectGateUpKernel(ExpertsPlan plan, Bf16Rows x, Bf16Rows hidden, int rows_at_once) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int NT = F::kRowTiles;
  constexpr int kChannels = kTileChannels * F::kWarps;
  constexpr int kGroups = kChannels / 32;
  static_assert(kChannels % 32 == 0, "a group of the quantisation is in one block");
  WaitForKernelAhead();  // the routing may be its work; the weights' addresses hang on it
  StartKernelBehind();   // only now: the kernel behind reads the routing before it waits
  const int32_t id = ActiveExpert(plan);
  if (id < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int columns = static_cast<int>(plan.columns);
  const int first_channel = static_cast<int>(blockIdx.x) * kChannels;
  const int64_t row = first_channel + warp * kTileChannels;
  const Assignment rows = AssignmentOf(plan, id);
  const DeviceExpert& expert = plan.experts[id];
  const Tile tile = {{expert.w1 + row * (columns / 2), expert.w3 + row * (columns / 2)},
                     {expert.w1_scale + row * (columns / 32), expert.w3_scale + row * (columns / 32)}};
  float* const products = reinterpret_cast<float*>(shared + rows_at_once * columns * 2);  // [rows_at_once][kChannels]

  for (int first = 0; first < rows.count; first += rows_at_once) {
    const int count = min(rows_at_once, rows.count - first);
    const int32_t* const order = rows.order + first;
    Weights<F> weights(tile, columns);
    float sums[NT][4];
    const auto row_of = [&](int r) { return x.values + order[r] / plan.per_token * x.columns; };
    MultiplyPass<NT>(weights, SharedAddress(shared), row_of, count, columns, sums);
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = 8 * n + 2 * t + i;
        if (r < count) {
          products[r * kChannels + warp * kTileChannels + g] = JoinGateUp(plan, sums[n][i], sums[n][2 + i], order[r]);
        }
      }
    }
    __syncthreads();  // nobody reads the activation rows of this pass any more either
    for (int i = warp; i < count * kGroups; i += F::kWarps) {
      const int r = i / kGroups;
      const int group = i % kGroups * 32;
      StoreGroup(products[r * kChannels + group + lane], ColumnOrder::kFp4,
                 hidden.values + int64_t{order[r]} * plan.inner, first_channel + group + lane);
    }
  }
}

// 16 * kWarps outputs of one expert.
template <typename F>
__global__ void __launch_bounds__(F::kThreads, F::kBlocks)
    DirectDownKernel(ExpertsPlan plan, Bf16Rows hidden, FloatView outputs, int rows_at_once) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int NT = F::kRowTiles;
  StartKernelBehind();
  // The kernel ahead, DirectGateUpKernel, has waited for the one that made the routing, or for one behind that.
  const int32_t id = ActiveExpert(plan);
  if (id < 0) return WaitForKernelAhead();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int columns = static_cast<int>(plan.inner);
  const int64_t row = (int64_t{blockIdx.x} * F::kWarps + warp) * kSkinnyTile;
  const Assignment rows = AssignmentOf(plan, id);
  const uint8_t* const values = LoadPointer(&plan.experts[id].w2) + row * (columns / 2);
  const uint8_t* const scales = LoadPointer(&plan.experts[id].w2_scale) + row * (columns / 32);
  const Tile tile = {{values, values + 8 * (columns / 2)}, {scales, scales + 8 * (columns / 32)}};

  for (int first = 0; first < rows.count; first += rows_at_once) {
    const int count = min(rows_at_once, rows.count - first);
    const int32_t* const order = rows.order + first;
    Weights<F> weights(tile, columns);
    if (first == 0) {
      WaitForKernelAhead();  // weights do not depend on it
    } else {
      __syncthreads();  // the rows of the pass before are read
    }
    float sums[NT][4];
    const auto row_of = [&](int r) { return hidden.values + __ldcg(order + r) * hidden.columns; };
    MultiplyPass<NT>(weights, SharedAddress(shared), row_of, count, columns, sums);
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = 8 * n + 2 * t + i;
        if (r < count) {
          float* const out = RowOf(outputs, __ldcg(order + r)) + row + g;
          out[0] = sums[n][i];
          out[8] = sums[n][2 + i];
        }
      }
    }
  }
}

template <typename F>
bool Launch(cudaStream_t stream, const ExpertsPlan& plan, const Bf16Rows& x, const Bf16Rows& hidden, FloatView parts) {
  constexpr int kChannels = kTileChannels * F::kWarps, kOutputs = kSkinnyTile * F::kWarps;
  const int rows =
      std::min<int>(8 * F::kRowTiles, static_cast<int>(std::bit_ceil(static_cast<unsigned>(plan.most_rows))));
  const int64_t gate_up_bytes = rows * (plan.columns * 2 + kChannels * 4);
  const int64_t down_bytes = rows * plan.inner * 2;
  if (plan.columns % kStepColumns != 0 || plan.inner % kStepColumns != 0 || plan.inner % kChannels != 0 ||
      parts.columns % kOutputs != 0 || std::max(gate_up_bytes, down_bytes) > kMostSharedBytes) {
    return false;
  }
  const unsigned active = static_cast<unsigned>(plan.active_count);
  LaunchEarly(stream, dim3(Blocks(plan.inner, kChannels), 1, active), F::kThreads, static_cast<int>(gate_up_bytes),
              DirectGateUpKernel<F>, plan, x, hidden, rows);
  LaunchEarly(stream, dim3(Blocks(parts.columns, kOutputs), 1, active), F::kThreads, static_cast<int>(down_bytes),
              DirectDownKernel<F>, plan, hidden, parts, rows);
  return true;
}

struct Variant {
  ExpertsVariant variant;
  bool (*launch)(cudaStream_t, const ExpertsPlan&, const Bf16Rows&, const Bf16Rows&, FloatView);
};
template <typename F>
constexpr Variant Make(const char* name) {
  return {{name, 8 * F::kRowTiles}, Launch<F>};
}
constexpr Variant kVariants[] = {
    Make<Form<4, 1, 2, 5>>("4 warps, 2 steps, 5 blocks"),
    Make<Form<4, 1, 3, 4>>("4 warps, 3 steps, 4 blocks"),
    Make<Form<4, 1, 4, 3>>("4 warps, 4 steps, 3 blocks"),
    Make<Form<8, 1, 1, 3>>("8 warps, 1 step, 3 blocks"),
    Make<Form<8, 1, 2, 2>>("8 warps, 2 steps, 2 blocks"),
    Make<Form<8, 1, 3, 2>>("8 warps, 3 steps, 2 blocks"),
    Make<Form<16, 1, 3, 1>>("16 warps, 3 steps, 1 block"),
    Make<Form<4, 1, 2, 5, 2>>("4 warps, 2 + 2 steps, 5 blocks"),
    Make<Form<4, 1, 3, 4, 4>>("4 warps, 3 + 4 steps, 4 blocks"),
    Make<Form<8, 1, 1, 3, 4>>("8 warps, 1 + 4 steps, 3 blocks"),
    Make<Form<8, 1, 3, 2, 2>>("8 warps, 3 + 2 steps, 2 blocks"),
    Make<Form<16, 2, 2, 1>>("16 warps, 2 steps, 1 block"),
    Make<Form<8, 2, 4, 1>>("8 warps, 4 steps, 1 block"),
};

std::atomic<int64_t> launches = 0;

// Few experts are one wave of blocks, where loads under way count; many are streamed best by many warps.
int VariantFor(const ExpertsPlan& plan) { return plan.active_count <= 16 ? 4 : 3; }

}  // namespace

int DirectExpertsVariants() { return static_cast<int>(std::size(kVariants)); }

const ExpertsVariant& DirectExpertsVariant(int variant) { return kVariants[variant - 1].variant; }

int64_t DirectExpertsLaunches() { return launches; }

bool DirectExperts(cudaStream_t stream, const ExpertsPlan& plan, const Bf16Rows& x, const Bf16Rows& hidden,
                   FloatView parts, int variant) {
  const int index = variant > 0 ? variant - 1 : VariantFor(plan);
  if (!kVariants[index].launch(stream, plan, x, hidden, parts)) return false;
  ++launches;
  return true;
}

}  // namespace deepinfer::cuda
