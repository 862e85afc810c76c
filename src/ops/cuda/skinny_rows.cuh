// Quantised activations as BF16 in the order that the skinny products read (skinny.h).
#ifndef DEEPINFER_OPS_CUDA_SKINNY_ROWS_CUH_
#define DEEPINFER_OPS_CUDA_SKINNY_ROWS_CUH_

#include <cstdint>

#include "ops/cuda/number_formats.cuh"
#include "ops/cuda/skinny.h"

namespace deepinfer::cuda {

/// Where column `c` < 32 of a group lies.
__device__ __forceinline__ int PlaceOf(ColumnOrder order, int c) {
  switch (order) {
    case ColumnOrder::kPlain:
      return c;
    case ColumnOrder::kFp8:  // 0 2 1 3
      return (c & ~3) | (c & 1) << 1 | (c >> 1 & 1);
    case ColumnOrder::kFp4:  // 0 4 1 5 2 6 3 7
      return (c & ~7) | (c & 3) << 1 | (c >> 2 & 1);
  }
  return c;
}

/// Quantises a group of 32 columns, one a lane: this lane's as BF16.
__device__ __forceinline__ uint16_t QuantiseInGroup(float value) {
  const uint8_t byte = Fp8ScaleByte(GroupMaximum(fabsf(value), 32));
  const float code = E4m3ToFloat(FloatToE4m3(value * E8m0ToFloat(static_cast<uint8_t>(254 - byte))));
  // Four significant bits: BF16 holds them.
  return static_cast<uint16_t>(__float_as_uint(code * E8m0ToFloat(byte)) >> 16);
}

/// The same, stored at `out`.
__device__ __forceinline__ void StoreGroup(float value, ColumnOrder order, uint16_t* out, int lane) {
  out[PlaceOf(order, lane)] = QuantiseInGroup(value);
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_SKINNY_ROWS_CUH_
