// Index scores and the two-level top-k (spec c.6).
//
// Scores: half a warp a key, the canonical product of each head, heads added in ascending order, to the bit of the
// reference. Selection: a block finds the k-th largest score by four passes over eight bits each of its
// order-preserving integer, then lists what lies above it and the earliest of what equals it, ascending. Long rows do
// so in parts first: what is among the k best of a row is among those of its part.
#include <algorithm>

#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/index_rows.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kKeysPerBlock = 64;
constexpr int kSelectThreads = 512;
constexpr int kDigits = 256;
constexpr int kPartItems = 8192;     // of a row that one block selects from
constexpr int kListedItems = 16384;  // of the second step that shared memory holds
constexpr int64_t kRowsAtOnce = 64;

__global__ void ScoreKernel(ConstFloatView q, ConstFloatView head_weights, const DeviceIndexSequence* sequences,
                            const int32_t* row_sequence, int64_t first_row, IndexArguments arguments, float* scores,
                            int64_t most_visible) {
  WaitForKernelAhead();
  StartKernelBehind();
  extern __shared__ float query[];  // [heads * width]
  const int64_t t = first_row + blockIdx.y;
  const DeviceIndexSequence& sequence = sequences[row_sequence[t]];
  const int64_t visible = VisibleRows(sequence, t, arguments.ratio);
  const int64_t first_key = int64_t{blockIdx.x} * kKeysPerBlock;
  if (first_key >= visible) return;
  const int width = arguments.head_width;
  const int warp_lane = static_cast<int>(threadIdx.x) % 32;
  for (int group = static_cast<int>(threadIdx.x) / 32; group < arguments.heads * width / 32; group += kThreads / 32) {
    const float value = RowOf(q, t)[group * 32 + warp_lane];
    const float scale = E8m0ToFloat(IndexFp4ScaleByte(GroupMaximum(fabsf(value), 32)));
    query[group * 32 + warp_lane] = E2m1ToFloat(FloatToE2m1(value / scale)) * scale;
  }
  __syncthreads();

  const unsigned half_mask = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  for (int64_t j = first_key + threadIdx.x / kDotLanes; j < first_key + kKeysPerBlock && j < visible;
       j += kThreads / kDotLanes) {
    const float score = CanonicalScore(arguments, RowValues(sequence.keys, j), RowScales(sequence.keys, j),
                                       RowOf(head_weights, t), half_mask, [&](int i) { return query[i]; });
    if (threadIdx.x % kDotLanes == 0) scores[blockIdx.y * most_visible + j] = score;
  }
}

// Larger scores have larger keys; -0 and +0 are equal; NaN is -inf. Never 0, which marks "no item".
__device__ __forceinline__ uint32_t OrderKey(float score) {
  if (isnan(score)) score = -INFINITY;
  const uint32_t bits = __float_as_uint(score + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct SelectShared {
  uint32_t histogram[kDigits];
  uint32_t warp_sums[2][kSelectThreads / 32];
  uint32_t prefix;
  uint32_t wanted;
  uint32_t above, equal;
};

// The digit at `shift` of the k-th largest key, by one warp: lane l has digits 255 - 8l down to 248 - 8l.
__device__ __forceinline__ void FindDigit(SelectShared& shared, int shift) {
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t counts[8], own = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) own += counts[i] = shared.histogram[kDigits - 1 - 8 * lane - i];
  uint32_t through = own;
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t others = __shfl_up_sync(0xffffffffu, through, step);
    if (lane >= step) through += others;
  }
  const uint32_t wanted = shared.wanted;
  const unsigned reached = __ballot_sync(0xffffffffu, through >= wanted);
  __syncwarp();
  if (lane != (reached == 0 ? 31 : __ffs(static_cast<int>(reached)) - 1)) return;
  uint32_t left = wanted - (through - own);
  int digit = kDigits - 1 - 8 * lane;
  uint32_t taken = min(left, counts[0]);
#pragma unroll
  for (int i = 1; i < 8; ++i) {
    // Fewer items than k: the lowest digit, and all of its items.
    if (digit != kDigits - 8 * lane - i || counts[i - 1] >= left) continue;
    left -= counts[i - 1];
    --digit;
    taken = min(left, counts[i]);
  }
  shared.wanted = taken;
  shared.prefix |= static_cast<uint32_t>(digit) << shift;
}

// Lists the k items of the largest key(i), i < count (0: no item), equal ones by ascending i, as out[n] = name(i) in
// ascending i. Returns how many. By the whole block.
template <typename Key, typename Name>
__device__ int SelectTopK(int64_t count, int k, SelectShared& shared, const Key& key, const Name& name, int32_t* out) {
  // The k-th largest key, digit by digit; `wanted` = how many items of its value are taken.
  if (threadIdx.x == 0) {
    shared.prefix = 0;
    shared.wanted = static_cast<uint32_t>(k);
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kSelectThreads) shared.histogram[d] = 0;
    __syncthreads();
    const uint32_t prefix = shared.prefix;
    const uint32_t mask = shift == 24 ? 0u : 0xffffffffu << (shift + 8);
    for (int64_t i = threadIdx.x; i < count; i += kSelectThreads) {
      const uint32_t value = key(i);
      if (value != 0 && (value & mask) == prefix) atomicAdd(&shared.histogram[value >> shift & 255u], 1u);
    }
    __syncthreads();
    if (threadIdx.x < 32) FindDigit(shared, shift);
    __syncthreads();
  }
  const uint32_t threshold = shared.prefix;
  const uint32_t ties = shared.wanted;

  // In order of i, a block of threads at a time.
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  uint32_t taken = 0;
  uint32_t ties_seen = 0;
  for (int64_t base = 0; base < count; base += kSelectThreads) {
    const int64_t i = base + threadIdx.x;
    const uint32_t value = i < count ? key(i) : 0;
    const bool tie = value != 0 && value == threshold;
    const uint32_t tie_ballot = __ballot_sync(0xffffffffu, tie);
    __syncthreads();  // warp_sums of the round before are read
    if (lane == 0) shared.warp_sums[0][warp] = static_cast<uint32_t>(__popc(tie_ballot));
    __syncthreads();
    uint32_t ties_before = ties_seen + static_cast<uint32_t>(__popc(tie_ballot & ((1u << lane) - 1)));
    uint32_t ties_here = 0;
    for (int w = 0; w < kSelectThreads / 32; ++w) {
      if (w < warp) ties_before += shared.warp_sums[0][w];
      ties_here += shared.warp_sums[0][w];
    }
    const bool take = value > threshold || (tie && ties_before < ties);
    const uint32_t take_ballot = __ballot_sync(0xffffffffu, take);
    if (lane == 0) shared.warp_sums[1][warp] = static_cast<uint32_t>(__popc(take_ballot));
    __syncthreads();
    uint32_t at = taken + static_cast<uint32_t>(__popc(take_ballot & ((1u << lane) - 1)));
    uint32_t taken_here = 0;
    for (int w = 0; w < kSelectThreads / 32; ++w) {
      if (w < warp) at += shared.warp_sums[1][w];
      taken_here += shared.warp_sums[1][w];
    }
    if (take) out[at] = name(i);
    ties_seen += ties_here;
    taken += taken_here;
  }
  __syncthreads();
  return static_cast<int>(taken);
}

__global__ void SelectKernel(const DeviceIndexSequence* sequences, const int32_t* row_sequence, int64_t first_row,
                             IndexArguments arguments, DeviceLists candidates, DeviceLists selected,
                             const float* all_scores, int64_t most_visible, float* all_block_scores) {
  WaitForKernelAhead();
  StartKernelBehind();
  __shared__ SelectShared shared;
  const int64_t t = first_row + blockIdx.x;
  const int64_t visible = VisibleRows(sequences[row_sequence[t]], t, arguments.ratio);
  const float* scores = all_scores + blockIdx.x * most_visible;
  const int size = arguments.block_size;

  if (arguments.publish) {
    const int64_t blocks = (visible + size - 1) / size;
    float* block_scores = all_block_scores + blockIdx.x * ((most_visible + size - 1) / size);
    for (int64_t b = threadIdx.x; b < blocks; b += kSelectThreads) {
      float best = -INFINITY;
      for (int64_t j = b * size; j < (b + 1) * size && j < visible; ++j) best = fmaxf(best, scores[j]);
      block_scores[b] = b + 1 == blocks ? INFINITY : best;
    }
    __syncthreads();
    const int kept = SelectTopK(
        blocks, arguments.topk_blocks, shared, [&](int64_t b) { return OrderKey(block_scores[b]); },
        [](int64_t b) { return static_cast<int32_t>(b); }, candidates.rows + t * candidates.stride);
    if (threadIdx.x == 0) candidates.counts[t] = kept;
    __syncthreads();
  }

  int32_t* list = selected.rows + t * selected.stride;
  int count;
  if (arguments.restrict_to_candidates && !arguments.publish) {
    const int32_t* blocks = candidates.rows + t * candidates.stride;
    const auto position = [&](int64_t i) { return int64_t{blocks[i / size]} * size + i % size; };
    count = SelectTopK(
        int64_t{candidates.counts[t]} * size, arguments.topk, shared,
        [&](int64_t i) {
          const int64_t j = position(i);
          return j < visible ? OrderKey(scores[j]) : 0u;
        },
        [&](int64_t i) { return static_cast<int32_t>(position(i)); }, list);
  } else {
    count = SelectTopK(
        visible, arguments.topk, shared, [&](int64_t j) { return OrderKey(scores[j]); },
        [](int64_t j) { return static_cast<int32_t>(j); }, list);
  }
  if (threadIdx.x == 0) selected.counts[t] = count;
}

// What the two steps of a long row hand on, for each row of a launch.
struct Parts {
  float* scores;         // [rows, most_visible]
  int32_t* rows;         // [rows, parts, topk]
  int32_t* counts;       // [rows, parts]
  uint32_t* block_keys;  // [rows, most_blocks]: the order keys of candidate blocks
  int64_t most_visible;
  int64_t most_blocks;
};

__device__ void SelectBlocks(int64_t blocks, const IndexArguments& arguments, SelectShared& shared,
                             const uint32_t* keys, const DeviceLists& candidates, int64_t t) {
  const int kept = SelectTopK(
      blocks, arguments.topk_blocks, shared, [&](int64_t b) { return keys[b]; },
      [](int64_t b) { return static_cast<int32_t>(b); }, candidates.rows + t * candidates.stride);
  if (threadIdx.x == 0) candidates.counts[t] = kept;
}

// The best of part blockIdx.x of row blockIdx.y, and the keys of its candidate blocks. A single part is the whole row.
__global__ void __launch_bounds__(kSelectThreads)
    SelectPartKernel(const DeviceIndexSequence* sequences, const int32_t* row_sequence, int64_t first_row,
                     IndexArguments arguments, DeviceLists candidates, DeviceLists selected, Parts parts) {
  extern __shared__ uint32_t keys[];  // [kPartItems]
  __shared__ SelectShared shared;
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = first_row + blockIdx.y;
  const IndexItems items(arguments, candidates, t, VisibleRows(sequences[row_sequence[t]], t, arguments.ratio));
  const int first = static_cast<int>(blockIdx.x) * kPartItems;
  const int count = min(max(items.count - first, 0), kPartItems);
  const float* scores = parts.scores + blockIdx.y * parts.most_visible;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSelectThreads) {
    const int j = items.Key(first + i);
    keys[i] = j < items.visible ? OrderKey(scores[j]) : 0u;
  }
  __syncthreads();
  uint32_t* const block_keys = parts.block_keys + blockIdx.y * parts.most_blocks;
  const int64_t blocks = arguments.publish ? (items.count + arguments.block_size - 1) / arguments.block_size : 0;
  if (arguments.publish) {
    const int size = arguments.block_size;
    for (int b = static_cast<int>(threadIdx.x); b * size < count; b += kSelectThreads) {
      uint32_t best = 0;
      for (int i = b * size; i < (b + 1) * size && i < count; ++i) best = max(best, keys[i]);
      const int64_t block = first / size + b;
      block_keys[block] = block + 1 == blocks ? OrderKey(INFINITY) : best;
    }
  }
  const bool whole = gridDim.x == 1;
  const int64_t part = blockIdx.y * gridDim.x + blockIdx.x;
  const int taken = SelectTopK(
      count, arguments.topk, shared, [&](int64_t i) { return keys[i]; },
      [&](int64_t i) { return items.Key(first + static_cast<int>(i)); },
      whole ? selected.rows + t * selected.stride : parts.rows + part * arguments.topk);
  if (threadIdx.x == 0) (whole ? selected.counts + t : parts.counts + part)[0] = taken;
  if (whole && arguments.publish) SelectBlocks(blocks, arguments, shared, block_keys, candidates, t);
}

// blockIdx.x 0: the best of the parts' best; 1: the candidate blocks.
__global__ void __launch_bounds__(kSelectThreads)
    JoinPartsKernel(const DeviceIndexSequence* sequences, const int32_t* row_sequence, int64_t first_row,
                    IndexArguments arguments, DeviceLists candidates, DeviceLists selected, Parts parts,
                    int most_parts) {
  extern __shared__ uint32_t keys[];  // [kListedItems]
  __shared__ SelectShared shared;
  WaitForKernelAhead();
  const int64_t t = first_row + blockIdx.y;
  if (blockIdx.x == 1) {
    const int64_t visible = VisibleRows(sequences[row_sequence[t]], t, arguments.ratio);
    const int64_t blocks = (visible + arguments.block_size - 1) / arguments.block_size;
    const uint32_t* from = parts.block_keys + blockIdx.y * parts.most_blocks;
    if (blocks <= kListedItems) {
#pragma unroll 4
      for (int b = static_cast<int>(threadIdx.x); b < blocks; b += kSelectThreads) keys[b] = from[b];
      __syncthreads();
      from = keys;
    }
    return SelectBlocks(blocks, arguments, shared, from, candidates, t);
  }
  const float* scores = parts.scores + blockIdx.y * parts.most_visible;
  const int32_t* lists = parts.rows + int64_t{blockIdx.y} * most_parts * arguments.topk;
  const int32_t* counts = parts.counts + int64_t{blockIdx.y} * most_parts;
  const int count = most_parts * arguments.topk;
  const auto load = [&](int i) {
    return i % arguments.topk < counts[i / arguments.topk] ? OrderKey(scores[lists[i]]) : 0u;
  };
  const auto name = [&](int64_t i) { return lists[i]; };
  int32_t* const out = selected.rows + t * selected.stride;
  int taken;
  if (count <= kListedItems) {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSelectThreads) keys[i] = load(i);
    __syncthreads();
    taken = SelectTopK(
        count, arguments.topk, shared, [&](int64_t i) { return keys[i]; }, name, out);
  } else {
    taken = SelectTopK(
        count, arguments.topk, shared, [&](int64_t i) { return load(static_cast<int>(i)); }, name, out);
  }
  if (threadIdx.x == 0) selected.counts[t] = taken;
}

void Scores(cudaStream_t stream, ConstFloatView q, ConstFloatView head_weights, const DeviceIndexSequence* sequences,
            const int32_t* row_sequence, int64_t first_row, int64_t rows, const IndexArguments& arguments,
            float* scores, int64_t most_visible) {
  if (most_visible == 0) return;
  const dim3 grid(Blocks(most_visible, kKeysPerBlock), static_cast<unsigned>(rows));
  const size_t bytes = static_cast<size_t>(arguments.heads * arguments.head_width) * 4;
  LaunchEarly(stream, grid, kThreads, bytes, ScoreKernel, q, head_weights, sequences, row_sequence, first_row,
              arguments, scores, most_visible);
}

// Items that a row may have, and the parts they make.
int64_t MostParts(const IndexArguments& arguments, int64_t most_visible) {
  int64_t items = most_visible;
  if (arguments.restrict_to_candidates && !arguments.publish) {
    items = int64_t{arguments.topk_blocks} * arguments.block_size;
  }
  return std::max<int64_t>(1, (items + kPartItems - 1) / kPartItems);
}
int64_t MostBlocks(const IndexArguments& arguments, int64_t most_visible) {
  return arguments.publish ? (most_visible + arguments.block_size - 1) / arguments.block_size : 0;
}

}  // namespace

void SelectRows(cudaStream_t stream, ConstFloatView q, ConstFloatView head_weights,
                const DeviceIndexSequence* sequences, const int32_t* row_sequence, int64_t first_row, int64_t rows,
                const IndexArguments& arguments, const DeviceLists& candidates, const DeviceLists& selected,
                float* scores, int64_t most_visible, float* block_scores) {
  if (rows == 0) return;
  Scores(stream, q, head_weights, sequences, row_sequence, first_row, rows, arguments, scores, most_visible);
  LaunchEarly(stream, static_cast<unsigned>(rows), kSelectThreads, 0, SelectKernel, sequences, row_sequence, first_row,
              arguments, candidates, selected, scores, most_visible, block_scores);
}

bool SelectInPartsFits(const IndexArguments& arguments) {
  return !arguments.publish || kPartItems % arguments.block_size == 0;
}

int64_t SelectInPartsScratchBytes(int64_t rows, const IndexArguments& arguments, int64_t most_visible) {
  const int64_t parts = MostParts(arguments, most_visible);
  return std::min(rows, kRowsAtOnce) * 4 *
         (most_visible + MostBlocks(arguments, most_visible) + parts * (arguments.topk + 1));
}

void SelectInParts(cudaStream_t stream, ConstFloatView q, ConstFloatView head_weights,
                   const DeviceIndexSequence* sequences, const int32_t* row_sequence, const IndexArguments& arguments,
                   const DeviceLists& candidates, const DeviceLists& selected, int64_t most_visible, void* scratch) {
  const int64_t at_once = std::min(q.rows, kRowsAtOnce);
  const int most_parts = static_cast<int>(MostParts(arguments, most_visible));
  Parts parts{};
  parts.most_visible = most_visible;
  parts.most_blocks = MostBlocks(arguments, most_visible);
  parts.scores = static_cast<float*>(scratch);
  parts.block_keys = reinterpret_cast<uint32_t*>(parts.scores + at_once * most_visible);
  parts.rows = reinterpret_cast<int32_t*>(parts.block_keys + at_once * parts.most_blocks);
  parts.counts = parts.rows + at_once * most_parts * arguments.topk;
  for (int64_t first = 0; first < q.rows; first += at_once) {
    const int64_t rows = std::min(at_once, q.rows - first);
    if (IndexScoresFit(arguments)) {
      IndexScores(stream, q, head_weights, sequences, row_sequence, first, rows, arguments, candidates, parts.scores,
                  most_visible);
    } else {
      Scores(stream, q, head_weights, sequences, row_sequence, first, rows, arguments, parts.scores, most_visible);
    }
    LaunchEarly(stream, dim3(static_cast<unsigned>(most_parts), static_cast<unsigned>(rows)), kSelectThreads,
                kPartItems * 4, SelectPartKernel, sequences, row_sequence, first, arguments, candidates, selected,
                parts);
    if (most_parts == 1) continue;
    LaunchEarly(stream, dim3(arguments.publish ? 2 : 1, static_cast<unsigned>(rows)), kSelectThreads, kListedItems * 4,
                JoinPartsKernel, sequences, row_sequence, first, arguments, candidates, selected, parts, most_parts);
  }
}

}  // namespace deepinfer::cuda
