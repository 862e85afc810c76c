// Slots sorted by expert on the device (experts.h): one block, each warp a stretch of slots with counts of its own, so
// that slots of an expert ascend without an order of atomics.
#include <algorithm>

#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/experts.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kMostExperts = 512;
constexpr int kMostThreads = 1024;
constexpr unsigned kAllLanes = 0xffffffffu;

int SortThreads(int64_t slots) { return slots <= 2 * kMostExperts ? kMostExperts : kMostThreads; }
int SortWarps(int64_t slots) { return static_cast<int>(std::min<int64_t>(SortThreads(slots) / 32, (slots + 31) / 32)); }

// Three sums in one number: slots, experts with a slot, tiles.
__device__ __forceinline__ uint64_t PackCounts(int count, int tiles) {
  return static_cast<uint64_t>(count) | static_cast<uint64_t>(count > 0) << 24 | static_cast<uint64_t>(tiles) << 40;
}
__device__ __forceinline__ int SlotsOf(uint64_t packed) { return static_cast<int>(packed & 0xffffffu); }
__device__ __forceinline__ int ActiveOf(uint64_t packed) { return static_cast<int>(packed >> 24 & 0xffffu); }
__device__ __forceinline__ int TilesOf(uint64_t packed) { return static_cast<int>(packed >> 40); }

// Sums over the threads before this one, and over all. By the whole block.
__device__ __forceinline__ void BlockSums(uint64_t own, uint64_t& before, uint64_t& all) {
  __shared__ uint64_t totals[kMostThreads / 32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  uint64_t inclusive = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, inclusive, step);
    if (lane >= step) inclusive += other;
  }
  if (lane == 31) totals[warp] = inclusive;
  __syncthreads();
  before = inclusive - own;
  all = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) {
    if (w < warp) before += totals[w];
    all += totals[w];
  }
}

// next: [warps][E] in shared memory. By the whole block, which has at least E threads.
__device__ void SortSlots(const TensorView<const int32_t>& picks, const ConstFloatView& weights,
                          const DeviceRouting& out, int warps, int32_t* next) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int experts = static_cast<int>(out.experts);
  const int slots = static_cast<int>(out.slots());
  const int stretch = ((slots + 31) / 32 + warps - 1) / warps * 32;
  const int begin = warp < warps ? min(slots, warp * stretch) : slots;
  const int end = warp < warps ? min(slots, begin + stretch) : slots;
  const auto pick = [&](int slot) { return RowOf(picks, slot / out.per_token)[slot % out.per_token]; };

  for (int i = thread; i < warps * experts; i += static_cast<int>(blockDim.x)) next[i] = 0;
  __syncthreads();
  int32_t* mine = next + warp * experts;
  for (int slot = begin + lane; slot < end; slot += 32) atomicAdd(mine + pick(slot), 1);
  __syncthreads();

  int count = 0;
  if (thread < experts) {
    for (int w = 0; w < warps; ++w) {
      const int before = next[w * experts + thread];
      next[w * experts + thread] = count;
      count += before;
    }
  }
  const int tiles = (count + kWideTileRows - 1) / kWideTileRows;
  uint64_t before, all;
  BlockSums(PackCounts(count, tiles), before, all);
  if (thread < experts) {
    const int first = SlotsOf(before);
    for (int w = 0; w < warps; ++w) next[w * experts + thread] += first;
    out.offsets[thread] = first;
    if (thread == experts - 1) out.offsets[experts] = first + count;
    if (count > 0) out.active[ActiveOf(before)] = thread;
    for (int i = 0; i < tiles; ++i) out.tiles[TilesOf(before) + i] = {thread, i * kWideTileRows};
  }
  for (int i = ActiveOf(all) + thread; i < out.active_count; i += static_cast<int>(blockDim.x)) out.active[i] = -1;
  for (int i = TilesOf(all) + thread; i < out.tile_count; i += static_cast<int>(blockDim.x)) out.tiles[i] = {-1, 0};
  __syncthreads();

  // 32 slots at a time; those after them are on their way meanwhile.
  const auto load = [&](int slot, int& expert, float& weight) {
    expert = slot < end ? pick(slot) : -1;
    weight = slot < end ? RowOf(weights, slot / out.per_token)[slot % out.per_token] : 0.0f;
  };
  int expert;
  float weight;
  load(begin + lane, expert, weight);
  for (int slot = begin + lane; slot - lane < end; slot += 32) {
    int expert_after;
    float weight_after;
    load(slot + 32, expert_after, weight_after);
    const unsigned peers = __match_any_sync(kAllLanes, expert);
    const int rank = __popc(peers & ((1u << lane) - 1));
    const int place = expert >= 0 ? mine[expert] + rank : 0;
    __syncwarp();
    if (expert >= 0) {
      if (rank == 0) mine[expert] += __popc(peers);
      out.order[place] = slot;
      out.places[slot] = place;
      out.weights[slot] = weight;
      out.placed_weights[place] = weight;
    }
    __syncwarp();
    expert = expert_after;
    weight = weight_after;
  }
}

__global__ void __launch_bounds__(kMostThreads)
    SortKernel(TensorView<const int32_t> picks, ConstFloatView weights, DeviceRouting out, int warps) {
  extern __shared__ int32_t next[];
  WaitForKernelAhead();
  StartKernelBehind();
  SortSlots(picks, weights, out, warps, next);
}

}  // namespace

void SortByExpert(cudaStream_t stream, TensorView<const int32_t> picks, ConstFloatView weights,
                  const DeviceRouting& routing) {
  if (routing.slots() == 0) return;
  const int warps = SortWarps(routing.slots());
  LaunchEarly(stream, dim3(1), SortThreads(routing.slots()), warps * static_cast<int>(routing.experts) * 4, SortKernel,
              picks, weights, routing, warps);
}

}  // namespace deepinfer::cuda
