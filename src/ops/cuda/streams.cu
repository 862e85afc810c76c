// Hyper-connections after a sublayer (spec c.3) and the Engram gate (spec c.8).
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/rms_norm.cuh"
#include "ops/cuda/spread.cuh"

namespace deepinfer::cuda {
namespace {

__global__ void SpreadKernel(ConstFloatView y, ConstFloatView mix, int n, FloatView streams) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  const int64_t width = y.columns;
  for (int64_t d = OwnColumn(); d < width; d += ColumnStep()) {
    float* const stream = RowOf(streams, t) + d;
    float source[kMostStreams];
    LoadStreams(stream, n, width, source);
    SpreadColumn(RowOf(y, t)[d], RowOf(mix, t) + n, n, width, source, stream);
  }
}

// The same with four columns a thread.
__global__ void SpreadFourKernel(ConstFloatView y, ConstFloatView mix, int n, FloatView streams) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  const int64_t width = y.columns;
  const int64_t d = OwnColumn() * 4;
  if (d >= width) return;
  const float* const post = RowOf(mix, t) + n;
  const float* const comb = post + n;
  float* const stream = RowOf(streams, t) + d;
  float4 source[kMostStreams];
#pragma unroll
  for (int i = 0; i < kMostStreams; ++i) {
    if (i < n) source[i] = *reinterpret_cast<const float4*>(stream + i * width);
  }
  const float4 value = *reinterpret_cast<const float4*>(RowOf(y, t) + d);
  for (int j = 0; j < n; ++j) {
    float4 sum = make_float4(post[j] * value.x, post[j] * value.y, post[j] * value.z, post[j] * value.w);
#pragma unroll
    for (int i = 0; i < kMostStreams; ++i) {
      if (i >= n) break;
      const float factor = comb[i * n + j];
      sum.x += factor * source[i].x;
      sum.y += factor * source[i].y;
      sum.z += factor * source[i].z;
      sum.w += factor * source[i].w;
    }
    *reinterpret_cast<float4*>(stream + j * width) = sum;
  }
}

__global__ void MeanKernel(ConstFloatView streams, int n, FloatView out) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  for (int64_t d = OwnColumn(); d < out.columns; d += ColumnStep()) {
    float sum = 0;
    for (int j = 0; j < n; ++j) sum += RowOf(streams, t)[j * out.columns + d];
    RowOf(out, t)[d] = sum / static_cast<float>(n);
  }
}

__global__ void EngramInjectKernel(ConstFloatView kv, WeightVector q_weight, WeightVector k_weight, int n, float eps,
                                   FloatView streams) {
  WaitForKernelAhead();
  StartKernelBehind();
  extern __shared__ float partials[];
  const int64_t t = blockIdx.x;
  const int j = static_cast<int>(blockIdx.y);
  const int64_t width = streams.columns / n;
  float* stream = RowOf(streams, t) + j * width;
  const float* key = RowOf(kv, t) + j * width;
  const float* value = RowOf(kv, t) + n * width;
  const float product = BlockCanonicalDot<1>(
      width, partials,
      [&](int64_t c, float(&values)[kDotLaneColumns]) {
        float q[kDotLaneColumns], k[kDotLaneColumns];
        LoadColumns<false>(stream, c, width, values);
        LoadColumns<false>(q_weight, j * width, c, width, q);
        LoadColumns<false>(k_weight, j * width, c, width, k);
#pragma unroll
        for (int i = 0; i < kDotLaneColumns; ++i) values[i] *= q[i] * k[i];
      },
      [&](int64_t c, float(&values)[kDotLaneColumns]) { LoadColumns<false>(key, c, width, values); }, [] {});
  const float dot = product / sqrtf(static_cast<float>(width)) * InverseRms(stream, width, eps, partials) *
                    InverseRms(key, width, eps, partials);
  const float gate = Sigmoid(copysignf(sqrtf(fmaxf(fabsf(dot), 1e-6f)), dot));
  for (int64_t d = threadIdx.x; d < width; d += blockDim.x) stream[d] += gate * value[d];
}

unsigned Grid(int64_t rows) { return static_cast<unsigned>(rows); }

}  // namespace

void SpreadStreams(cudaStream_t stream, ConstFloatView y, ConstFloatView mix, int n, FloatView streams) {
  if (y.rows == 0) return;
  constexpr int64_t kManyRows = 16;  // fewer have too few blocks of four columns a thread
  if (y.rows >= kManyRows && TakesVectors(y) && TakesVectors(streams)) {
    LaunchEarly(stream, ColumnGrid(y.rows, y.columns / 4), kThreads, 0, SpreadFourKernel, y, mix, n, streams);
  } else {
    LaunchEarly(stream, ColumnGrid(y.rows, y.columns), kThreads, 0, SpreadKernel, y, mix, n, streams);
  }
}

void MeanStreams(cudaStream_t stream, ConstFloatView streams, int n, FloatView out) {
  if (out.rows > 0) LaunchEarly(stream, ColumnGrid(out.rows, out.columns), kThreads, 0, MeanKernel, streams, n, out);
}

void EngramInject(cudaStream_t stream, ConstFloatView kv, const WeightVector& q_weight, const WeightVector& k_weight,
                  int n, float eps, FloatView streams) {
  if (streams.rows == 0) return;
  const dim3 grid(Grid(streams.rows), static_cast<unsigned>(n));
  LaunchEarly(stream, grid, kThreads, RowDotBytes(streams.columns / n), EngramInjectKernel, kv, q_weight, k_weight, n,
              eps, streams);
}

}  // namespace deepinfer::cuda
