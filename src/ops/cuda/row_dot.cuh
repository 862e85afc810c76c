// The canonical dot product (ops/dot_order.h) of one row by one block of threads, to the bit.
//
// Chunks of 128 columns are independent until their 16 partial sums join the accumulators, so a thread is a lane of
// some chunks, and sixteen threads then add these in order. A lane's eight columns lie side by side: two loads of 16
// bytes, and those of all its chunks are under way before the first product.
#ifndef DEEPINFER_OPS_CUDA_ROW_DOT_CUH_
#define DEEPINFER_OPS_CUDA_ROW_DOT_CUH_

#include <algorithm>
#include <cstdint>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/dot_order.h"

namespace deepinfer::cuda {

/// Whether eight columns of any row can be loaded as 16 bytes each four: kVector below.
inline bool TakesVectors(const void* data, int64_t rows, int64_t stride, int64_t columns) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && (rows <= 1 || stride % 4 == 0) &&
         columns % kDotLaneColumns == 0;
}
inline bool TakesVectors(const ConstFloatView& x) { return TakesVectors(x.data, x.rows, x.stride, x.columns); }
inline bool TakesVectors(const WeightVector& v) { return TakesVectors(v.data, 1, v.size, v.size); }

/// Columns c .. c + 7 of a row, 0 from `columns` on; c is a multiple of 8.
template <bool kVector>
__device__ __forceinline__ void LoadColumns(const float* row, int64_t c, int64_t columns,
                                            float (&out)[kDotLaneColumns]) {
  if constexpr (kVector) {
    float4 low = make_float4(0, 0, 0, 0), high = low;
    if (c < columns) {
      low = *reinterpret_cast<const float4*>(row + c);
      high = *reinterpret_cast<const float4*>(row + c + 4);
    }
    out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
    out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
  } else {
#pragma unroll
    for (int i = 0; i < kDotLaneColumns; ++i) out[i] = c + i < columns ? row[c + i] : 0.0f;
  }
}

/// The same of a stored vector from element `first` on, a multiple of 8 with kVector.
template <bool kVector>
__device__ __forceinline__ void LoadColumns(const WeightVector& vector, int64_t first, int64_t c, int64_t columns,
                                            float (&out)[kDotLaneColumns]) {
  if (!vector.is_bf16) {
    return LoadColumns<kVector>(reinterpret_cast<const float*>(vector.data) + first, c, columns, out);
  }
  const uint16_t* const row = reinterpret_cast<const uint16_t*>(vector.data) + first;
  if constexpr (kVector) {
    uint4 words = make_uint4(0, 0, 0, 0);
    if (c < columns) words = *reinterpret_cast<const uint4*>(row + c);
#pragma unroll
    for (int i = 0; i < kDotLaneColumns / 2; ++i) {
      out[2 * i] = __uint_as_float(Word(words, i) << 16);
      out[2 * i + 1] = __uint_as_float(Word(words, i) & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kDotLaneColumns; ++i) out[i] = c + i < columns ? Bf16ToFloat(row[c + i]) : 0.0f;
  }
}

/// Step 2 of the order for one lane.
__device__ __forceinline__ float LanePartial(const float (&values)[kDotLaneColumns],
                                             const float (&x)[kDotLaneColumns]) {
  constexpr int kOrder[kDotLaneColumns] = {4, 0, 5, 1, 6, 2, 7, 3};
  float partial = 0;
#pragma unroll
  for (int i = 0; i < kDotLaneColumns; ++i) partial = fmaf(values[kOrder[i]], x[kOrder[i]], partial);
  return partial;
}

__device__ __forceinline__ int DotChunks(int64_t columns) {
  return static_cast<int>((columns + kDotChunk - 1) / kDotChunk);
}

/// Steps 3 and 4 by a warp, whose halves do the same; every lane gets the sum. The partial sum of columns c .. c + 7 is
/// partials[1 + c / 8].
__device__ __forceinline__ float WarpSumOfPartials(int chunks, const float* partials) {
  const float* const own = partials + 1 + threadIdx.x % kDotLanes;
  constexpr int kGroup = 16;  // chunks whose loads are under way while those before are added
  float ahead[kGroup];
  const auto load = [&](int first) {
#pragma unroll
    // A zero behind the last changes nothing: the sum, which starts from +0, is never -0.
    for (int i = 0; i < kGroup; ++i) ahead[i] = first + i < chunks ? own[(first + i) * kDotLanes] : 0.0f;
  };
  load(0);
  float sum = 0;
  for (int first = 0; first < chunks; first += kGroup) {
    float now[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) now[i] = ahead[i];
    load(first + kGroup);
#pragma unroll
    for (int i = 0; i < kGroup; ++i) sum += now[i];
  }
  for (int half = kDotLanes / 2; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half, kDotLanes);
  return sum;
}

/// The same for the whole block; every thread gets the sum. `partials` may be written again at once.
__device__ __forceinline__ float SumOfPartials(int chunks, float* partials) {
  __syncthreads();
  if (threadIdx.x < 32) {
    const float sum = WarpSumOfPartials(chunks, partials);
    if (threadIdx.x == 0) partials[0] = sum;
  }
  __syncthreads();
  return partials[0];
}

/// The partial sums of columns first + k * step .. + 7 for each k, as far as `end`.
template <int kAtOnce>
__device__ __forceinline__ void StorePartials(const float (&a)[kAtOnce][kDotLaneColumns],
                                              const float (&b)[kAtOnce][kDotLaneColumns], int64_t first, int64_t step,
                                              int64_t end, float* partials) {
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) {
    const int64_t c = first + k * step;
    if (c < end) partials[1 + c / kDotLaneColumns] = LanePartial(a[k], b[k]);
  }
}

/// Sum over `columns` of values times x, for the whole block; every thread gets it. values(c, out) and x(c, out) give
/// eight columns, 0 behind the last; every thread calls between() once, after it has asked for its first values.
/// partials: shared memory of RowDotBytes(columns). kAtOnce chunks of a thread are loaded together.
template <int kAtOnce, typename Values, typename Inputs, typename Between>
__device__ __forceinline__ float BlockCanonicalDot(int64_t columns, float* partials, const Values& values,
                                                   const Inputs& x, const Between& between) {
  const int64_t step = int64_t{blockDim.x} * kDotLaneColumns;
  const int chunks = DotChunks(columns);
  const int64_t end = int64_t{chunks} * kDotChunk;
  int64_t first = int64_t{threadIdx.x} * kDotLaneColumns;
  float a[kAtOnce][kDotLaneColumns];
  const auto load_values = [&] {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) values(first + k * step, a[k]);
  };
  load_values();
  between();
  while (true) {
    float b[kAtOnce][kDotLaneColumns];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) x(first + k * step, b[k]);
    StorePartials(a, b, first, step, end, partials);
    first += kAtOnce * step;
    if (first >= end) break;
    load_values();
  }
  return SumOfPartials(chunks, partials);
}

/// The same of x times itself.
template <int kAtOnce, typename Inputs>
__device__ __forceinline__ float BlockSquares(int64_t columns, float* partials, const Inputs& x) {
  const int64_t step = int64_t{blockDim.x} * kDotLaneColumns;
  const int chunks = DotChunks(columns);
  const int64_t end = int64_t{chunks} * kDotChunk;
  for (int64_t first = int64_t{threadIdx.x} * kDotLaneColumns; first < end; first += kAtOnce * step) {
    float own[kAtOnce][kDotLaneColumns];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) x(first + k * step, own[k]);
    StorePartials(own, own, first, step, end, partials);
  }
  return SumOfPartials(chunks, partials);
}

/// Floats and bytes of `partials`.
__host__ __device__ constexpr int RowDotFloats(int64_t columns) {
  return static_cast<int>(1 + (columns + kDotChunk - 1) / kDotChunk * kDotLanes);
}
inline int RowDotBytes(int64_t columns) { return RowDotFloats(columns) * 4; }

/// Threads of a block that has a lane for each eight columns of a row, up to `most`.
inline int RowDotThreads(int64_t columns, int most) {
  const int64_t lanes = (columns + kDotChunk - 1) / kDotChunk * kDotLanes;
  return static_cast<int>(std::clamp<int64_t>((lanes + 31) / 32 * 32, 32, most));
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_ROW_DOT_CUH_
