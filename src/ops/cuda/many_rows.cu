// A linear of few F32 outputs over many rows, in the canonical order (kernels.h, LinearAndSquaresOfMany): every row and
// every weight is read once by a block, through shared memory; a thread is a lane of the order, with eight outputs of
// some rows in registers.
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/row_dot.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kMostOutputs = 24;
constexpr int kThreadOutputs = 8;
constexpr int kHalfWarps = 8;  // of each group of outputs
constexpr int kBlockThreads = kMostOutputs / kThreadOutputs * kHalfWarps * kDotLanes;
constexpr int kStages = 3;                              // chunks in shared memory: one is multiplied, the others come
constexpr int kPieces = kDotChunk / 4;                  // 16 bytes each, of a row's chunk
constexpr int64_t kRowsForFour = 132 * 2 * kHalfWarps;  // fewer rows have more blocks with one row a thread

// 16-byte pieces of a stage: the weights' rows, then rows of x. Of a row the first four columns of every lane lie
// before the last four, so that lanes read side by side.
template <int kRows>
constexpr int kStagePieces = (kMostOutputs + kHalfWarps * kRows) * kPieces;

__device__ __forceinline__ void LoadStaged(const float4* row, int lane, float (&out)[kDotLaneColumns]) {
  const float4 low = row[lane];
  const float4 high = row[kDotLanes + lane];
  out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
  out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
}

template <int kRows>
__global__ void __launch_bounds__(kBlockThreads)
    ManyRowsKernel(ConstFloatView x, WeightMatrix weight, FloatView out, float* squares) {
  WaitForKernelAhead();
  StartKernelBehind();
  extern __shared__ float4 staged[];
  const int lane = static_cast<int>(threadIdx.x) % kDotLanes;
  const int half_warp = static_cast<int>(threadIdx.x) / kDotLanes % kHalfWarps;
  const int group = static_cast<int>(threadIdx.x) / (kDotLanes * kHalfWarps);
  const int outputs = static_cast<int>(weight.rows);
  const int chunks = static_cast<int>(weight.columns / kDotChunk);
  const int64_t first_row = int64_t{blockIdx.x} * kHalfWarps * kRows;
  const float* const weights = reinterpret_cast<const float*>(weight.data);

  const auto copy = [&](int chunk) {
    float4* const stage = staged + chunk % kStages * kStagePieces<kRows>;
    for (int i = static_cast<int>(threadIdx.x); i < kStagePieces<kRows>; i += kBlockThreads) {
      const int row = i / kPieces;
      const int piece = i % kPieces;
      const float* from = weights + row * weight.columns;
      if (row >= kMostOutputs) {
        // Rows behind the last repeat it; their results are not stored.
        const int64_t t = first_row + row - kMostOutputs;
        from = RowOf(x, t < x.rows ? t : x.rows - 1);
      } else if (row >= outputs) {
        continue;  // nor are those of outputs behind the last
      }
      CopyAsync16(SharedAddress(stage + row * kPieces + piece % 2 * kDotLanes + piece / 2),
                  from + int64_t{chunk} * kDotChunk + piece * 4);
    }
  };
#pragma unroll
  for (int chunk = 0; chunk < kStages - 1; ++chunk) {
    if (chunk < chunks) copy(chunk);
    CommitCopies();
  }
  float sums[kThreadOutputs][kRows] = {};
  float own_squares[kRows] = {};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    WaitCopies<kStages - 2>();
    __syncthreads();  // this chunk is there, and the one before has been read by all
    if (chunk + kStages - 1 < chunks) copy(chunk + kStages - 1);
    CommitCopies();
    const float4* const stage = staged + chunk % kStages * kStagePieces<kRows>;
    float inputs[kRows][kDotLaneColumns];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      LoadStaged(stage + (kMostOutputs + half_warp * kRows + r) * kPieces, lane, inputs[r]);
    }
#pragma unroll
    for (int o = 0; o < kThreadOutputs; ++o) {
      float values[kDotLaneColumns];
      LoadStaged(stage + (group * kThreadOutputs + o) * kPieces, lane, values);
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[o][r] += LanePartial(values, inputs[r]);
    }
    if (group == 0) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) own_squares[r] += LanePartial(inputs[r], inputs[r]);
    }
  }
  const auto tree = [](float sum) {
#pragma unroll
    for (int half = kDotLanes / 2; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half, kDotLanes);
    return sum;
  };
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t t = first_row + half_warp * kRows + r;
#pragma unroll
    for (int o = 0; o < kThreadOutputs; ++o) {
      const float sum = tree(sums[o][r]);
      const int output = group * kThreadOutputs + o;
      if (lane == 0 && t < x.rows && output < outputs) RowOf(out, t)[output] = sum;
    }
    const float square = tree(own_squares[r]);
    if (lane == 0 && t < x.rows && group == 0) squares[t] = square;
  }
}

template <int kRows>
void Launch(cudaStream_t stream, ConstFloatView x, const WeightMatrix& weight, FloatView out, float* squares) {
  constexpr int kBytes = kStages * kStagePieces<kRows> * static_cast<int>(sizeof(float4));
  LaunchEarly(stream, dim3(Blocks(x.rows, kHalfWarps * kRows)), kBlockThreads, kBytes, ManyRowsKernel<kRows>, x, weight,
              out, squares);
}

}  // namespace

bool LinearAndSquaresOfManyFits(ConstFloatView x, const WeightMatrix& weight) {
  return weight.format == WeightFormat::kF32 && weight.rows <= kMostOutputs && weight.columns % kDotChunk == 0 &&
         TakesVectors(x) && TakesVectors(weight.data, weight.rows, weight.columns, weight.columns);
}

void LinearAndSquaresOfMany(cudaStream_t stream, ConstFloatView x, const WeightMatrix& weight, FloatView out,
                            float* squares) {
  if (x.rows == 0) return;
  if (x.rows > kRowsForFour) return Launch<4>(stream, x, weight, out, squares);
  Launch<1>(stream, x, weight, out, squares);
}

}  // namespace deepinfer::cuda
