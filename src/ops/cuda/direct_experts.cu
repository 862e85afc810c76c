// FP4 experts straight from memory (direct_experts.h): a warp has 16 or 32 weight rows and all their columns; a lane
// reads 16 bytes, 32 codes with one scale, of a row at a time, a step or two ahead, decodes and multiplies. The
// expert's activation rows, up to eight, lie in shared memory as a whole, so no warp waits for another while it
// streams.
//
// A sum has the order of skinny_block.cuh: 128 columns in one chain of MMAs, chunk after chunk within each half of the
// columns, then the halves.
#include <algorithm>
#include <atomic>
#include <bit>

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

constexpr int kWarps = kSkinnyWarps;
constexpr int kThreads = 32 * kWarps;
constexpr int kMostRows = 8;    // of an expert at once; more read its weights again
constexpr int kStepChunks = 2;  // 128 bytes of each row
constexpr int kStepColumns = kStepChunks * kSkinnyChunk;
constexpr int kStepBytes = kStepColumns / 2;
constexpr int kStepScales = kStepColumns / 32;
constexpr int64_t kMostSharedBytes = 227 * 1024;
constexpr int kManyExperts = 256;  // whose blocks fill the GPU many times over: a block takes two turns

/// Speed hangs on a form, bits do not: `tiles` of 16 weight rows a warp, which share each read of activations, `depth`
/// steps of weights in registers, `blocks` on an SM as far as registers go.
template <int tiles, int depth, int blocks>
struct Form {
  static constexpr int kTiles = tiles;
  static constexpr int kDepth = depth;
  static constexpr int kBlocks = blocks;
  static constexpr int kRows = 8 * tiles;  // of a warp: so many of gate and of up, or twice as many of down
  static constexpr int kChannels = kWarps * kRows;
  static constexpr int kOutputs = 2 * kChannels;
  static_assert(kSkinnyRows % kChannels == 0 && 2 * kSkinnyRows % kOutputs == 0, "SkinnyExpertsFit");
};

/// A warp's weights: Form::kRows from either of two rows on. Tile m is eight of each, 8m rows behind.
struct WarpRows {
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

/// The slots of up to kMostRows rows, one a lane: a single wait for memory.
class Slots {
 public:
  __device__ __forceinline__ Slots(const int32_t* order, int count) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < count) slot_ = __ldcg(order + lane);
  }
  /// All lanes of the warp ask, each for a row of its own.
  __device__ __forceinline__ int32_t Of(int row) const { return __shfl_sync(~0u, slot_, row); }

 private:
  int32_t slot_ = 0;
};

/// Starts copying `count` rows to shared memory, by the whole block.
template <typename RowOf>
__device__ __forceinline__ void StartCopyingRows(uint32_t shared, const RowOf& row_of, int count, int columns) {
  for (int r = 0; r < count; ++r) {
    const uint16_t* const row = row_of(r);
    const uint32_t to = shared + static_cast<uint32_t>(r * columns * 2);
    for (int p = static_cast<int>(threadIdx.x); p < columns / 8; p += kThreads) {
      CopyAsync16(to + p / 16 * (kSkinnyChunk * 2) + SkinnyPieceAt(r, p % 16), row + p * 8);
    }
  }
  CommitCopies();
}

/// A warp's sums over its columns, and the order in which they are made.
template <int kTiles>
class Sums {
 public:
  __device__ __forceinline__ explicit Sums(int chunks) : half_(SkinnyFirstChunk(chunks, kColumnParts, 1)) {}

  /// Adds 32 columns of rows g and g + 8 of each tile in each lane, `words`, times the lane's pieces at rows[i] +
  /// offset: chunk `index`.
  __device__ __forceinline__ void AddChunk(int index, const uint4 (&words)[kTiles][2],
                                           const uint32_t (&factors)[kTiles][2], const uint32_t (&rows)[4],
                                           int offset) {
    if (index == half_) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          first_[m][i] = sums_[m][i];
          sums_[m][i] = 0;
        }
      }
    }
    float chunk[kTiles][4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // eight columns
      const uint4 b = LoadShared128(rows[i] + offset);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        uint32_t a[2][4];
#pragma unroll
        for (int upper = 0; upper < 2; ++upper) DecodeFp4Weight(Word(words[m][upper], i), factors[m][upper], a[upper]);
        MmaBf16(chunk[m], a[0][0], a[1][0], a[0][1], a[1][1], b.x, b.y);
        MmaBf16(chunk[m], a[0][2], a[1][2], a[0][3], a[1][3], b.z, b.w);
      }
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_[m][i] += chunk[m][i];
    }
  }
  /// As MmaBf16's D, by tile.
  __device__ __forceinline__ void Get(float (&sums)[kTiles][4]) const {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][i] = first_[m][i] * kSkinnyFactor + sums_[m][i] * kSkinnyFactor;
    }
  }

 private:
  int half_;
  float first_[kTiles][4] = {};
  float sums_[kTiles][4] = {};
};

/// A warp's weights on their way through its registers. Lane (g, t) = (lane / 4, lane % 4) has columns 32t .. 32t + 31
/// of each chunk, of rows g and g + 8 of each tile.
template <typename F>
class Weights {
  static constexpr int kTiles = F::kTiles;

 public:
  __device__ __forceinline__ Weights(const WarpRows& warp, int columns)
      : steps_(columns / kStepColumns), eight_rows_(8 * columns / 2) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      values_[upper] = warp.values[upper] + lane / 4 * (columns / 2) + lane % 4 * 16;
      scales_[upper] = warp.scales[upper] + lane / 4 * (columns / 32);
    }
  }

  /// Loads the first steps.
  __device__ __forceinline__ void Start() {
#pragma unroll
    for (int s = 0; s < F::kDepth; ++s) {
      if (s < steps_) {
        LoadScales(s);
#pragma unroll
        for (int c = 0; c < kStepChunks; ++c) LoadWords(s, c);
        Advance(1);
      }
    }
  }

  /// To the same columns of weights `eights` times eight rows on.
  __device__ __forceinline__ void Move(int eights) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      values_[upper] += int64_t{eights} * eight_rows_;
      scales_[upper] += int64_t{eights} * (eight_rows_ / 16);
    }
  }

  /// The tiles times the rows at `rows`, lane (g, t)'s pieces 4t .. 4t + 3 of row g. Start comes before each.
  __device__ __forceinline__ void Multiply(uint32_t (&rows)[4], Sums<kTiles>& sums) {
    const uint32_t select = (threadIdx.x % 4) * 0x0101u + 0x4040u;
    for (int begin = 0; begin < steps_; begin += F::kDepth) {
#pragma unroll
      for (int s = 0; s < F::kDepth; ++s) {
        const int step = begin + s;
        if (step >= steps_) break;
        const bool more = step + F::kDepth < steps_;
        uint2 scales[kTiles][2];
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
#pragma unroll
          for (int upper = 0; upper < 2; ++upper) scales[m][upper] = held_[s].scales[m][upper];
        }
        if (more) LoadScales(s);
#pragma unroll
        for (int c = 0; c < kStepChunks; ++c) {
          uint32_t factors[kTiles][2];
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
#pragma unroll
            for (int upper = 0; upper < 2; ++upper) {
              factors[m][upper] = Factor(c == 0 ? scales[m][upper].x : scales[m][upper].y, select);
            }
          }
          sums.AddChunk(step * kStepChunks + c, held_[s].words[c], factors, rows, c * kSkinnyChunk * 2);
          if (more) LoadWords(s, c);
        }
        if (more) Advance(1);
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[i] += kStepColumns * 2;
      }
    }
    Advance(-steps_);
  }

 private:
  struct Step {
    uint4 words[kStepChunks][kTiles][2];
    uint2 scales[kTiles][2];  // a word a chunk, a byte a lane of four
  };

  __device__ __forceinline__ void LoadScales(int s) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        held_[s].scales[m][upper] = __ldg(reinterpret_cast<const uint2*>(scales_[upper] + m * (eight_rows_ / 16)));
      }
    }
  }
  __device__ __forceinline__ void LoadWords(int s, int chunk) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        held_[s].words[chunk][m][upper] = LoadStream(values_[upper] + m * eight_rows_ + chunk * (kSkinnyChunk / 2));
      }
    }
  }
  __device__ __forceinline__ void Advance(int steps) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      values_[upper] += steps * kStepBytes;
      scales_[upper] += steps * kStepScales;
    }
  }
  /// DecodeFactor of the byte that `select` puts to both halves.
  static __device__ __forceinline__ uint32_t Factor(uint32_t word, uint32_t select) {
    return __byte_perm(word, 0, select) * (1u << 7) + DecodeFactor<true>(0);
  }

  const uint8_t* values_[2];
  const uint8_t* scales_[2];
  int steps_;
  int eight_rows_;  // bytes of their values
  Step held_[F::kDepth];
};

/// The block's `count` activation rows at `shared` times the weights: sums as MmaBf16's D, by tile.
template <typename F>
__device__ __forceinline__ void MultiplyRows(Weights<F>& weights, uint32_t shared, int count, int columns,
                                             float (&sums)[F::kTiles][4]) {
  // Rows behind the last repeat it, their sums go nowhere.
  const int row = min(static_cast<int>(threadIdx.x) % 32 / 4, count - 1);
  const int piece = static_cast<int>(threadIdx.x) % 4 * 4;
  uint32_t rows[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    rows[i] = shared + static_cast<uint32_t>(row * columns * 2 + SkinnyPieceAt(row, piece + i));
  }
  Sums<F::kTiles> parts(columns / kSkinnyChunk);
  weights.Multiply(rows, parts);
  parts.Get(sums);
}

/// The turns of a block, of `all` in a grid of blocks with up to `each`.
struct Turns {
  int first;
  int count;
};
__device__ __forceinline__ Turns TurnsOfBlock(int each, int all) {
  const int first = static_cast<int>(blockIdx.x) * each;
  return {first, min(each, all - first)};
}

// kChannels hidden channels of one expert a turn; a warp's tile is eight rows of w1, then the same of w3, so a lane has
// gate and up of a channel. A block takes several turns with the same activation rows; the first weights of a turn are
// on their way while the one before ends.
template <typename F>
__global__ void __launch_bounds__(kThreads, F::kBlocks)
    DirectGateUpKernel(ExpertsPlan plan, Bf16Rows x, Bf16Rows hidden, int rows_at_once, int turns_each) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int kChannels = F::kChannels;
  constexpr int kGroups = kChannels / 32;
  static_assert(kChannels % 32 == 0, "a group of the quantisation is in one block");
  WaitForKernelAhead();  // the routing may be its work; the weights' addresses hang on it
  StartKernelBehind();   // only now: the kernel behind reads the routing before it waits
  const int32_t id = ActiveExpert(plan);
  if (id < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int columns = static_cast<int>(plan.columns);
  const Turns turns = TurnsOfBlock(turns_each, static_cast<int>(plan.inner) / kChannels);
  const int64_t row = int64_t{turns.first} * kChannels + warp * F::kRows;
  const Assignment rows = AssignmentOf(plan, id);
  const DeviceExpert& expert = plan.experts[id];
  Weights<F> weights({{expert.w1 + row * (columns / 2), expert.w3 + row * (columns / 2)},
                      {expert.w1_scale + row * (columns / 32), expert.w3_scale + row * (columns / 32)}},
                     columns);
  float* const products = reinterpret_cast<float*>(shared + rows_at_once * columns * 2);  // [rows_at_once][kChannels]

  for (int first = 0; first < rows.count; first += rows_at_once) {
    const int count = min(rows_at_once, rows.count - first);
    const Slots slots(rows.order + first, count);
    weights.Start();
    const auto row_of = [&](int r) { return x.values + slots.Of(r) / plan.per_token * x.columns; };
    StartCopyingRows(SharedAddress(shared), row_of, count, columns);
    for (int turn = 0; turn < turns.count; ++turn) {
      WaitCopies<0>();
      __syncthreads();  // the rows are there, and the products of the turn before are read
      float sums[F::kTiles][4];
      MultiplyRows(weights, SharedAddress(shared), count, columns, sums);
      if (turn + 1 < turns.count) {
        weights.Move(kChannels / 8);
        weights.Start();
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = lane % 4 * 2 + i;
        const int32_t slot = slots.Of(r);
        if (r >= count) continue;
        float* const to = products + r * kChannels + warp * F::kRows + lane / 4;
#pragma unroll
        for (int m = 0; m < F::kTiles; ++m) to[8 * m] = JoinGateUp(plan, sums[m][i], sums[m][2 + i], slot);
      }
      __syncthreads();  // after the last turn, nobody reads the activation rows of this pass any more either
      const int first_channel = (turns.first + turn) * kChannels;
      for (int i = warp; i < count * kGroups; i += kWarps) {
        const int r = i / kGroups;
        const int group = i % kGroups * 32;
        StoreGroup(products[r * kChannels + group + lane], ColumnOrder::kFp4,
                   hidden.values + int64_t{slots.Of(r)} * plan.inner, first_channel + group + lane);
      }
    }
    weights.Move((1 - turns.count) * (kChannels / 8));
  }
}

// kOutputs outputs of one expert a turn; a warp's tile is eight rows of either half of the warp's.
template <typename F>
__global__ void __launch_bounds__(kThreads, F::kBlocks)
    DirectDownKernel(ExpertsPlan plan, Bf16Rows hidden, FloatView outputs, int rows_at_once, int turns_each) {
  extern __shared__ __align__(128) uint8_t shared[];
  StartKernelBehind();
  // The kernel ahead, DirectGateUpKernel, has waited for the one that made the routing, or for one behind that.
  const int32_t id = ActiveExpert(plan);
  if (id < 0) return WaitForKernelAhead();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int columns = static_cast<int>(plan.inner);
  const Turns turns = TurnsOfBlock(turns_each, static_cast<int>(outputs.columns) / F::kOutputs);
  const int64_t row = (int64_t{turns.first} * kWarps + warp) * (2 * F::kRows);
  const Assignment rows = AssignmentOf(plan, id);
  const uint8_t* const values = LoadPointer(&plan.experts[id].w2) + row * (columns / 2);
  const uint8_t* const scales = LoadPointer(&plan.experts[id].w2_scale) + row * (columns / 32);
  Weights<F> weights({{values, values + F::kRows * (columns / 2)}, {scales, scales + F::kRows * (columns / 32)}},
                     columns);

  for (int first = 0; first < rows.count; first += rows_at_once) {
    const int count = min(rows_at_once, rows.count - first);
    const Slots slots(rows.order + first, count);
    weights.Start();
    if (first == 0) {
      WaitForKernelAhead();  // weights do not depend on it
    } else {
      __syncthreads();  // the rows of the pass before are read
    }
    const auto row_of = [&](int r) { return hidden.values + slots.Of(r) * hidden.columns; };
    StartCopyingRows(SharedAddress(shared), row_of, count, columns);
    WaitCopies<0>();
    __syncthreads();
    for (int turn = 0; turn < turns.count; ++turn) {
      float sums[F::kTiles][4];
      MultiplyRows(weights, SharedAddress(shared), count, columns, sums);
      if (turn + 1 < turns.count) {
        weights.Move(F::kOutputs / 8);
        weights.Start();
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = lane % 4 * 2 + i;
        const int32_t slot = slots.Of(r);
        if (r >= count) continue;
        float* const out = RowOf(outputs, slot) + row + turn * F::kOutputs + lane / 4;
#pragma unroll
        for (int m = 0; m < F::kTiles; ++m) {
          out[8 * m] = sums[m][i];
          out[8 * m + F::kRows] = sums[m][2 + i];
        }
      }
    }
    weights.Move((1 - turns.count) * (F::kOutputs / 8));
  }
}

template <typename F>
bool Launch(cudaStream_t stream, const ExpertsPlan& plan, const Bf16Rows& x, const Bf16Rows& hidden, FloatView parts) {
  const int rows = std::min<int>(kMostRows, static_cast<int>(std::bit_ceil(static_cast<unsigned>(plan.most_rows))));
  const int64_t gate_up_bytes = rows * (plan.columns * 2 + F::kChannels * 4);
  const int64_t down_bytes = rows * plan.inner * 2;
  if (plan.columns % kStepColumns != 0 || plan.inner % kStepColumns != 0 ||
      std::max(gate_up_bytes, down_bytes) > kMostSharedBytes) {
    return false;
  }
  const unsigned active = static_cast<unsigned>(plan.active_count);
  const int turns = plan.active_count >= kManyExperts ? 2 : 1;
  LaunchEarly(stream, dim3(Blocks(plan.inner, F::kChannels * turns), 1, active), kThreads,
              static_cast<int>(gate_up_bytes), DirectGateUpKernel<F>, plan, x, hidden, rows, turns);
  LaunchEarly(stream, dim3(Blocks(parts.columns, F::kOutputs * turns), 1, active), kThreads,
              static_cast<int>(down_bytes), DirectDownKernel<F>, plan, hidden, parts, rows, turns);
  return true;
}

DirectForm form_choice = DirectForm::kAuto;
std::atomic<int64_t> launches = 0;

// Few experts are one wave of blocks, where loads under way count; many are streamed best by many warps, and with many
// rows each by warps that read those less often.
DirectForm FormFor(const ExpertsPlan& plan) {
  if (form_choice != DirectForm::kAuto) return form_choice;
  if (plan.active_count <= 16) return DirectForm::kFewExperts;
  return plan.most_rows <= 4 ? DirectForm::kManyExperts : DirectForm::kTwoTiles;
}

bool LaunchForm(cudaStream_t stream, const ExpertsPlan& plan, const Bf16Rows& x, const Bf16Rows& hidden,
                FloatView parts) {
  switch (FormFor(plan)) {
    case DirectForm::kFewExperts:
      return Launch<Form<1, 2, 2>>(stream, plan, x, hidden, parts);
    case DirectForm::kTwoTiles:
      return Launch<Form<2, 1, 2>>(stream, plan, x, hidden, parts);
    default:
      return Launch<Form<1, 1, 3>>(stream, plan, x, hidden, parts);
  }
}

}  // namespace

void UseDirectForm(DirectForm form) { form_choice = form; }

int64_t DirectExpertsLaunches() { return launches; }

bool DirectExperts(cudaStream_t stream, const ExpertsPlan& plan, const Bf16Rows& x, const Bf16Rows& hidden,
                   FloatView parts) {
  if (!LaunchForm(stream, plan, x, hidden, parts)) return false;
  ++launches;
  return true;
}

}  // namespace deepinfer::cuda
