// FP4 experts straight from memory (direct_experts.h): a warp has 16 weight rows and all their columns; a lane reads 16
// bytes, 32 codes with one scale, of two of the rows at a time, several steps ahead, decodes and multiplies. The
// expert's activation rows lie in shared memory as a whole, so no warp waits for another while it streams.
//
// A sum has the order of skinny_block.cuh: 128 columns in one chain of MMAs, chunk after chunk within each half of the
// columns, then the halves.
#include <algorithm>
#include <atomic>
#include <bit>
#include <iterator>
#include <type_traits>

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
template <int warps, int NT, int depth, int blocks, int ahead = 0, bool ring = false>
struct Form {
  static constexpr int kWarps = warps;
  static constexpr int kThreads = 32 * warps;
  static constexpr int kRowTiles = NT;
  static constexpr int kDepth = depth;
  static constexpr int kBlocks = blocks;
  static constexpr int kAhead = ahead;
  static constexpr bool kRing = ring;  // in shared memory instead of registers
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

/// `count` rows to shared memory, by the whole block; nobody reads them before a barrier. From L2: hidden rows were
/// written while this kernel ran.
template <typename RowOf>
__device__ __forceinline__ void CopyRows(uint8_t* shared, const RowOf& row_of, int count, int columns) {
  for (int r = 0; r < count; ++r) {
    const uint16_t* const row = row_of(r);
    uint8_t* const to = shared + r * columns * 2;
    for (int p = static_cast<int>(threadIdx.x); p < columns / 8; p += static_cast<int>(blockDim.x)) {
      *reinterpret_cast<uint4*>(to + p / 16 * (kSkinnyChunk * 2) + SkinnyPieceAt(r, p % 16)) =
          __ldcg(reinterpret_cast<const uint4*>(row + p * 8));
    }
  }
}

/// Pieces of the next step.
template <int NT>
__device__ __forceinline__ void MoveOn(uint32_t (&rows)[NT][4]) {
#pragma unroll
  for (int n = 0; n < NT; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) rows[n][i] += kStepColumns * 2;
  }
}

/// A warp's sums over its columns, and the order in which they are made.
template <int NT>
class Sums {
 public:
  __device__ __forceinline__ explicit Sums(int chunks) : half_(SkinnyFirstChunk(chunks, kColumnParts, 1)) {}

  /// Adds 32 columns of rows g and g + 8 in each lane, `words`, times pieces at rows[n][i] + offset: chunk `index`.
  __device__ __forceinline__ void AddChunk(int index, const uint4 (&words)[2], const uint32_t (&factors)[2],
                                           const uint32_t (&rows)[NT][4], int offset) {
    if (index == half_) {
#pragma unroll
      for (int n = 0; n < NT; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          first_[n][i] = sums_[n][i];
          sums_[n][i] = 0;
        }
      }
    }
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
      for (int i = 0; i < 4; ++i) sums_[n][i] += chunk[n][i];
    }
  }
  /// As MmaBf16's D.
  __device__ __forceinline__ void Get(float (&sums)[NT][4]) const {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = first_[n][i] * kSkinnyFactor + sums_[n][i] * kSkinnyFactor;
    }
  }

 private:
  int half_;
  float first_[NT][4] = {};
  float sums_[NT][4] = {};
};

/// A warp's weights on their way through its registers. Lane (g, t) = (lane / 4, lane % 4) has columns 32t .. 32t + 31
/// of each chunk, of rows g and g + 8 of the tile.
template <typename F>
class Weights {
 public:
  __device__ __forceinline__ Weights(const Tile& tile, int columns, uint32_t) : steps_(columns / kStepColumns) {
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

  /// The tile times the rows at `rows`, lane (g, t)'s pieces 4t .. 4t + 3 of row 8n + g.
  template <int NT>
  __device__ __forceinline__ void Multiply(uint32_t (&rows)[NT][4], Sums<NT>& sums) {
    const uint32_t select = (threadIdx.x % 4) * 0x0101u + 0x4040u;
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
          const uint32_t factors[2] = {Factor(c == 0 ? scales[0].x : scales[0].y, select),
                                       Factor(c == 0 ? scales[1].x : scales[1].y, select)};
          sums.AddChunk(step * kStepChunks + c, held_[s].words[c], factors, rows, c * kSkinnyChunk * 2);
          if (more) LoadWords(s, c);
        }
        if (more) Advance();
        MoveOn(rows);
      }
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

  const uint8_t* values_[2];
  const uint8_t* scales_[2];
  const uint8_t* row_ = nullptr;  // what this lane prefetches
  int steps_;
  Step held_[F::kDepth];
};

/// The same through a ring of kDepth stages in shared memory that the warp has for itself: a lane reads the 16 bytes
/// that it copied, and a scale byte that a lane of its row did.
template <typename F>
class RingWeights {
  static_assert(F::kAhead == 0);

 public:
  static constexpr int kWordBytes = 32 * 16;
  static constexpr int kScalesAt = kStepChunks * 2 * kWordBytes;
  static constexpr int kStage = kScalesAt + kSkinnyTile * kStepScales;

  __device__ __forceinline__ RingWeights(const Tile& tile, int columns, uint32_t ring)
      : steps_(columns / kStepColumns), ring_(ring + threadIdx.x / 32 * (F::kDepth * kStage)) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4;
    const int t = lane % 4;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) values_[upper] = tile.values[upper] + g * (columns / 2) + t * 16;
    // A word of a chunk in each lane: rows g and g + 8, two chunks.
    scales_ = (t < 2 ? tile.scales[0] : tile.scales[1]) + g * (columns / 32) + t % 2 * 4;
    scale_to_ = kScalesAt + (g + t / 2 * 8) * kStepScales + t % 2 * 4;
    scale_from_ = kScalesAt + g * kStepScales + t;
    for (int s = 0; s < F::kDepth; ++s) Start(s, ring_ + s * kStage);
  }

  template <int NT>
  __device__ __forceinline__ void Multiply(uint32_t (&rows)[NT][4], Sums<NT>& sums) {
    const uint32_t own = threadIdx.x % 32 * 16;
    uint32_t stage = ring_;
    for (int step = 0; step < steps_; ++step) {
      WaitCopies<F::kDepth - 1>();
      __syncwarp();  // the scales come from other lanes
      uint4 words[kStepChunks][2];
      uint32_t factors[kStepChunks][2];
#pragma unroll
      for (int c = 0; c < kStepChunks; ++c) {
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) {
          words[c][upper] = LoadShared128(stage + own + (2 * c + upper) * kWordBytes);
          factors[c][upper] =
              DecodeFactor<true>(LoadShared8(stage + scale_from_ + upper * 8 * kStepScales + c * kStepScales / 2));
        }
      }
      __syncwarp();
      Start(step + F::kDepth, stage);
      stage = stage == ring_ + (F::kDepth - 1) * kStage ? ring_ : stage + kStage;
#pragma unroll
      for (int c = 0; c < kStepChunks; ++c) {
        sums.AddChunk(step * kStepChunks + c, words[c], factors[c], rows, c * kSkinnyChunk * 2);
      }
      MoveOn(rows);
    }
  }

 private:
  // Empty groups keep the count.
  __device__ __forceinline__ void Start(int step, uint32_t stage) {
    if (step < steps_) {
      const uint32_t own = stage + threadIdx.x % 32 * 16;
#pragma unroll
      for (int c = 0; c < kStepChunks; ++c) {
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) {
          CopyAsync16(own + (2 * c + upper) * kWordBytes, values_[upper] + c * (kSkinnyChunk / 2));
        }
      }
      CopyAsync4(stage + scale_to_, scales_);
      values_[0] += kStepBytes;
      values_[1] += kStepBytes;
      scales_ += kStepScales;
    }
    CommitCopies();
  }

  const uint8_t* values_[2];
  const uint8_t* scales_;
  int steps_;
  uint32_t ring_, scale_to_, scale_from_;
};

template <typename F>
using WeightsOf = std::conditional_t<F::kRing, RingWeights<F>, Weights<F>>;

/// In dynamic shared memory, behind the rest.
template <typename F>
constexpr int RingBytes() {
  if constexpr (F::kRing) return F::kWarps * F::kDepth * RingWeights<F>::kStage;
  return 0;
}

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
      rows[n][i] = shared + static_cast<uint32_t>(row * columns * 2 + SkinnyPieceAt(row, 4 * t + i));
    }
  }
}

/// The common part of a pass over `count` rows: after the first steps of weights are under way.
template <int NT, typename Stream, typename RowOf>
__device__ __forceinline__ void MultiplyPass(Stream& weights, uint8_t* shared, const RowOf& row_of, int count,
                                             int columns, float (&sums)[NT][4]) {
  CopyRows(shared, row_of, count, columns);
  __syncthreads();
  uint32_t rows[NT][4];
  PlaceRows<NT>(SharedAddress(shared), count, columns, rows);
  Sums<NT> parts(columns / kSkinnyChunk);
  weights.Multiply(rows, parts);
  parts.Get(sums);
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
  const uint32_t ring = SharedAddress(products + rows_at_once * kChannels);

  for (int first = 0; first < rows.count; first += rows_at_once) {
    const int count = min(rows_at_once, rows.count - first);
    const int32_t* const order = rows.order + first;
    WeightsOf<F> weights(tile, columns, ring);
    float sums[NT][4];
    const auto row_of = [&](int r) { return x.values + order[r] / plan.per_token * x.columns; };
    MultiplyPass<NT>(weights, shared, row_of, count, columns, sums);
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
  const uint32_t ring = SharedAddress(shared + rows_at_once * columns * 2);

  for (int first = 0; first < rows.count; first += rows_at_once) {
    const int count = min(rows_at_once, rows.count - first);
    const int32_t* const order = rows.order + first;
    WeightsOf<F> weights(tile, columns, ring);
    if (first == 0) {
      WaitForKernelAhead();  // weights do not depend on it
    } else {
      __syncthreads();  // the rows of the pass before are read
    }
    float sums[NT][4];
    const auto row_of = [&](int r) { return hidden.values + __ldcg(order + r) * hidden.columns; };
    MultiplyPass<NT>(weights, shared, row_of, count, columns, sums);
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
  const int64_t gate_up_bytes = rows * (plan.columns * 2 + kChannels * 4) + RingBytes<F>();
  const int64_t down_bytes = rows * plan.inner * 2 + RingBytes<F>();
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
template <int warps, int NT, int depth, int blocks, int ahead = 0, bool ring = false>
constexpr Variant Make() {
  return {{warps, 8 * NT, depth, blocks, ahead, ring}, Launch<Form<warps, NT, depth, blocks, ahead, ring>>};
}
constexpr Variant kVariants[] = {
    Make<4, 1, 2, 5>(),          Make<4, 1, 3, 4>(),          Make<4, 1, 4, 3>(),           Make<8, 1, 1, 3>(),
    Make<8, 1, 2, 2>(),          Make<8, 1, 3, 2>(),          Make<16, 1, 3, 1>(),          Make<4, 1, 2, 5, 2>(),
    Make<4, 1, 3, 4, 4>(),       Make<8, 1, 1, 3, 4>(),       Make<8, 1, 3, 2, 2>(),        Make<4, 1, 4, 4, 0, true>(),
    Make<4, 1, 3, 6, 0, true>(), Make<8, 1, 3, 3, 0, true>(), Make<16, 1, 4, 1, 0, true>(), Make<16, 2, 2, 1>(),
    Make<8, 2, 4, 1>(),
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
