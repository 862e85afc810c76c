// Hyper-connections (spec c.3) and the Engram gate (spec c.8): one block a row.
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/rms_norm.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kMostStreams = 8;

template <bool kVector>
__device__ __forceinline__ float RowSquares(const float* row, int64_t columns, float* partials) {
  return BlockSquares<2>(columns, partials, [&](int64_t c, float(&values)[kDotLaneColumns]) {
    LoadColumns<kVector>(row, c, columns, values);
  });
}

__device__ float InverseRms(const float* row, int64_t columns, float eps, float* partials) {
  const bool vectors = reinterpret_cast<uintptr_t>(row) % 16 == 0 && columns % kDotLaneColumns == 0;
  return InverseOfSquares(
      vectors ? RowSquares<true>(row, columns, partials) : RowSquares<false>(row, columns, partials), columns, eps);
}

// The n x n part by one thread: n is 4 in the release.
__device__ void Sinkhorn(float* comb, int n, int iterations, float eps) {
  for (int i = 0; i < n; ++i) {
    float* row = comb + i * n;
    float maximum = row[0];
    for (int j = 1; j < n; ++j) maximum = fmaxf(maximum, row[j]);
    float sum = 0;
    for (int j = 0; j < n; ++j) sum += row[j] = expf(row[j] - maximum);
    for (int j = 0; j < n; ++j) row[j] = row[j] / sum + eps;
  }
  for (int iteration = 0; iteration < iterations; ++iteration) {
    if (iteration > 0) {
      for (int i = 0; i < n; ++i) {
        float sum = 0;
        for (int j = 0; j < n; ++j) sum += comb[i * n + j];
        for (int j = 0; j < n; ++j) comb[i * n + j] /= sum + eps;
      }
    }
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int i = 0; i < n; ++i) sum += comb[i * n + j];
      for (int i = 0; i < n; ++i) comb[i * n + j] /= sum + eps;
    }
  }
}

// The same bits by a warp: lane i * n + j holds comb[i, j]; sums run over lanes in the order above. n * n <= 32.
__device__ float WarpSinkhorn(float value, int n, int iterations, float eps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int i = lane / n % n;
  const int j = lane % n;
  const auto row = [&](int k) { return __shfl_sync(0xffffffffu, value, i * n + k); };
  const auto column = [&](int k) { return __shfl_sync(0xffffffffu, value, k * n + j); };
  float maximum = row(0);
  for (int k = 1; k < n; ++k) maximum = fmaxf(maximum, row(k));
  value = expf(value - maximum);
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += row(k);
  value = value / sum + eps;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    if (iteration > 0) {
      sum = 0;
      for (int k = 0; k < n; ++k) sum += row(k);
      value /= sum + eps;
    }
    sum = 0;
    for (int k = 0; k < n; ++k) sum += column(k);
    value /= sum + eps;
  }
  return value;
}

__global__ void FinishMixKernel(ConstFloatView streams, const float* squares, int n, WeightVector base,
                                WeightVector scale, int iterations, float hc_eps, float rms_eps, FloatView out) {
  WaitForKernelAhead();
  StartKernelBehind();
  extern __shared__ float partials[];
  __shared__ float mix[(2 + kMostStreams) * kMostStreams];
  const int64_t t = blockIdx.x;
  const float inverse = squares == nullptr ? InverseRms(RowOf(streams, t), streams.columns, rms_eps, partials)
                                           : 1.0f / sqrtf(squares[t] / static_cast<float>(streams.columns) + rms_eps);
  const int count = (2 + n) * n;
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) {
    const int part = i < n ? 0 : i < 2 * n ? 1 : 2;
    float value = RowOf(out, t)[i] * inverse * LoadVector(scale, part) + LoadVector(base, i);
    if (part == 0) value = Sigmoid(value) + hc_eps;
    if (part == 1) value = 2 * Sigmoid(value);
    mix[i] = value;
  }
  __syncthreads();
  if (n * n <= 32) {
    if (i < 32) {
      const float value = WarpSinkhorn(mix[2 * n + i % (n * n)], n, iterations, hc_eps);
      if (i < n * n) mix[2 * n + i] = value;
    }
  } else if (i == 0) {
    Sinkhorn(mix + 2 * n, n, iterations, hc_eps);
  }
  __syncthreads();
  if (i < count) RowOf(out, t)[i] = mix[i];
}

// Columns c .. c + 7 of row t's streams, weighted by `pre`.
template <bool kVector>
__device__ __forceinline__ void CollapseColumns(const ConstFloatView& streams, int n, const ConstFloatView& pre,
                                                int64_t t, int64_t c, int64_t width, float (&sums)[kDotLaneColumns]) {
  const float* const row = RowOf(streams, t);
  float values[kMostStreams][kDotLaneColumns];
#pragma unroll
  for (int j = 0; j < kMostStreams; ++j) {
    if (j < n) LoadColumns<kVector>(row + j * width, c, width, values[j]);
  }
#pragma unroll
  for (int i = 0; i < kDotLaneColumns; ++i) sums[i] = 0;
#pragma unroll
  for (int j = 0; j < kMostStreams; ++j) {
    if (j >= n) break;
    const float factor = RowOf(pre, t)[j];
#pragma unroll
    for (int i = 0; i < kDotLaneColumns; ++i) sums[i] += factor * values[j][i];
  }
#pragma unroll
  for (int i = 0; i < kDotLaneColumns; ++i) {
    if (c + i >= width) sums[i] = 0;  // an infinite factor times 0 is none
  }
}

// At most kMostCollapseThreads: eight columns of all streams are a hundred registers.
constexpr int kMostCollapseThreads = 640;

template <bool kVector>
__global__ void __launch_bounds__(kMostCollapseThreads)
    CollapseNormKernel(ConstFloatView streams, int n, ConstFloatView pre, WeightVector weight, float eps,
                       FloatView normed, FloatView collapsed) {
  StartKernelBehind();
  extern __shared__ float partials[];
  const int64_t t = blockIdx.x;
  NormRow<kVector>(
      normed.columns,
      [&](int64_t c, float(&sums)[kDotLaneColumns]) {
        CollapseColumns<kVector>(streams, n, pre, t, c, normed.columns, sums);
        if (collapsed.data != nullptr) StoreColumns<kVector>(sums, c, normed.columns, RowOf(collapsed, t));
      },
      weight, eps, partials, RowOf(normed, t));
}

__global__ void SpreadKernel(ConstFloatView y, ConstFloatView mix, int n, FloatView streams) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t t = blockIdx.x;
  const int64_t width = y.columns;
  const float* post = RowOf(mix, t) + n;
  const float* comb = post + n;
  float* stream = RowOf(streams, t);
  for (int64_t d = OwnColumn(); d < width; d += ColumnStep()) {
    float source[kMostStreams];
#pragma unroll
    for (int i = 0; i < kMostStreams; ++i) {
      if (i < n) source[i] = stream[i * width + d];
    }
    const float value = RowOf(y, t)[d];
    for (int j = 0; j < n; ++j) {
      float sum = post[j] * value;
#pragma unroll
      for (int i = 0; i < kMostStreams; ++i) {
        if (i < n) sum += comb[i * n + j] * source[i];
      }
      stream[j * width + d] = sum;
    }
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

void FinishMix(cudaStream_t stream, ConstFloatView streams, const float* squares, int n, const WeightVector& base,
               const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps, FloatView out) {
  if (out.rows == 0) return;
  LaunchEarly(stream, Grid(out.rows), kThreads, RowDotBytes(streams.columns), FinishMixKernel, streams, squares, n,
              base, scale, sinkhorn_iterations, hc_eps, rms_eps, out);
}

void CollapseNorm(cudaStream_t stream, ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight,
                  float eps, FloatView normed, FloatView collapsed) {
  if (normed.rows == 0) return;
  const bool vectors = TakesVectors(streams.data, streams.rows, streams.stride, normed.columns) &&
                       TakesVectors(normed) && TakesVectors(weight) &&
                       (collapsed.data == nullptr || TakesVectors(collapsed));
  LaunchEarly(stream, Grid(normed.rows), RowDotThreads(normed.columns, kMostCollapseThreads),
              RowDotBytes(normed.columns), vectors ? &CollapseNormKernel<true> : &CollapseNormKernel<false>, streams, n,
              pre, weight, eps, normed, collapsed);
}

void SpreadStreams(cudaStream_t stream, ConstFloatView y, ConstFloatView mix, int n, FloatView streams) {
  if (y.rows > 0) LaunchEarly(stream, ColumnGrid(y.rows, y.columns), kThreads, 0, SpreadKernel, y, mix, n, streams);
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
