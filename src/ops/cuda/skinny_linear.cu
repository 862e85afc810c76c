// FP8 linear for few rows (skinny.h), and the quantisation of its activations.
#include "ops/cuda/launch.cuh"
#include "ops/cuda/row_dot.cuh"
#include "ops/cuda/skinny_block.cuh"

namespace deepinfer::cuda {
namespace {

// A warp quantises groups of 32 columns of one row.
__device__ void QuantiseGroup(float value, const Fp8Rows& out, int64_t row, int64_t group, int lane) {
  const uint8_t byte = Fp8ScaleByte(GroupMaximum(fabsf(value), 32));
  out.codes[row * out.columns + group * 32 + lane] = FloatToE4m3(value * E8m0ToFloat(static_cast<uint8_t>(254 - byte)));
  if (lane == 0) out.scales[row * (out.columns / 32) + group] = byte;
}

__global__ void QuantiseRowsKernel(ConstFloatView x, Fp8Rows out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t group = threadIdx.x / 32; group < x.columns / 32; group += blockDim.x / 32) {
    QuantiseGroup(RowOf(x, blockIdx.x)[group * 32 + lane], out, blockIdx.x, group, lane);
  }
}

__global__ void RmsNormQuantiseKernel(ConstFloatView x, WeightVector weight, float eps, Fp8Rows out, FloatView normed) {
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
    QuantiseGroup(result, out, blockIdx.x, group, lane);
  }
}

// Two or three blocks on an SM; from 64 rows on registers allow one.
template <int NT>
__global__ void __launch_bounds__(kSkinnyThreads, NT == 1   ? 3
                                                  : NT <= 4 ? 2
                                                            : 1)
    SkinnyLinearKernel(Fp8Rows x, int rows, WeightMatrix weight, int64_t outputs_per_group, FloatView out) {
  extern __shared__ __align__(128) uint8_t shared[];
  cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  const int parts = static_cast<int>(cluster.num_blocks());
  const int part = static_cast<int>(cluster.block_rank());
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t block_row = blockIdx.x / static_cast<unsigned>(parts) * int64_t{kSkinnyRows};
  const int64_t row = block_row + warp * kSkinnyTile;
  const int64_t columns = weight.columns;
  const int64_t group = block_row / outputs_per_group;
  const int first_token = static_cast<int>(blockIdx.y) * 8 * NT;

  // Rows behind the last repeat it; their results are not stored.
  const auto token = [&](int i) { return int64_t{min(first_token + i, rows - 1)}; };
  const RowCopies<NT> copies([&](int i) { return x.codes + token(i) * x.columns + group * columns; },
                             [&](int i) { return x.scales + (token(i) * x.columns + group * columns) / 32; });
  const TileSource tiles[1] = {{weight.data + row * columns, weight.scale + row / 32 * (columns / 32)}};
  const int64_t chunks = columns / kSkinnyChunk;
  float accumulators[1][NT][4];
  StreamChunks<false, 1, NT>(SharedAddress(shared), tiles, columns, 0, copies, SkinnyFirstChunk(chunks, parts, part),
                             SkinnyFirstChunk(chunks, parts, part + 1), accumulators);

  float* sums = reinterpret_cast<float*>(shared);  // [128][8 * NT], over the stages
  StoreTile<NT>(sums + warp * kSkinnyTile * 8 * NT, accumulators[0], 1.0f, static_cast<int>(threadIdx.x) % 32);
  cluster.sync();
  const int share = kSkinnyRows / parts;
  for (int i = static_cast<int>(threadIdx.x); i < share * 8 * NT; i += kSkinnyThreads) {
    const int r = part * share + i % share;
    const int n = i / share;
    const float sum = ClusterSum(cluster, sums + r * 8 * NT + n);
    if (first_token + n < rows) RowOf(out, first_token + n)[block_row + r] = sum;
  }
  cluster.sync();  // nobody leaves while its sums are read
}

template <int NT>
void Launch(cudaStream_t stream, const Fp8Rows& x, int64_t rows, const WeightMatrix& weight, int groups,
            FloatView out) {
  const int64_t row_blocks = weight.rows / kSkinnyRows;
  const int parts = SkinnyParts(row_blocks, weight.columns);
  const dim3 grid(static_cast<unsigned>(row_blocks * parts), Blocks(rows, 8 * NT));
  LaunchClusters(stream, grid, parts, kSkinnyBytes<false, 1, NT>, SkinnyLinearKernel<NT>, x, static_cast<int>(rows),
                 weight, weight.rows / groups, out);
}

}  // namespace

void QuantiseRows(cudaStream_t stream, ConstFloatView x, const Fp8Rows& out) {
  if (x.rows > 0) QuantiseRowsKernel<<<static_cast<unsigned>(x.rows), kThreads, 0, stream>>>(x, out);
}

void RmsNormQuantise(cudaStream_t stream, ConstFloatView x, const WeightVector& weight, float eps, const Fp8Rows& out,
                     FloatView normed) {
  if (x.rows == 0) return;
  RmsNormQuantiseKernel<<<static_cast<unsigned>(x.rows), kThreads, RowDotBytes(x.columns), stream>>>(x, weight, eps,
                                                                                                     out, normed);
}

bool SkinnyFits(const WeightMatrix& weight, int groups) {
  return weight.format == WeightFormat::kF8Block32 && weight.columns % kSkinnyChunk == 0 &&
         weight.rows / groups % kSkinnyRows == 0;
}

void SkinnyLinear(cudaStream_t stream, const Fp8Rows& x, int64_t rows, const WeightMatrix& weight, int groups,
                  FloatView out) {
  if (rows == 0) return;
  if (rows <= 8) return Launch<1>(stream, x, rows, weight, groups, out);
  if (rows <= 16) return Launch<2>(stream, x, rows, weight, groups, out);
  if (rows <= 32) return Launch<4>(stream, x, rows, weight, groups, out);
  return Launch<8>(stream, x, rows, weight, groups, out);
}

}  // namespace deepinfer::cuda
