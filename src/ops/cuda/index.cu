// Index scores and the two-level top-k (spec c.6).
//
// Scores: half a warp a key, the canonical product of each head, heads added in ascending order, to the bit of the
// reference. Selection: one block a row finds the k-th largest score by four passes over eight bits each of its
// order-preserving integer, then lists what lies above it and the earliest of what equals it, ascending.
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"
#include "ops/dot_order.h"

namespace deepinfer::cuda {
namespace {

constexpr int kKeysPerBlock = 64;
constexpr int kSelectThreads = 512;
constexpr int kDigits = 256;

__device__ __forceinline__ int64_t VisibleRows(const DeviceIndexSequence& sequence, int64_t t, int ratio) {
  return (sequence.first_position + (t - sequence.first_row) + 1) / ratio;
}

__global__ void ScoreKernel(ConstFloatView q, ConstFloatView head_weights, const DeviceIndexSequence* sequences,
                            const int32_t* row_sequence, int64_t first_row, IndexArguments arguments, float* scores,
                            int64_t most_visible) {
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

  const int lane = static_cast<int>(threadIdx.x) % kDotLanes;
  const unsigned half_mask = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  for (int64_t j = first_key + threadIdx.x / kDotLanes; j < first_key + kKeysPerBlock && j < visible;
       j += kThreads / kDotLanes) {
    const uint8_t* values = RowValues(sequence.keys, j);
    const uint8_t* scales = RowScales(sequence.keys, j);
    float score = 0;
    for (int head = 0; head < arguments.heads; ++head) {
      float accumulator = 0;
      for (int chunk = 0; chunk < width; chunk += kDotChunk) {
        float partial = 0;
        constexpr int kOrder[kDotLaneColumns] = {4, 0, 5, 1, 6, 2, 7, 3};
#pragma unroll
        for (int i = 0; i < kDotLaneColumns; ++i) {
          const int c = chunk + lane * kDotLaneColumns + kOrder[i];
          if (c < width) {
            partial = fmaf(UnpackChannel(RowFormat::kIndexFp4, values, scales, c), query[head * width + c], partial);
          }
        }
        accumulator += partial;
      }
      for (int half = kDotLanes / 2; half > 0; half /= 2) {
        accumulator += __shfl_xor_sync(half_mask, accumulator, half, kDotLanes);
      }
      score += RowOf(head_weights, t)[head] * fmaxf(accumulator, 0.0f);
    }
    if (lane == 0) scores[blockIdx.y * most_visible + j] = score;
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
    if (threadIdx.x == 0) {
      uint32_t wanted = shared.wanted;
      int digit = kDigits - 1;
      for (; digit > 0 && shared.histogram[digit] < wanted; --digit) wanted -= shared.histogram[digit];
      // Fewer items than k: the lowest digit, and all of its items.
      shared.wanted = min(wanted, shared.histogram[digit]);
      shared.prefix = prefix | static_cast<uint32_t>(digit) << shift;
    }
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

}  // namespace

void SelectRows(cudaStream_t stream, ConstFloatView q, ConstFloatView head_weights,
                const DeviceIndexSequence* sequences, const int32_t* row_sequence, int64_t first_row, int64_t rows,
                const IndexArguments& arguments, const DeviceLists& candidates, const DeviceLists& selected,
                float* scores, int64_t most_visible, float* block_scores) {
  if (rows == 0) return;
  if (most_visible > 0) {
    const dim3 grid(Blocks(most_visible, kKeysPerBlock), static_cast<unsigned>(rows));
    const size_t bytes = static_cast<size_t>(arguments.heads * arguments.head_width) * 4;
    ScoreKernel<<<grid, kThreads, bytes, stream>>>(q, head_weights, sequences, row_sequence, first_row, arguments,
                                                   scores, most_visible);
  }
  SelectKernel<<<static_cast<unsigned>(rows), kSelectThreads, 0, stream>>>(
      sequences, row_sequence, first_row, arguments, candidates, selected, scores, most_visible, block_scores);
}

}  // namespace deepinfer::cuda
