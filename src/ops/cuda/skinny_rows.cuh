// Quantised activations as BF16 in the order that the skinny products read (skinny.h).
#ifndef DEEPINFER_OPS_CUDA_SKINNY_ROWS_CUH_
#define DEEPINFER_OPS_CUDA_SKINNY_ROWS_CUH_

#include <cstdint>

#include "ops/cuda/number_formats.cuh"
#include "ops/cuda/skinny.h"

namespace deepinfer::cuda {

/// Quantised by the scale of its group of 32 columns, as BF16.
__device__ __forceinline__ uint16_t QuantiseByScale(float value, uint8_t byte) {
  const float code = E4m3ToFloat(FloatToE4m3(value * E8m0ToFloat(static_cast<uint8_t>(254 - byte))));
  // Four significant bits: BF16 holds them.
  return static_cast<uint16_t>(__float_as_uint(code * E8m0ToFloat(byte)) >> 16);
}

/// Quantises a group of 32 columns, one a lane: this lane's as BF16.
__device__ __forceinline__ uint16_t QuantiseInGroup(float value) {
  return QuantiseByScale(value, Fp8ScaleByte(GroupMaximum(fabsf(value), 32)));
}

/// The same, stored in its place of the row that starts at `out`; a warp has 32 columns that follow one another.
__device__ __forceinline__ void StoreGroup(float value, ColumnOrder order, uint16_t* out, int64_t column) {
  out[PlaceOf(order, column)] = QuantiseInGroup(value);
}

/// The BF16 term of a value that is not quantised (exact_linear.h): the nearest, to even; `rest` keeps what is left.
__device__ __forceinline__ uint16_t TakeTerm(float& rest) {
  const uint32_t bits = __float_as_uint(rest);
  const auto term = static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);  // of finite values
  rest -= Bf16ToFloat(term);                                                            // exact
  return term;
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_SKINNY_ROWS_CUH_
