// FP8 linear for few rows (skinny.h), and the quantisation of its activations.
#include "ops/cuda/launch.cuh"
#include "ops/cuda/row_dot.cuh"
#include "ops/cuda/skinny_block.cuh"
#include "ops/cuda/skinny_rows.cuh"

namespace deepinfer::cuda {
namespace {

__global__ void QuantiseRowsKernel(ConstFloatView x, ColumnOrder order, Bf16Rows out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t group = threadIdx.x / 32; group < x.columns / 32; group += blockDim.x / 32) {
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

struct LinearShape {
  int rows;
  int row_blocks_per_group;
  int parts;
};

template <int NT>
__global__ void __launch_bounds__(kSkinnyThreads, NT <= 2   ? 3
                                                  : NT == 4 ? 2
                                                            : 1)
    SkinnyLinearKernel(Bf16Rows x, WeightMatrix weight, LinearShape shape, FloatView out) {
  extern __shared__ __align__(128) uint8_t shared[];
  StartKernelBehind();
  const int part = static_cast<int>(blockIdx.x);  // the cluster's blocks
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int block_row = static_cast<int>(blockIdx.y) * kSkinnyRows;
  const int row = block_row + warp * kSkinnyTile;
  const int columns = static_cast<int>(weight.columns);
  const int group = static_cast<int>(blockIdx.y) / shape.row_blocks_per_group;
  const int first_token = static_cast<int>(blockIdx.z) * 8 * NT;
  const int scale_row_bytes = columns / kScaleColumns;

  const TileSource tiles[1] = {
      {weight.data + int64_t{row} * columns, weight.scale + static_cast<uint32_t>(row / 32) * scale_row_bytes}};
  const int chunks = columns / kSkinnyChunk;
  float accumulators[1][NT][4];
  StreamChunks<false, 1, NT>(
      SharedAddress(shared), tiles, static_cast<uint32_t>(columns), 0,
      [&] {
        // Rows behind the last repeat it; their results are not stored.
        return RowCopies<NT>(
            [&](int i) { return x.values + min(first_token + i, shape.rows - 1) * x.columns + group * columns; });
      },
      SkinnyFirstChunk(chunks, shape.parts, part), SkinnyFirstChunk(chunks, shape.parts, part + 1), accumulators);

  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (shape.parts == 1) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = first_token + n * 8 + lane % 4 * 2 + i % 2;
        if (token < shape.rows) {
          RowOf(out, token)[row + lane / 4 + i / 2 * 8] = accumulators[0][n][i] * kSkinnyFactor;
        }
      }
    }
    return;
  }
  const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  float* sums = reinterpret_cast<float*>(shared);  // [128][8 * NT], over the stages
  StoreTile<NT>(sums + warp * kSkinnyTile * 8 * NT, accumulators[0], lane);
  cluster.sync();
  const int share = kSkinnyRows / shape.parts;
  for (int i = static_cast<int>(threadIdx.x); i < share * 8 * NT; i += kSkinnyThreads) {
    const int r = part * share + i % share;
    const int n = i / share;
    const float sum = ClusterSum(cluster, sums + r * 8 * NT + n, shape.parts);
    if (first_token + n < shape.rows) RowOf(out, first_token + n)[block_row + r] = sum;
  }
  cluster.sync();  // nobody leaves while its sums are read
}

template <int NT>
void Launch(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WeightMatrix& weight, int groups,
            FloatView out) {
  const int row_blocks = static_cast<int>(weight.rows / kSkinnyRows);
  const int parts = SkinnyParts(row_blocks, weight.columns);
  const dim3 grid(static_cast<unsigned>(parts), static_cast<unsigned>(row_blocks), Blocks(rows, 8 * NT));
  LaunchClusters(stream, grid, parts, kSkinnyBytes<false, 1, NT>, SkinnyLinearKernel<NT>, x, weight,
                 LinearShape{static_cast<int>(rows), row_blocks / groups, parts}, out);
}

}  // namespace

void QuantiseRows(cudaStream_t stream, ConstFloatView x, ColumnOrder order, const Bf16Rows& out) {
  if (x.rows > 0) QuantiseRowsKernel<<<static_cast<unsigned>(x.rows), kThreads, 0, stream>>>(x, order, out);
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
  if (rows == 0) return;
  if (rows <= 8) return Launch<1>(stream, x, rows, weight, groups, out);
  if (rows <= 16) return Launch<2>(stream, x, rows, weight, groups, out);
  if (rows <= 32) return Launch<4>(stream, x, rows, weight, groups, out);
  return Launch<8>(stream, x, rows, weight, groups, out);
}

}  // namespace deepinfer::cuda
