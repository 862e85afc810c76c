// Hyper-connections before a sublayer (spec c.3): coefficients and the collapsed, normalised input.

#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/few_outputs.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/rms_norm.cuh"
#include "ops/cuda/spread.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kMostMix = (2 + kMostStreams) * kMostStreams;

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

// The same bits by a warp: lane i * n + j holds comb[i, j]; sums run over lanes in the order above. n * n <= 32; it is
// known when the code is compiled, or kStreams is 0.
template <int kStreams>
__device__ float WarpSinkhorn(float value, int any, int iterations, float eps) {
  const int n = kStreams > 0 ? kStreams : any;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int i = lane / n % n;
  const int j = lane % n;
  // Value `from` + k * step of each lane, k ascending.
  const auto sum_of = [&](int from, int step) {
    float sum = 0;
    if constexpr (kStreams > 0) {
      float values[kStreams];
#pragma unroll
      for (int k = 0; k < kStreams; ++k) values[k] = __shfl_sync(0xffffffffu, value, from + k * step);
#pragma unroll
      for (int k = 0; k < kStreams; ++k) sum += values[k];
    } else {
      for (int k = 0; k < n; ++k) sum += __shfl_sync(0xffffffffu, value, from + k * step);
    }
    return sum;
  };
  float maximum = __shfl_sync(0xffffffffu, value, i * n);
  for (int k = 1; k < n; ++k) maximum = fmaxf(maximum, __shfl_sync(0xffffffffu, value, i * n + k));
  value = expf(value - maximum);
  value = value / sum_of(i * n, 1) + eps;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    if (iteration > 0) value /= sum_of(i * n, 1) + eps;
    value /= sum_of(j, n) + eps;
  }
  return value;
}

/// What FinishMix needs besides the projection.
struct MixSettings {
  WeightVector base, scale;
  int n = 0, iterations = 0;
  float hc_eps = 0, rms_eps = 0;
};

// By the whole block, of at least kMostMix threads, which waits for the kernel ahead. inverse_rms() is asked after
// that.
template <typename InverseRms>
__device__ void FinishMixRow(const MixSettings& settings, float* row, const InverseRms& inverse_rms) {
  __shared__ float mix[kMostMix];
  const int n = settings.n;
  const int count = (2 + n) * n;
  const int i = static_cast<int>(threadIdx.x);
  const int part = i < n ? 0 : i < 2 * n ? 1 : 2;
  const float factor = i < count ? LoadVector(settings.scale, part) : 0.0f;
  const float base = i < count ? LoadVector(settings.base, i) : 0.0f;
  WaitForKernelAhead();
  const float projected = i < count ? row[i] : 0.0f;
  const float inverse = inverse_rms();
  if (i < count) {
    float value = projected * inverse * factor + base;
    if (part == 0) value = Sigmoid(value) + settings.hc_eps;
    if (part == 1) value = 2 * Sigmoid(value);
    mix[i] = value;
  }
  __syncthreads();
  if (n * n <= 32) {
    if (i < 32) {
      const float own = mix[2 * n + i % (n * n)];
      const float value = n == 4 ? WarpSinkhorn<4>(own, n, settings.iterations, settings.hc_eps)
                                 : WarpSinkhorn<0>(own, n, settings.iterations, settings.hc_eps);
      __syncwarp();
      if (i < n * n) mix[2 * n + i] = value;
    }
  } else if (i == 0) {
    Sinkhorn(mix + 2 * n, n, settings.iterations, settings.hc_eps);
  }
  __syncthreads();
  if (i < count) row[i] = mix[i];
}

__global__ void FinishMixKernel(ConstFloatView streams, const float* squares, MixSettings settings, FloatView out) {
  StartKernelBehind();
  extern __shared__ float partials[];
  const int64_t t = blockIdx.x;
  FinishMixRow(settings, RowOf(out, t), [&] {
    return squares == nullptr ? InverseRms(RowOf(streams, t), streams.columns, settings.rms_eps, partials)
                              : InverseOfSquares(squares[t], streams.columns, settings.rms_eps);
  });
}

// Columns c .. c + 7 of row t's streams, weighted by `pre`.
template <bool kVector>
__device__ __forceinline__ void CollapseColumns(const ConstFloatView& streams, int n, const ConstFloatView& pre,
                                                int64_t t, int64_t c, int64_t width, float (&sums)[kDotLaneColumns]) {
  const float* const row = RowOf(streams, t);
#pragma unroll
  for (int i = 0; i < kDotLaneColumns; ++i) sums[i] = 0;
  constexpr int kAtOnce = 4;  // streams whose loads are under way
  for (int first = 0; first < n; first += kAtOnce) {
    float values[kAtOnce][kDotLaneColumns];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (first + j < n) LoadColumns<kVector>(row + (first + j) * width, c, width, values[j]);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (first + j >= n) break;
      const float factor = RowOf(pre, t)[first + j];
#pragma unroll
      for (int i = 0; i < kDotLaneColumns; ++i) sums[i] += factor * values[j][i];
    }
  }
#pragma unroll
  for (int i = 0; i < kDotLaneColumns; ++i) {
    if (c + i >= width) sums[i] = 0;  // an infinite factor times 0 is none
  }
}

// Eight columns of four streams at once take their registers.
constexpr int kMostCollapseThreads = 640;

template <bool kVector>
__global__ void __launch_bounds__(kMostCollapseThreads)
    CollapseNormKernel(ConstFloatView streams, int n, ConstFloatView pre, WeightVector weight, float eps,
                       FloatView normed, FloatView collapsed, RowForms forms) {
  StartKernelBehind();
  extern __shared__ float partials[];
  const int64_t t = blockIdx.x;
  NormRow<kVector>(
      normed.columns,
      [&](int64_t c, float(&sums)[kDotLaneColumns]) {
        CollapseColumns<kVector>(streams, n, pre, t, c, normed.columns, sums);
        if (collapsed.data != nullptr) StoreColumns<kVector>(sums, c, normed.columns, RowOf(collapsed, t));
      },
      weight, eps, partials, RowOf(normed, t), forms, t);
}

// Blocks of a row for the outputs and the squares.
template <bool kGrouped>
__host__ __device__ constexpr int64_t ProjectBlocks(const WeightMatrix& fn) {
  constexpr int64_t kEach = kGrouped ? kGroupOutputs : 1;
  return (fn.rows + 1 + kEach - 1) / kEach;
}

// Blocks of FewOutputsBlock (kGrouped: of FewOutputsGroup), and behind them blocks that collapse a column a thread.
template <bool kVector, bool kGrouped>
__global__ void __launch_bounds__(kMostFewOutputsThreads)
    ProjectAndCollapseKernel(ConstFloatView streams, WeightMatrix fn, FloatView mix, float* squares, int n,
                             ConstFloatView pre, FloatView collapsed) {
  StartKernelBehind();
  extern __shared__ float partials[];
  const int64_t t = blockIdx.y;
  const int64_t blocks = ProjectBlocks<kGrouped>(fn);
  if (blockIdx.x < blocks) {
    if constexpr (kGrouped) {
      return FewOutputsGroup<kVector>(streams, fn, int64_t{blockIdx.x} * kGroupOutputs, t, mix, squares, partials);
    } else {
      return FewOutputsBlock<kVector>(streams, fn, fn.rows, blockIdx.x, t, mix, squares, partials);
    }
  }
  WaitForKernelAhead();
  const int64_t width = collapsed.columns;
  const int64_t d = (blockIdx.x - blocks) * blockDim.x + threadIdx.x;
  if (d >= width) return;
  const float* const row = RowOf(streams, t) + d;
  float values[kMostStreams], factors[kMostStreams];
#pragma unroll
  for (int j = 0; j < kMostStreams; ++j) {
    if (j < n) values[j] = row[j * width], factors[j] = RowOf(pre, t)[j];
  }
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kMostStreams; ++j) {
    if (j < n) sum += factors[j] * values[j];
  }
  RowOf(collapsed, t)[d] = sum;
}

unsigned Grid(int64_t rows) { return static_cast<unsigned>(rows); }

template <bool kGrouped>
void LaunchProject(cudaStream_t stream, bool vectors, ConstFloatView streams, const WeightMatrix& fn, FloatView mix,
                   float* squares, int n, ConstFloatView pre, FloatView collapsed) {
  const int threads = FewOutputsThreads(fn.columns);
  const dim3 grid(Grid(ProjectBlocks<kGrouped>(fn)) + Blocks(collapsed.columns, threads), Grid(streams.rows));
  LaunchEarly(stream, grid, threads, (kGrouped ? kGroupOutputs : 1) * RowDotBytes(fn.columns),
              vectors ? &ProjectAndCollapseKernel<true, kGrouped> : &ProjectAndCollapseKernel<false, kGrouped>, streams,
              fn, mix, squares, n, pre, collapsed);
}

}  // namespace

void FinishMix(cudaStream_t stream, ConstFloatView streams, const float* squares, int n, const WeightVector& base,
               const WeightVector& scale, int sinkhorn_iterations, float hc_eps, float rms_eps, FloatView out) {
  if (out.rows == 0) return;
  LaunchEarly(stream, Grid(out.rows), kThreads, RowDotBytes(streams.columns), FinishMixKernel, streams, squares,
              MixSettings{base, scale, n, sinkhorn_iterations, hc_eps, rms_eps}, out);
}

void ProjectAndCollapse(cudaStream_t stream, ConstFloatView streams, const WeightMatrix& fn, FloatView mix,
                        float* squares, int n, ConstFloatView pre, FloatView collapsed) {
  if (streams.rows == 0) return;
  // An output a block while these are one wave: a block fills a processor.
  const bool vectors = FewOutputsTakesVectors(streams, fn);
  if (streams.rows * (fn.rows + 1) <= Processors()) {
    LaunchProject<false>(stream, vectors, streams, fn, mix, squares, n, pre, collapsed);
  } else {
    LaunchProject<true>(stream, vectors, streams, fn, mix, squares, n, pre, collapsed);
  }
}

void CollapseNorm(cudaStream_t stream, ConstFloatView streams, int n, ConstFloatView pre, const WeightVector& weight,
                  float eps, FloatView normed, FloatView collapsed, const RowForms& forms) {
  if (normed.rows == 0) return;
  const bool vectors = TakesVectors(streams.data, streams.rows, streams.stride, normed.columns) &&
                       TakesVectors(normed) && TakesVectors(weight) &&
                       (collapsed.data == nullptr || TakesVectors(collapsed));
  LaunchEarly(stream, Grid(normed.rows), RowDotThreads(normed.columns, kMostCollapseThreads),
              RowDotBytes(normed.columns), vectors ? &CollapseNormKernel<true> : &CollapseNormKernel<false>, streams, n,
              pre, weight, eps, normed, collapsed, forms);
}

}  // namespace deepinfer::cuda
