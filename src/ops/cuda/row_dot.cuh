// The canonical dot product (ops/dot_order.h) of one row by one block of threads, to the bit.
//
// Chunks of 128 columns are independent until their 16 partial sums join the accumulators, so half warps take chunks in
// turn, and sixteen threads then add them in order.
#ifndef DEEPINFER_OPS_CUDA_ROW_DOT_CUH_
#define DEEPINFER_OPS_CUDA_ROW_DOT_CUH_

#include <cstdint>

#include "ops/dot_order.h"

namespace deepinfer::cuda {

/// Sum over `columns` of values(c) * x(c), for the whole block; every thread gets it. partials: shared memory for
/// 16 * ceil(columns / 128) floats and one more.
template <typename Values, typename Inputs>
__device__ float BlockCanonicalDot(int64_t columns, float* partials, const Values& values, const Inputs& x) {
  const int half_warp = static_cast<int>(threadIdx.x) / kDotLanes;
  const int half_warps = static_cast<int>(blockDim.x) / kDotLanes;
  const int lane = static_cast<int>(threadIdx.x) % kDotLanes;
  const int chunks = static_cast<int>((columns + kDotChunk - 1) / kDotChunk);
  __syncthreads();  // partials may still be read from the call before
  for (int chunk = half_warp; chunk < chunks; chunk += half_warps) {
    float partial = 0;
    constexpr int kOrder[kDotLaneColumns] = {4, 0, 5, 1, 6, 2, 7, 3};
#pragma unroll
    for (int i = 0; i < kDotLaneColumns; ++i) {
      const int64_t c = int64_t{chunk} * kDotChunk + lane * kDotLaneColumns + kOrder[i];
      if (c < columns) partial = fmaf(values(c), x(c), partial);
    }
    partials[1 + chunk * kDotLanes + lane] = partial;
  }
  __syncthreads();
  if (threadIdx.x < 32) {  // both halves of the warp do the same
    float sum = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) sum += partials[1 + chunk * kDotLanes + lane];
    for (int half = kDotLanes / 2; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half, kDotLanes);
    if (threadIdx.x == 0) partials[0] = sum;
  }
  __syncthreads();
  return partials[0];
}

/// Bytes of `partials`.
inline int64_t RowDotBytes(int64_t columns) { return (1 + (columns + kDotChunk - 1) / kDotChunk * kDotLanes) * 4; }

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_ROW_DOT_CUH_
