// The stored number formats on the device: the same values and roundings as base/dtype.h and reference/quantise.h.
//
// Thread-safety: pure device functions. Sources: OCP MX specification; spec c.1, c.7.
#ifndef DEEPINFER_OPS_CUDA_NUMBER_FORMATS_CUH_
#define DEEPINFER_OPS_CUDA_NUMBER_FORMATS_CUH_

#include <cuda_fp16.h>

#include <cstdint>

namespace deepinfer::cuda {

__device__ __forceinline__ float Bf16ToFloat(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }

/// Two E4M3 bytes as two F16, exactly; the low byte goes to the low half.
__device__ __forceinline__ uint32_t E4m3PairToHalf2(uint16_t bytes) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(bytes));
  return halves;
}

__device__ __forceinline__ float2 Half2ToFloat2(uint32_t halves) {
  __half2 pair;
  __builtin_memcpy(&pair, &halves, 4);
  return __half22float2(pair);
}

__device__ __forceinline__ float E4m3ToFloat(uint8_t byte) { return Half2ToFloat2(E4m3PairToHalf2(byte)).x; }

/// Nearest E4M3 bytes of two values, ties to even, saturating; `low` goes to the low byte.
__device__ __forceinline__ uint16_t FloatPairToE4m3(float low, float high) {
  uint16_t bytes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bytes) : "f"(high), "f"(low));
  return bytes;
}
__device__ __forceinline__ uint8_t FloatToE4m3(float value) {
  return static_cast<uint8_t>(FloatPairToE4m3(value, 0.0f));
}

/// An E2M1 code's three magnitude bits are the top two exponent bits and one mantissa bit of an F16 that is 2^14 too
/// small.
__device__ __forceinline__ float E2m1ToFloat(uint32_t nibble) {
  const uint32_t magnitude = (nibble & 7u) << 22;  // as F32: 2^126 too small
  return __uint_as_float((nibble & 8u) << 28 | __float_as_uint(__uint_as_float(magnitude) * 0x1p126f));
}

__device__ __forceinline__ uint8_t FloatToE2m1(float value) {
  const float m = fabsf(value);
  const int code = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) + (m >= 3.5f) + (m > 5.0f);
  return static_cast<uint8_t>((__float_as_uint(value) >> 28 & 8u) | static_cast<uint32_t>(code));
}

__device__ __forceinline__ float E8m0ToFloat(uint8_t byte) {
  if (byte == 255) return __uint_as_float(0x7fffffffu);
  return __uint_as_float(byte == 0 ? 0x00400000u : uint32_t{byte} << 23);
}

__device__ __forceinline__ uint8_t CeilPowerOfTwoByte(float value) {
  const uint32_t bits = __float_as_uint(value);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7fffffu) != 0));
}

/// Scale bytes from the largest magnitude of a group.
__device__ __forceinline__ uint8_t Fp8ScaleByte(float amax) {
  return CeilPowerOfTwoByte(fmaxf(amax, 1e-4f) * (1.0f / 448));
}
__device__ __forceinline__ uint8_t IndexFp4ScaleByte(float amax) {
  return CeilPowerOfTwoByte(fmaxf(amax, 0x1.8p-124f) * (1.0f / 6));
}
__device__ __forceinline__ uint8_t CompressedFp4ScaleByte(float amax) {
  return FloatToE4m3(fmaxf(amax, 0x1.8p-7f) / 6);
}

/// Largest magnitude over the `lanes` neighbouring lanes (a power of two).
__device__ __forceinline__ float GroupMaximum(float magnitude, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    magnitude = fmaxf(magnitude, __shfl_xor_sync(0xffffffffu, magnitude, step));
  }
  return magnitude;
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_NUMBER_FORMATS_CUH_
