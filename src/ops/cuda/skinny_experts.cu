// Grouped FP4 experts for few rows an expert (skinny.h): gate and up with their product, then down.
#include "ops/cuda/direct_experts.h"
#include "ops/cuda/experts_plan.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/skinny_bulk.cuh"
#include "ops/cuda/skinny_rows.cuh"

namespace deepinfer::cuda {
namespace {

// Clusters of blocks that share the columns.
constexpr int kGateUpParts = kColumnParts;
constexpr int kDownParts = kColumnParts;
constexpr int kDownRows = 2 * kSkinnyRows;  // two tiles a warp

constexpr int ExpertBlocks(int row_tiles) { return row_tiles <= 2 ? 2 : 1; }  // on an SM, bulk
constexpr int ExpertThreads(bool bulk) { return bulk ? kBulkThreads : kSkinnyThreads; }

struct NoStream {
  __device__ __forceinline__ NoStream(uint32_t, int, int) {}
};
template <bool bulk, int NT>
using StreamOf = std::conditional_t<bulk, BulkStream<NT>, NoStream>;

// 128 hidden channels of one expert; a warp's tiles are 16 rows of w1 and the same of w3.
template <bool bulk, int NT>
__global__ void __launch_bounds__(ExpertThreads(bulk), bulk      ? ExpertBlocks(NT)
                                                       : NT == 1 ? 3
                                                                 : 1)
    GateUpKernel(ExpertsPlan plan, Bf16Rows x, Bf16Rows hidden, const __grid_constant__ SpaceMap space, int stages) {
  extern __shared__ __align__(128) uint8_t shared[];
  WaitForKernelAhead();  // the routing may be its work; the weights' addresses hang on it
  StartKernelBehind();   // only now: DownKernel reads the routing before it waits
  const int32_t id = ActiveExpert(plan);
  if (id < 0) return;  // the whole cluster
  const int part = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int block_row = static_cast<int>(blockIdx.y) * kSkinnyRows;
  const int64_t row = block_row + warp * kSkinnyTile;
  const Assignment rows = AssignmentOf(plan, id);
  const uint32_t row_bytes = static_cast<uint32_t>(plan.columns / 2);
  const uint32_t scale_row_bytes = static_cast<uint32_t>(plan.columns / kScaleColumns);
  const DeviceExpert& expert = plan.experts[id];
  const int chunks = static_cast<int>(plan.columns) / kSkinnyChunk;
  const int first_chunk = SkinnyFirstChunk(chunks, kGateUpParts, part);
  const int last_chunk = SkinnyFirstChunk(chunks, kGateUpParts, part + 1);
  const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  float* sums = reinterpret_cast<float*>(shared);  // [2][128][8 * NT], over the stages
  constexpr int kMatrixFloats = kSkinnyRows * 8 * NT;
  [[maybe_unused]] StreamOf<bulk, NT> stream(SharedAddress(shared), stages, static_cast<int>(plan.columns));

  for (int first = 0; first < rows.count; first += 8 * NT) {
    const auto row_of = [&](int i) {
      return x.values + rows.order[min(first + i, rows.count - 1)] / plan.per_token * x.columns;
    };
    float accumulators[2][NT][4];
    if constexpr (bulk) {
      const BoxSource boxes[2] = {
          BoxIn(space, expert.w1, block_row, row_bytes, expert.w1_scale + int64_t{block_row} * scale_row_bytes),
          BoxIn(space, expert.w3, block_row, row_bytes, expert.w3_scale + int64_t{block_row} * scale_row_bytes)};
      stream.Run(
          boxes, [&] { return BulkRows<NT>(row_of, rows.count - first); }, first_chunk, last_chunk, accumulators);
    } else {
      const TileSource tiles[2] = {{expert.w1 + row * row_bytes, expert.w1_scale + row * scale_row_bytes},
                                   {expert.w3 + row * row_bytes, expert.w3_scale + row * scale_row_bytes}};
      StreamChunks<NT>(
          SharedAddress(shared), tiles, row_bytes, scale_row_bytes, [&] { return RowCopies<NT>(row_of); }, first_chunk,
          last_chunk, accumulators);
    }
    if (warp < kSkinnyWarps) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        StoreTile<NT>(sums + m * kMatrixFloats + warp * kSkinnyTile * 8 * NT, accumulators[m], lane);
      }
    }
    __syncwarp();
    cluster.sync();
    // A warp a row and 32 channels, a group of the quantisation; this block has its share of the 128.
    constexpr int kGroups = kSkinnyRows / 32 / kGateUpParts;
    for (int i = warp; i < 8 * NT * kGroups; i += ExpertThreads(bulk) / 32) {
      const int n = i / kGroups;
      if (first + n >= rows.count) break;
      const int group = part * kGroups + i % kGroups;
      float* at = sums + (group * 32 + lane) * 8 * NT + n;
      const float gate = ClusterSum(cluster, at, kGateUpParts);
      const float up = ClusterSum(cluster, at + kMatrixFloats, kGateUpParts);
      const int64_t slot = rows.order[first + n];
      StoreGroup(JoinGateUp(plan, gate, up, slot), ColumnOrder::kFp4, hidden.values + slot * plan.inner,
                 block_row + group * 32 + lane);
    }
    if (bulk) FenceSharedForAsync();
    __syncwarp();
    cluster.sync();  // the sums lie where the next rows are streamed
  }
}

// 256 outputs of one expert; a warp's tiles are 16 rows of either half.
template <bool bulk, int NT>
__global__ void __launch_bounds__(ExpertThreads(bulk), bulk      ? ExpertBlocks(NT)
                                                       : NT == 1 ? 2
                                                                 : 1)
    DownKernel(ExpertsPlan plan, Bf16Rows hidden, FloatView outputs, const __grid_constant__ SpaceMap space,
               int stages) {
  extern __shared__ __align__(128) uint8_t shared[];
  StartKernelBehind();
  // GateUpKernel, the kernel ahead, has waited for the one that made the routing, or for one behind that.
  const int32_t id = ActiveExpert(plan);
  if (id < 0) return WaitForKernelAhead();  // the whole cluster
  const int part = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int block_row = static_cast<int>(blockIdx.y) * kDownRows;
  const Assignment rows = AssignmentOf(plan, id);
  const uint32_t row_bytes = static_cast<uint32_t>(plan.inner / 2);
  const uint32_t scale_row_bytes = static_cast<uint32_t>(plan.inner / kScaleColumns);
  const uint8_t* w2 = LoadPointer(&plan.experts[id].w2);
  const uint8_t* w2_scale = LoadPointer(&plan.experts[id].w2_scale);
  const int chunks = static_cast<int>(plan.inner) / kSkinnyChunk;
  const int first_chunk = SkinnyFirstChunk(chunks, kDownParts, part);
  const int last_chunk = SkinnyFirstChunk(chunks, kDownParts, part + 1);
  const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  float* sums = reinterpret_cast<float*>(shared);  // [256][8 * NT]
  [[maybe_unused]] StreamOf<bulk, NT> stream(SharedAddress(shared), stages, static_cast<int>(plan.inner));

  for (int first = 0; first < rows.count; first += 8 * NT) {
    const auto row_of = [&](int i) {
      return hidden.values + rows.order[min(first + i, rows.count - 1)] * hidden.columns;
    };
    float accumulators[2][NT][4];
    if constexpr (bulk) {
      BoxSource boxes[2];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int64_t row = block_row + m * kBoxRows;
        boxes[m] = BoxIn(space, w2, row, row_bytes, w2_scale + row * scale_row_bytes);
      }
      stream.Run(
          boxes, [&] { return BulkRows<NT>(row_of, rows.count - first); }, first_chunk, last_chunk, accumulators);
    } else {
      TileSource tiles[2];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int64_t row = block_row + m * kSkinnyRows + warp * kSkinnyTile;
        tiles[m] = {w2 + row * row_bytes, w2_scale + row * scale_row_bytes};
      }
      StreamChunks<NT>(
          SharedAddress(shared), tiles, row_bytes, scale_row_bytes, [&] { return RowCopies<NT>(row_of); }, first_chunk,
          last_chunk, accumulators);
    }
    if (warp < kSkinnyWarps) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        StoreTile<NT>(sums + (m * kSkinnyRows + warp * kSkinnyTile) * 8 * NT, accumulators[m], lane);
      }
    }
    __syncwarp();
    cluster.sync();
    constexpr int kShare = kDownRows / kDownParts;
    for (int i = static_cast<int>(threadIdx.x); i < kShare * 8 * NT; i += ExpertThreads(bulk)) {
      const int r = part * kShare + i % kShare;
      const int n = i / kShare;
      if (first + n >= rows.count) break;
      RowOf(outputs, rows.order[first + n])[block_row + r] = ClusterSum(cluster, sums + r * 8 * NT + n, kDownParts);
    }
    if (bulk) FenceSharedForAsync();
    __syncwarp();
    cluster.sync();
  }
}

// The map reaches 2^30 rows each way, which is more than the memory of a GPU unless rows are very short.
bool TakesBulk(const ExpertsPlan& plan) {
  if (feed_choice.feed != SkinnyFeed::kAuto) return feed_choice.feed == SkinnyFeed::kBulk;
  return plan.most_rows > 8 && plan.columns >= 512 && plan.inner >= 512;
}

template <bool bulk, int NT>
void LaunchFed(cudaStream_t stream, const ExpertsPlan& plan, const Bf16Rows& x, const Bf16Rows& hidden, FloatView parts,
               const SpaceMap (&spaces)[2], const BulkSize (&sizes)[2]) {
  const unsigned active = static_cast<unsigned>(plan.active_count);
  LaunchClusters(stream, dim3(kGateUpParts, Blocks(plan.inner, kSkinnyRows), active), kGateUpParts, ExpertThreads(bulk),
                 sizes[0].bytes, GateUpKernel<bulk, NT>, plan, x, hidden, spaces[0], sizes[0].stages);
  LaunchClusters(stream, dim3(kDownParts, Blocks(parts.columns, kDownRows), active), kDownParts, ExpertThreads(bulk),
                 sizes[1].bytes, DownKernel<bulk, NT>, plan, hidden, parts, spaces[1], sizes[1].stages);
}

template <int NT>
void Launch(cudaStream_t stream, const ExpertsPlan& plan, const Bf16Rows& x, const Bf16Rows& hidden, FloatView parts) {
  SpaceMap spaces[2] = {};
  if (TakesBulk(plan)) {
    const BulkSize sizes[2] = {
        SizeOfBulk<NT>(plan.columns, ExpertBlocks(NT), static_cast<int>(Blocks(plan.columns, kSkinnyChunk * 2))),
        SizeOfBulk<NT>(plan.inner, ExpertBlocks(NT), static_cast<int>(Blocks(plan.inner, kSkinnyChunk * 2)))};
    if (sizes[0].stages > 0 && sizes[1].stages > 0 && MakeBoxMap(plan.experts, plan.columns / 2, &spaces[0]) &&
        MakeBoxMap(plan.experts, plan.inner / 2, &spaces[1])) {
      ++feed_choice.bulk_launches;
      return LaunchFed<true, NT>(stream, plan, x, hidden, parts, spaces, sizes);
    }
  }
  constexpr int kBytes = kSkinnyBytes<NT>;
  static_assert(kBytes >= 2 * kSkinnyRows * 8 * NT * 4, "the sums lie over the stages");
  static_assert(2 * kBulkStageBytes<NT> >= 2 * kSkinnyRows * 8 * NT * 4);
  LaunchFed<false, NT>(stream, plan, x, hidden, parts, spaces, {{0, kBytes}, {0, kBytes}});
}

}  // namespace

bool SkinnyExpertsFit(const WeightMatrix& w1, const WeightMatrix& w2) {
  return w1.format == WeightFormat::kF4Row32 && w2.format == WeightFormat::kF4Row32 && w1.columns % kSkinnyChunk == 0 &&
         w2.columns % kSkinnyChunk == 0 && w1.rows % kSkinnyRows == 0 && w2.rows % kDownRows == 0;
}

void SkinnyExperts(cudaStream_t stream, const ExpertsPlan& plan, const Bf16Rows& x, const Bf16Rows& hidden,
                   FloatView parts) {
  if (plan.active_count == 0) return;
  const bool direct = feed_choice.feed == SkinnyFeed::kDirect ||
                      (feed_choice.feed == SkinnyFeed::kAuto && plan.most_rows <= kMostPlainRows);
  if (direct && DirectExperts(stream, plan, x, hidden, parts)) return;
  if (plan.most_rows <= 8) return Launch<1>(stream, plan, x, hidden, parts);
  if (plan.most_rows <= 16) return Launch<2>(stream, plan, x, hidden, parts);
  Launch<4>(stream, plan, x, hidden, parts);
}

void UseSkinnyFeed(SkinnyFeed feed, int stages) {
  feed_choice.feed = feed;
  feed_choice.stages = stages;
}

int64_t BulkSkinnyLaunches() { return feed_choice.bulk_launches; }

}  // namespace deepinfer::cuda
