// FP8 linear for few rows (skinny.h), and the quantisation of its activations.
#include <climits>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/row_dot.cuh"
#include "ops/cuda/skinny_bulk.cuh"
#include "ops/cuda/skinny_rows.cuh"

namespace deepinfer::cuda {
namespace {

__global__ void QuantiseRowsKernel(ConstFloatView x, ColumnOrder order, Bf16Rows out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t group = OwnColumn() / 32; group < x.columns / 32; group += ColumnStep() / 32) {
    const float value = RowOf(x, blockIdx.x)[group * 32 + lane];
    StoreGroup(value, order, out.values + blockIdx.x * out.columns + group * 32, lane);
  }
}

__global__ void RmsNormQuantiseKernel(ConstFloatView x, WeightVector weight, float eps, ColumnOrder order, Bf16Rows out,
                                      FloatView normed) {
  extern __shared__ float partials[];
  const float* row = RowOf(x, blockIdx.x);
  const auto value = [row](int64_t c) { return row[c]; };
  const float mean = BlockCanonicalDot(x.columns, partials, value, value) / static_cast<float>(x.columns);
  const float inverse = 1.0f / sqrtf(mean + eps);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t group = threadIdx.x / 32; group < x.columns / 32; group += blockDim.x / 32) {
    const int64_t c = group * 32 + lane;
    const float result = LoadVector(weight, c) * (row[c] * inverse);
    if (normed.data != nullptr) RowOf(normed, blockIdx.x)[c] = result;
    StoreGroup(result, order, out.values + blockIdx.x * out.columns + group * 32, lane);
  }
}

// The products of a launch; a block looks up which one is its own.
struct LinearSet {
  CUtensorMap maps[kMostSkinnyProducts];  // for bulk
  SkinnyProduct products[kMostSkinnyProducts];
  int first_blocks[kMostSkinnyProducts];  // of rows; none: far behind
  int rows;
  int row_blocks_per_group;
  int parts;
  int stages;
};

template <bool bulk, int NT>
__global__ void __launch_bounds__(bulk ? kBulkThreads : kSkinnyThreads, NT <= 2   ? 3
                                                                        : NT == 4 ? 2
                                                                                  : 1)
    SkinnyLinearKernel(Bf16Rows x, const __grid_constant__ LinearSet set) {
  extern __shared__ __align__(1024) uint8_t shared[];
  StartKernelBehind();
  int index = 0;
#pragma unroll
  for (int i = 1; i < kMostSkinnyProducts; ++i) index += static_cast<int>(blockIdx.y) >= set.first_blocks[i];
  const WeightMatrix& weight = set.products[index].weight;
  const FloatView& out = set.products[index].out;
  const int row_block = static_cast<int>(blockIdx.y) - set.first_blocks[index];
  const int part = static_cast<int>(blockIdx.x);  // the cluster's blocks
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int block_row = row_block * kSkinnyRows;
  const int row = block_row + warp * kSkinnyTile;
  const int columns = static_cast<int>(weight.columns);
  const int group = row_block / set.row_blocks_per_group;
  const int first_token = static_cast<int>(blockIdx.z) * 8 * NT;
  const int scale_row_bytes = columns / kScaleColumns;
  const int chunks = columns / kSkinnyChunk;
  const int first_chunk = SkinnyFirstChunk(chunks, set.parts, part);
  const int last_chunk = SkinnyFirstChunk(chunks, set.parts, part + 1);
  // Rows behind the last repeat it; their results are not stored.
  const auto row_of = [&](int i) {
    return x.values + min(first_token + i, set.rows - 1) * x.columns + group * columns;
  };

  float accumulators[1][NT][4];
  if constexpr (bulk) {
    if (threadIdx.x == kSkinnyThreads) PrefetchMap(&set.maps[index]);
    BulkStream<false, 1, NT> stream(SharedAddress(shared), set.stages, columns);
    const BoxSource boxes[1] = {
        {&set.maps[index], 0, block_row, weight.scale + static_cast<uint32_t>(block_row / 32) * scale_row_bytes}};
    stream.Run(
        boxes, [&] { return BulkRows<NT>(row_of, set.rows - first_token); }, first_chunk, last_chunk, accumulators);
  } else {
    const TileSource tiles[1] = {
        {weight.data + int64_t{row} * columns, weight.scale + static_cast<uint32_t>(row / 32) * scale_row_bytes}};
    StreamChunks<false, 1, NT>(
        SharedAddress(shared), tiles, static_cast<uint32_t>(columns), 0, [&] { return RowCopies<NT>(row_of); },
        first_chunk, last_chunk, accumulators);
  }

  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (set.parts == 1) {
    if (warp == kSkinnyWarps) return;
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = first_token + n * 8 + lane % 4 * 2 + i % 2;
        if (token < set.rows) {
          RowOf(out, token)[row + lane / 4 + i / 2 * 8] = accumulators[0][n][i] * kSkinnyFactor;
        }
      }
    }
    return;
  }
  const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  float* sums = reinterpret_cast<float*>(shared);  // [128][8 * NT], over the stages
  if (warp < kSkinnyWarps) StoreTile<NT>(sums + warp * kSkinnyTile * 8 * NT, accumulators[0], lane);
  __syncwarp();
  cluster.sync();
  const int share = kSkinnyRows / set.parts;
  for (int i = static_cast<int>(threadIdx.x); i < share * 8 * NT; i += static_cast<int>(blockDim.x)) {
    const int r = part * share + i % share;
    const int n = i / share;
    if (first_token + n >= set.rows) break;
    RowOf(out, first_token + n)[block_row + r] = ClusterSum(cluster, sums + r * 8 * NT + n, set.parts);
  }
  __syncwarp();
  cluster.sync();  // nobody leaves while its sums are read
}

template <int NT>
void Launch(cudaStream_t stream, const Bf16Rows& x, LinearSet& set, int count, int row_blocks) {
  const dim3 grid(static_cast<unsigned>(set.parts), static_cast<unsigned>(row_blocks), Blocks(set.rows, 8 * NT));
  if (feed_choice.feed == SkinnyFeed::kBulk) {
    constexpr unsigned kSms = 132, kMostBlocks = NT == 1 ? 3 : NT <= 4 ? 2 : 1;  // of an SM
    const int blocks = static_cast<int>(std::min(kMostBlocks, Blocks(grid.x * grid.y * grid.z, kSms)));
    const int64_t columns = set.products[0].weight.columns;
    const BulkSize size = SizeOfBulk<false, 1, NT>(
        columns, blocks, static_cast<int>(Blocks(columns / kSkinnyChunk, static_cast<int64_t>(set.parts))));
    bool fits = size.stages > 0;
    for (int i = 0; i < count && fits; ++i) {
      const WeightMatrix& weight = set.products[i].weight;
      fits = reinterpret_cast<uintptr_t>(weight.scale) % 16 == 0 &&
             MakeTensorMap(CU_TENSOR_MAP_DATA_TYPE_UINT8, weight.data, weight.rows, columns, columns, kBoxRows,
                           kSkinnyChunk, BoxLayout<false>::kSwizzle, &set.maps[i]);
    }
    if (fits) {
      set.stages = size.stages;
      ++feed_choice.bulk_launches;
      return LaunchClusters(stream, grid, set.parts, kBulkThreads, size.bytes, SkinnyLinearKernel<true, NT>, x, set);
    }
  }
  LaunchClusters(stream, grid, set.parts, kSkinnyThreads, kSkinnyBytes<false, 1, NT>, SkinnyLinearKernel<false, NT>, x,
                 set);
}

// Products 0 .. count - 1, all cut into `parts`.
void LaunchSet(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const SkinnyProduct* products, int count,
               int parts, int groups) {
  LinearSet set = {};
  int row_blocks = 0;
  for (int i = 0; i < kMostSkinnyProducts; ++i) {
    set.first_blocks[i] = i < count ? row_blocks : INT_MAX;
    if (i >= count) continue;
    set.products[i] = products[i];
    row_blocks += static_cast<int>(products[i].weight.rows / kSkinnyRows);
  }
  set.rows = static_cast<int>(rows);
  set.row_blocks_per_group = row_blocks / groups;
  set.parts = parts;
  if (rows <= 8) return Launch<1>(stream, x, set, count, row_blocks);
  if (rows <= 16) return Launch<2>(stream, x, set, count, row_blocks);
  if (rows <= 32) return Launch<4>(stream, x, set, count, row_blocks);
  Launch<8>(stream, x, set, count, row_blocks);
}

int PartsOf(const WeightMatrix& weight) { return SkinnyParts(weight.rows / kSkinnyRows, weight.columns); }

}  // namespace

void QuantiseRows(cudaStream_t stream, ConstFloatView x, ColumnOrder order, const Bf16Rows& out) {
  if (x.rows > 0) QuantiseRowsKernel<<<ColumnGrid(x.rows, x.columns), kThreads, 0, stream>>>(x, order, out);
}

void RmsNormQuantise(cudaStream_t stream, ConstFloatView x, const WeightVector& weight, float eps, ColumnOrder order,
                     const Bf16Rows& out, FloatView normed) {
  if (x.rows == 0) return;
  RmsNormQuantiseKernel<<<static_cast<unsigned>(x.rows), kThreads, RowDotBytes(x.columns), stream>>>(
      x, weight, eps, order, out, normed);
}

bool SkinnyFits(const WeightMatrix& weight, int groups) {
  return weight.format == WeightFormat::kF8Block32 && weight.columns % kSkinnyChunk == 0 &&
         weight.rows / groups % kSkinnyRows == 0;
}

void SkinnyLinear(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WeightMatrix& weight, int groups,
                  FloatView out) {
  const SkinnyProduct product = {weight, out};
  if (rows > 0) LaunchSet(stream, x, rows, &product, 1, PartsOf(weight), groups);
}

void SkinnyLinears(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const SkinnyProducts& products, int count) {
  if (rows == 0) return;
  for (int first = 0, last = 0; first < count; first = last) {
    const int parts = PartsOf(products[static_cast<size_t>(first)].weight);
    while (last < count && PartsOf(products[static_cast<size_t>(last)].weight) == parts) ++last;
    LaunchSet(stream, x, rows, products.data() + first, last - first, parts, 1);
  }
}

void UseSkinnyFeed(SkinnyFeed feed, int stages) {
  feed_choice.feed = feed_choice.experts = feed;
  feed_choice.stages = stages;
}

int64_t BulkSkinnyLaunches() { return feed_choice.bulk_launches; }

}  // namespace deepinfer::cuda
