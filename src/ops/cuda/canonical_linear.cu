// Linear in the canonical order (ops/dot_order.h), to the bit, for every format and shape: half a warp an output, lanes
// as the lanes of that order, a few activation rows at a time. Memory bound for one or two rows; the tensor core
// kernels (direct_linear.cu, exact_linear.cu) are for the others.
#include <cassert>

#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/few_outputs.cuh"
#include "ops/cuda/fp4_pairs.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/dot_order.h"

namespace deepinfer::cuda {
namespace {

constexpr int kOutputsPerBlock = kThreads / kDotLanes;
constexpr int kRowsAtOnce = 4;

__global__ void QuantiseKernel(ConstFloatView x, FloatView out) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t group = threadIdx.x / 32; group < x.columns / 32; group += blockDim.x / 32) {
    const float value = RowOf(x, blockIdx.x)[group * 32 + lane];
    const uint8_t byte = Fp8ScaleByte(GroupMaximum(fabsf(value), 32));
    const float code = E4m3ToFloat(FloatToE4m3(value * E8m0ToFloat(static_cast<uint8_t>(254 - byte))));
    RowOf(out, blockIdx.x)[group * 32 + lane] = code * E8m0ToFloat(byte);
  }
}

// Eight consecutive stored values before their scale; `column` is a multiple of 8. Columns from `columns` on are 0.
template <WeightFormat format>
__device__ __forceinline__ void LoadEight(const uint8_t* row, int64_t column, int64_t columns, float* values) {
  if constexpr (format == WeightFormat::kF8Block32 || format == WeightFormat::kF8Row32) {
    const uint2 bytes = column < columns ? __ldg(reinterpret_cast<const uint2*>(row + column)) : make_uint2(0, 0);
    const uint32_t words[2] = {bytes.x, bytes.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = Half2ToFloat2(E4m3PairToHalf2(static_cast<uint16_t>(words[i / 2] >> (16 * (i % 2)))));
      values[2 * i] = pair.x;
      values[2 * i + 1] = pair.y;
    }
  } else if constexpr (format == WeightFormat::kF4Row32) {
    const uint32_t word =
        column < columns ? FromPairOrder(__ldg(reinterpret_cast<const uint32_t*>(row + column / 2))) : 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = E2m1ToFloat(word >> (4 * i));
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      values[i] = 0;
      if (column + i < columns) {
        values[i] = format == WeightFormat::kF32
                        ? __ldg(reinterpret_cast<const float*>(row) + column + i)
                        : Bf16ToFloat(__ldg(reinterpret_cast<const uint16_t*>(row) + column + i));
      }
    }
  }
}

template <WeightFormat format>
__global__ void CanonicalKernel(ConstFloatView x, WeightMatrix weight, int64_t outputs_per_group, int64_t row_bytes,
                                FloatView out) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int lane = static_cast<int>(threadIdx.x) % kDotLanes;
  int64_t output = int64_t{blockIdx.x} * kOutputsPerBlock + threadIdx.x / kDotLanes;
  const bool exists = output < weight.rows;
  if (!exists) output = weight.rows - 1;  // all lanes take part in the shuffles below
  const int64_t first = int64_t{blockIdx.y} * kRowsAtOnce;
  const int64_t columns = weight.columns;
  const uint8_t* row = weight.data + output * row_bytes;
  const uint8_t* scales = nullptr;
  if constexpr (format != WeightFormat::kF32 && format != WeightFormat::kBF16) {
    scales = weight.scale + (format == WeightFormat::kF8Block32 ? output / 32 : output) * (columns / 32);
  }
  const float* inputs[kRowsAtOnce];
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const int64_t t = first + r < x.rows ? first + r : x.rows - 1;
    inputs[r] = RowOf(x, t) + output / outputs_per_group * columns;
  }
  float accumulators[kRowsAtOnce] = {};
  for (int64_t chunk = 0; chunk < columns; chunk += kDotChunk) {
    const int64_t column = chunk + lane * kDotLaneColumns;
    float values[kDotLaneColumns];
    LoadEight<format>(row, column, columns, values);
    float scale = 1;
    if constexpr (format != WeightFormat::kF32 && format != WeightFormat::kBF16) {
      if (column < columns) scale = E8m0ToFloat(scales[column / 32]);
    }
    constexpr int kOrder[kDotLaneColumns] = {4, 0, 5, 1, 6, 2, 7, 3};
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      float partial = 0;
#pragma unroll
      for (int i = 0; i < kDotLaneColumns; ++i) {
        const int64_t c = column + kOrder[i];
        partial = fmaf(values[kOrder[i]], c < columns ? inputs[r][c] : 0.0f, partial);
      }
      accumulators[r] = fmaf(partial, scale, accumulators[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    float sum = accumulators[r];
    for (int half = kDotLanes / 2; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half, kDotLanes);
    if (lane == 0 && exists && first + r < x.rows) RowOf(out, first + r)[output] = sum;
  }
}

// The same bits; for plain weights with so few outputs or rows that CanonicalKernel would leave the GPU idle.
template <bool kVector>
__global__ void __launch_bounds__(kMostFewOutputsThreads)
    FewOutputsKernel(ConstFloatView x, WeightMatrix weight, int64_t outputs_per_group, FloatView out, float* squares) {
  StartKernelBehind();
  extern __shared__ float partials[];
  FewOutputsBlock<kVector>(x, weight, outputs_per_group, blockIdx.x, blockIdx.y, out, squares, partials);
}

// squares: null, or a block more for each row.
void LaunchFewOutputs(cudaStream_t stream, ConstFloatView x, const WeightMatrix& weight, int64_t outputs_per_group,
                      FloatView out, float* squares) {
  const dim3 blocks(static_cast<unsigned>(weight.rows) + (squares != nullptr), static_cast<unsigned>(x.rows));
  LaunchEarly(stream, blocks, FewOutputsThreads(weight.columns), RowDotBytes(weight.columns),
              FewOutputsTakesVectors(x, weight) ? &FewOutputsKernel<true> : &FewOutputsKernel<false>, x, weight,
              outputs_per_group, out, squares);
}

template <WeightFormat format>
void Launch(cudaStream_t stream, ConstFloatView x, const WeightMatrix& weight, int groups, FloatView out) {
  const dim3 grid(Blocks(weight.rows, kOutputsPerBlock), Blocks(x.rows, kRowsAtOnce));
  constexpr bool kPlain = format == WeightFormat::kF32 || format == WeightFormat::kBF16;
  constexpr unsigned kFullGpu = 264;
  if (kPlain && grid.x * grid.y < kFullGpu && x.rows < 65536) {
    return LaunchFewOutputs(stream, x, weight, weight.rows / groups, out, nullptr);
  }
  LaunchEarly(stream, grid, kThreads, 0, CanonicalKernel<format>, x, weight, weight.rows / groups, weight.row_bytes(),
              out);
}

}  // namespace

void QuantiseActivations(cudaStream_t stream, ConstFloatView x, FloatView out) {
  if (x.rows > 0) LaunchEarly(stream, static_cast<unsigned>(x.rows), kThreads, 0, QuantiseKernel, x, out);
}

void LinearAndSquares(cudaStream_t stream, ConstFloatView x, const WeightMatrix& weight, FloatView out,
                      float* squares) {
  if (x.rows > 0) LaunchFewOutputs(stream, x, weight, weight.rows, out, squares);
}

void CanonicalLinear(cudaStream_t stream, ConstFloatView x, const WeightMatrix& weight, int groups, FloatView out) {
  if (x.rows == 0 || weight.rows == 0) return;
  switch (weight.format) {
    case WeightFormat::kF32:
      return Launch<WeightFormat::kF32>(stream, x, weight, groups, out);
    case WeightFormat::kBF16:
      return Launch<WeightFormat::kBF16>(stream, x, weight, groups, out);
    case WeightFormat::kF8Block32:
      return Launch<WeightFormat::kF8Block32>(stream, x, weight, groups, out);
    case WeightFormat::kF4Row32:
      return Launch<WeightFormat::kF4Row32>(stream, x, weight, groups, out);
    case WeightFormat::kF8Row32:
      return Launch<WeightFormat::kF8Row32>(stream, x, weight, groups, out);
  }
}

}  // namespace deepinfer::cuda
