// The RMS norm of a row by one block: the row stays in registers between its sum and the scaling.
#ifndef DEEPINFER_OPS_CUDA_RMS_NORM_CUH_
#define DEEPINFER_OPS_CUDA_RMS_NORM_CUH_

#include "ops/cuda/row_dot.cuh"
#include "ops/cuda/row_forms.cuh"

namespace deepinfer::cuda {

/// Most threads of a block for NormRow; a row of more than eight columns a thread is read again for the scaling.
inline constexpr int kMostNormThreads = 1024;

__device__ __forceinline__ float InverseOfSquares(float squares, int64_t columns, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(columns) + eps);
}

/// Of a row in memory, for the whole block.
template <bool kVector>
__device__ __forceinline__ float RowSquares(const float* row, int64_t columns, float* partials) {
  return BlockSquares<2>(columns, partials, [&](int64_t c, float(&values)[kDotLaneColumns]) {
    LoadColumns<kVector>(row, c, columns, values);
  });
}

__device__ __forceinline__ float InverseRms(const float* row, int64_t columns, float eps, float* partials) {
  const bool vectors = reinterpret_cast<uintptr_t>(row) % 16 == 0 && columns % kDotLaneColumns == 0;
  return InverseOfSquares(
      vectors ? RowSquares<true>(row, columns, partials) : RowSquares<false>(row, columns, partials), columns, eps);
}

/// Columns c .. c + 7, those before `columns`.
template <bool kVector>
__device__ __forceinline__ void StoreColumns(const float (&values)[kDotLaneColumns], int64_t c, int64_t columns,
                                             float* row) {
  if constexpr (kVector) {
    if (c >= columns) return;
    *reinterpret_cast<float4*>(row + c) = make_float4(values[0], values[1], values[2], values[3]);
    *reinterpret_cast<float4*>(row + c + 4) = make_float4(values[4], values[5], values[6], values[7]);
  } else {
#pragma unroll
    for (int i = 0; i < kDotLaneColumns; ++i) {
      if (c + i < columns) row[c + i] = values[i];
    }
  }
}

/// out = weight * x * rsqrt(mean(x^2) + eps), for the whole block, which waits for the kernel ahead after it has asked
/// for the weight. x(c, values) gives eight columns, 0 behind the last, and may be asked twice; `out` may be what it
/// reads. kVector: out and the weight take vectors. partials: RowDotBytes(columns). The row is row t of `forms`.
template <bool kVector, typename Inputs>
__device__ __forceinline__ void NormRow(int64_t columns, const Inputs& x, const WeightVector& weight, float eps,
                                        float* partials, float* out, const RowForms& forms, int64_t t) {
  const int64_t step = int64_t{blockDim.x} * kDotLaneColumns;
  const int chunks = DotChunks(columns);
  const int64_t end = int64_t{chunks} * kDotChunk;
  const int64_t first = int64_t{threadIdx.x} * kDotLaneColumns;
  float gain[kDotLaneColumns];
  LoadColumns<kVector>(weight, 0, first, columns, gain);
  WaitForKernelAhead();
  float own[kDotLaneColumns];
  x(first, own);
  if (first < end) partials[1 + threadIdx.x] = LanePartial(own, own);
  for (int64_t c = first + step; c < end; c += step) {
    float more[kDotLaneColumns];
    x(c, more);
    partials[1 + c / kDotLaneColumns] = LanePartial(more, more);
  }
  const float inverse = InverseOfSquares(SumOfPartials(chunks, partials), columns, eps);
  const auto scale = [&](int64_t c, float(&values)[kDotLaneColumns]) {
#pragma unroll
    for (int i = 0; i < kDotLaneColumns; ++i) values[i] = gain[i] * (values[i] * inverse);
    StoreColumns<kVector>(values, c, columns, out);
    // Forms have whole groups of 32 columns, so the four lanes of one are all here.
    if (c < columns) StoreForms(forms, values, t, c, columns);
  };
  scale(first, own);
  for (int64_t c = first + step; c < columns; c += step) {
    x(c, own);
    LoadColumns<kVector>(weight, 0, c, columns, gain);
    scale(c, own);
  }
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_RMS_NORM_CUH_
