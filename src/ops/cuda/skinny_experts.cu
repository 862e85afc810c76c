// Grouped FP4 experts for few rows an expert (skinny.h): gate and up with their product, then down.
#include "ops/cuda/launch.cuh"
#include "ops/cuda/skinny_block.cuh"

namespace deepinfer::cuda {
namespace {

constexpr float kCodeFactor = 0x1p14f;  // NibblesToHalves
// Clusters: of the blocks that share 128 hidden channels each takes 32 of them in the end, a group of the quantisation.
constexpr int kGateUpParts = 4;
constexpr int kDownParts = 2;
constexpr int kDownRows = 2 * kSkinnyRows;  // two tiles a warp

struct Assignment {
  const DeviceExpert& expert;
  const int32_t* order;
  int count;
};
__device__ __forceinline__ Assignment AssignmentOf(const ExpertsPlan& plan, unsigned active) {
  const int32_t id = plan.active[active];
  return {plan.experts[id], plan.order + plan.offsets[id], plan.offsets[id + 1] - plan.offsets[id]};
}

// The rows order[first ..] / divisor of x.
template <int NT>
__device__ __forceinline__ RowCopies<NT> CopiesOf(const Fp8Rows& x, const Assignment& rows, int divisor, int first) {
  const auto row = [&](int i) { return int64_t{rows.order[min(first + i, rows.count - 1)] / divisor}; };
  return RowCopies<NT>([&](int i) { return x.codes + row(i) * x.columns; },
                       [&](int i) { return x.scales + row(i) * (x.columns / 32); });
}

// 128 hidden channels of one expert; a warp's tiles are 16 rows of w1 and the same of w3.
template <int NT>
__global__ void __launch_bounds__(kSkinnyThreads, NT <= 2 ? 2 : 1)
    GateUpKernel(ExpertsPlan plan, Fp8Rows x, Fp8Rows hidden) {
  extern __shared__ __align__(128) uint8_t shared[];
  cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  const int part = static_cast<int>(cluster.block_rank());
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t block_row = blockIdx.x / kGateUpParts * int64_t{kSkinnyRows};
  const int64_t row = block_row + warp * kSkinnyTile;
  const Assignment rows = AssignmentOf(plan, blockIdx.y);
  const int64_t row_bytes = plan.columns / 2;
  const int64_t scale_row_bytes = plan.columns / 32;
  const TileSource tiles[2] = {{rows.expert.w1 + row * row_bytes, rows.expert.w1_scale + row * scale_row_bytes},
                               {rows.expert.w3 + row * row_bytes, rows.expert.w3_scale + row * scale_row_bytes}};
  const int64_t chunks = plan.columns / kSkinnyChunk;
  float* sums = reinterpret_cast<float*>(shared);  // [2][128][8 * NT], over the stages
  constexpr int kMatrixFloats = kSkinnyRows * 8 * NT;

  for (int first = 0; first < rows.count; first += 8 * NT) {
    const RowCopies<NT> copies = CopiesOf<NT>(x, rows, plan.per_token, first);
    float accumulators[2][NT][4];
    StreamChunks<true, 2, NT>(SharedAddress(shared), tiles, row_bytes, scale_row_bytes, copies,
                              SkinnyFirstChunk(chunks, kGateUpParts, part),
                              SkinnyFirstChunk(chunks, kGateUpParts, part + 1), accumulators);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      StoreTile<NT>(sums + m * kMatrixFloats + warp * kSkinnyTile * 8 * NT, accumulators[m], kCodeFactor, lane);
    }
    cluster.sync();
    // A warp a row, a lane a hidden channel of this block's 32.
    const int channel = part * 32 + lane;
    for (int n = warp; n < 8 * NT && first + n < rows.count; n += kSkinnyWarps) {
      const float* at = sums + channel * 8 * NT + n;
      float gate = ClusterSum(cluster, at);
      float up = ClusterSum(cluster, at + kMatrixFloats);
      if (plan.limit > 0) {
        gate = fminf(gate, plan.limit);
        up = fminf(fmaxf(up, -plan.limit), plan.limit);
      }
      const int64_t slot = rows.order[first + n];
      const float value = gate * Sigmoid(gate) * up * plan.weights[slot];
      const uint8_t byte = Fp8ScaleByte(GroupMaximum(fabsf(value), 32));
      hidden.codes[slot * plan.inner + block_row + channel] =
          FloatToE4m3(value * E8m0ToFloat(static_cast<uint8_t>(254 - byte)));
      if (lane == 0) hidden.scales[slot * (plan.inner / 32) + block_row / 32 + part] = byte;
    }
    cluster.sync();  // the sums lie where the next rows are streamed
  }
}

// 256 outputs of one expert; a warp's tiles are 32 rows of w2.
template <int NT>
__global__ void __launch_bounds__(kSkinnyThreads, NT <= 2 ? 2 : 1)
    DownKernel(ExpertsPlan plan, Fp8Rows hidden, FloatView outputs) {
  extern __shared__ __align__(128) uint8_t shared[];
  cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  const int part = static_cast<int>(cluster.block_rank());
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t block_row = blockIdx.x / kDownParts * int64_t{kDownRows};
  const Assignment rows = AssignmentOf(plan, blockIdx.y);
  const int64_t row_bytes = plan.inner / 2;
  const int64_t scale_row_bytes = plan.inner / 32;
  TileSource tiles[2];
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const int64_t row = block_row + (warp * 2 + m) * kSkinnyTile;
    tiles[m] = {rows.expert.w2 + row * row_bytes, rows.expert.w2_scale + row * scale_row_bytes};
  }
  const int64_t chunks = plan.inner / kSkinnyChunk;
  float* sums = reinterpret_cast<float*>(shared);  // [256][8 * NT]

  for (int first = 0; first < rows.count; first += 8 * NT) {
    const RowCopies<NT> copies = CopiesOf<NT>(hidden, rows, 1, first);
    float accumulators[2][NT][4];
    StreamChunks<true, 2, NT>(SharedAddress(shared), tiles, row_bytes, scale_row_bytes, copies,
                              SkinnyFirstChunk(chunks, kDownParts, part),
                              SkinnyFirstChunk(chunks, kDownParts, part + 1), accumulators);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      StoreTile<NT>(sums + (warp * 2 + m) * kSkinnyTile * 8 * NT, accumulators[m], kCodeFactor, lane);
    }
    cluster.sync();
    constexpr int kShare = kDownRows / kDownParts;
    for (int i = static_cast<int>(threadIdx.x); i < kShare * 8 * NT; i += kSkinnyThreads) {
      const int r = part * kShare + i % kShare;
      const int n = i / kShare;
      if (first + n >= rows.count) break;
      RowOf(outputs, rows.order[first + n])[block_row + r] = ClusterSum(cluster, sums + r * 8 * NT + n);
    }
    cluster.sync();
  }
}

template <int NT>
void Launch(cudaStream_t stream, const ExpertsPlan& plan, const Fp8Rows& x, const Fp8Rows& hidden, FloatView parts) {
  constexpr int kBytes = kSkinnyBytes<true, 2, NT>;
  static_assert(kBytes >= 2 * kSkinnyRows * 8 * NT * 4, "the sums lie over the stages");
  const unsigned active = static_cast<unsigned>(plan.active_count);
  LaunchClusters(stream, dim3(Blocks(plan.inner, kSkinnyRows) * kGateUpParts, active), kGateUpParts, kBytes,
                 GateUpKernel<NT>, plan, x, hidden);
  LaunchClusters(stream, dim3(Blocks(parts.columns, kDownRows) * kDownParts, active), kDownParts, kBytes,
                 DownKernel<NT>, plan, hidden, parts);
}

}  // namespace

bool SkinnyExpertsFit(const WeightMatrix& w1, const WeightMatrix& w2) {
  return w1.format == WeightFormat::kF4Row32 && w2.format == WeightFormat::kF4Row32 && w1.columns % kSkinnyChunk == 0 &&
         w2.columns % kSkinnyChunk == 0 && w1.rows % kSkinnyRows == 0 && w2.rows % kDownRows == 0;
}

void SkinnyExperts(cudaStream_t stream, const ExpertsPlan& plan, const Fp8Rows& x, const Fp8Rows& hidden,
                   FloatView parts) {
  if (plan.active_count == 0) return;
  if (plan.most_rows <= 8) return Launch<1>(stream, plan, x, hidden, parts);
  if (plan.most_rows <= 16) return Launch<2>(stream, plan, x, hidden, parts);
  Launch<4>(stream, plan, x, hidden, parts);
}

}  // namespace deepinfer::cuda
