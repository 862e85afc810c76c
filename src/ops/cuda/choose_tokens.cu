// Steps 1 to 4 and 6 of the choice of tokens (ops/sampling.h): a row is cut into parts of neighbouring ids, a block
// each. Maxima and ties by id do not depend on the cut.
#include "ops/cuda/choose_tokens.cuh"
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kWarps = kThreads / 32;

// For thread 0.
__device__ LogitAt BlockLargest(LogitAt largest) {
  __shared__ LogitAt of_warps[kWarps];
  for (int step = 16; step > 0; step /= 2) {
    const float logit = __shfl_down_sync(0xffffffffu, largest.logit, step);
    const int32_t id = __shfl_down_sync(0xffffffffu, largest.id, step);
    TakeLarger(largest, logit, id);
  }
  __syncthreads();  // of_warps may still be read from the call before
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int w = 0; threadIdx.x == 0 && w < kWarps; ++w) TakeLarger(largest, of_warps[w].logit, of_warps[w].id);
  return largest;
}

// Steps 1 (`barred`) to 3 for the ids begin .. end - 1 of `row`, by the whole block.
__device__ void ApplyRule(const DeviceRule& rule, const uint32_t* words, int32_t begin, int32_t end, float* row) {
  const auto for_ids = [&](const WordList& list, int width, const auto& body) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < list.count; i += kThreads) {
      const uint32_t* entry = words + list.first + i * width;
      const int32_t id = static_cast<int32_t>(entry[0]);
      if (id >= begin && id < end) body(i, id, entry);
    }
  };
  for_ids(rule.barred, 1, [&](int, int32_t id, const uint32_t*) { row[id] = -INFINITY; });
  for_ids(rule.bias, 2, [&](int i, int32_t id, const uint32_t*) {
    // An id may be listed more than once: the thread of its first entry adds all, in order.
    const uint32_t* entries = words + rule.bias.first;
    for (int j = 0; j < i; ++j) {
      if (static_cast<int32_t>(entries[2 * j]) == id) return;
    }
    float z = row[id];
    for (int j = i; j < rule.bias.count && z != -INFINITY; ++j) {
      if (static_cast<int32_t>(entries[2 * j]) != id) continue;
      z = FiniteFloat(double{z} + double{__uint_as_float(entries[2 * j + 1])});
    }
    row[id] = z;
  });
  for_ids(rule.seen, 2, [&](int, int32_t id, const uint32_t* entry) {
    if (row[id] == -INFINITY) return;
    const int32_t count = static_cast<int32_t>(entry[1]);
    double z = row[id];
    z = z > 0 ? z / rule.repetition : z * rule.repetition;
    z -= rule.frequency * count;
    if (count > 0) z -= rule.presence;
    row[id] = FiniteFloat(z);
  });
  __syncthreads();
}

__global__ void ChangeRowsKernel(SamplingRows rows) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  const DeviceRule rule = rows.rules[t];
  const int32_t begin = static_cast<int32_t>(blockIdx.y) * rows.part_ids;
  const int32_t end = min(begin + rows.part_ids, static_cast<int32_t>(rows.logits.columns));
  const float* raw = RowOf(rows.logits, t);
  float* changed = rule.changed_row < 0 ? nullptr : rows.changed + rule.changed_row * rows.logits.columns;
  LogitAt raw_largest{-INFINITY, -1};
  bool numbers = true;
#pragma unroll 4
  for (int32_t id = begin + static_cast<int32_t>(threadIdx.x); id < end; id += kThreads) {
    const float z = raw[id];
    numbers = numbers && z < INFINITY;
    if (z > raw_largest.logit) raw_largest = {z, id};
    if (changed == nullptr) continue;
    const bool allowed = rule.allowed.count == 0 || (rows.words[rule.allowed.first + id / 32] >> (id % 32) & 1u) != 0;
    changed[id] = allowed ? z : -INFINITY;
  }
  LogitAt largest = raw_largest;
  if (changed != nullptr) {
    ApplyRule(rule, rows.words, begin, end, changed);
    largest = {-INFINITY, -1};
    for (int32_t id = begin + static_cast<int32_t>(threadIdx.x); id < end; id += kThreads) {
      if (changed[id] > largest.logit) largest = {changed[id], id};
    }
  }
  RowPart part;
  part.raw = BlockLargest(raw_largest);
  part.changed = BlockLargest(largest);
  part.numbers = __syncthreads_and(numbers);
  if (threadIdx.x != 0) return;
  part.raw_of_changed = part.changed.id < 0 ? 0.0f : raw[part.changed.id];
  rows.row_parts[t * rows.parts + blockIdx.y] = part;
}

// What a thread has found so far: the ids within the slack of its best.
struct Best {
  double noisy[DrawnPart::kIds];
  LogitAt at[DrawnPart::kIds];
  int count = 0;
  double best = -INFINITY;

  __device__ void Offer(double value, float logit, int32_t id) {
    if (value < best - kNoiseSlack) return;
    if (value > best + kNoiseSlack) count = 0;
    best = fmax(best, value);
    if (count < DrawnPart::kIds) {
      noisy[count] = value;
      at[count++] = {logit, id};
    }
  }
};

__global__ void DrawKernel(SamplingRows rows) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  const DeviceRule rule = rows.rules[t];
  if (rule.temperature == 0) return;
  const LawRow row = LawRowOf(rows, t, false);
  if (row.likeliest.id < 0) return;
  const int32_t begin = static_cast<int32_t>(blockIdx.y) * rows.part_ids;
  const int32_t end = min(begin + rows.part_ids, static_cast<int32_t>(rows.logits.columns));
  const float largest = row.likeliest.logit;
  const RankCut cut = rule.filters ? rows.cuts[t] : RankCut{kLowestLogit, kLastId};
  // Near 0 the temperature has no inverse in F32: then every kept id goes through the definition.
  const float inverse = static_cast<float>(1 / rule.temperature);
  const bool bounded = inverse < INFINITY;
  Best best;
  float least = -INFINITY;
  const auto offer = [&](float z, int32_t id, uint64_t bits) {
    const double score = (double{z} - double{largest}) / rule.temperature;
    if (score >= rule.least_score) best.Offer(score + Noise(bits), z, id);
  };
  for (int32_t base = begin; base < end; base += 2 * kThreads) {
    const int32_t id = base + 2 * static_cast<int32_t>(threadIdx.x);
    const float z0 = id < end ? row.logits[id] : -INFINITY;
    const float z1 = id + 1 < end ? row.logits[id + 1] : -INFINITY;
    const float score0 = bounded ? (z0 - largest) * inverse : 0;
    const float score1 = bounded ? (z1 - largest) * inverse : 0;
    bool open0 = Keeps(cut, z0, id) && !(score0 + kMostNoise < least);
    bool open1 = Keeps(cut, z1, id + 1) && !(score1 + kMostNoise < least);
    if (!__any_sync(0xffffffffu, open0 || open1)) continue;
    const NoiseBits bits = CounterBitsOfPair(rule, static_cast<uint32_t>(id));
    open0 = open0 && !(score0 + NoiseBound(bits.even) < least);
    open1 = open1 && !(score1 + NoiseBound(bits.odd) < least);
    if (!__any_sync(0xffffffffu, open0 || open1)) continue;
    if (open0) offer(z0, id, bits.even);
    if (open1) offer(z1, id + 1, bits.odd);
    if (!bounded) continue;
    float of_warp = static_cast<float>(best.best);
    for (int step = 16; step > 0; step /= 2) of_warp = fmaxf(of_warp, __shfl_xor_sync(0xffffffffu, of_warp, step));
    least = of_warp - kBoundSlack;
  }

  __shared__ double of_warps[kWarps];
  __shared__ int count;
  double largest_sum = best.best;
  for (int step = 16; step > 0; step /= 2) {
    largest_sum = fmax(largest_sum, __shfl_xor_sync(0xffffffffu, largest_sum, step));
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = largest_sum;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) largest_sum = fmax(largest_sum, of_warps[w]);
  DrawnPart& drawn = rows.drawn[t * rows.parts + blockIdx.y];
  for (int i = 0; i < best.count; ++i) {
    if (best.noisy[i] < largest_sum - kNoiseSlack) continue;
    const int at = atomicAdd(&count, 1);
    if (at >= DrawnPart::kIds) break;
    drawn.noisy[at] = best.noisy[i];
    drawn.changed[at] = best.at[i];
    drawn.raw[at] = RowOf(rows.logits, t)[best.at[i].id];
  }
  __syncthreads();
  if (threadIdx.x == 0) drawn.count = min(count, DrawnPart::kIds);
}

dim3 Grid(const SamplingRows& rows) {
  return dim3(static_cast<unsigned>(rows.logits.rows), static_cast<unsigned>(rows.parts));
}

}  // namespace

void ChangeRows(cudaStream_t stream, const SamplingRows& rows) {
  LaunchEarly(stream, Grid(rows), kThreads, 0, ChangeRowsKernel, rows);
}

void DrawTokens(cudaStream_t stream, const SamplingRows& rows) {
  LaunchEarly(stream, Grid(rows), kThreads, 0, DrawKernel, rows);
}

}  // namespace deepinfer::cuda
