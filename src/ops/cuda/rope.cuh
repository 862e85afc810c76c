// Rotation of adjacent pairs of channels (spec c.4).
#ifndef DEEPINFER_OPS_CUDA_ROPE_CUH_
#define DEEPINFER_OPS_CUDA_ROPE_CUH_

#include <cstdint>

namespace deepinfer::cuda {

/// Pair i of `pairs`; table: their cosines, then their sines.
__device__ __forceinline__ void RotatePair(float& first, float& second, const float* table, int64_t pairs, int64_t i,
                                           bool inverse) {
  const float cosine = table[i];
  const float sine = inverse ? -table[pairs + i] : table[pairs + i];
  const float a = first;
  const float b = second;
  first = a * cosine - b * sine;
  second = a * sine + b * cosine;
}

/// Channels c .. c + 3 of a head of `width`, whose last 2 * pairs channels are rotated; c, width and those are
/// multiples of 4.
__device__ __forceinline__ void RotateFour(float (&values)[4], int64_t c, int64_t width, const float* table,
                                           int64_t pairs, bool inverse) {
  const int64_t i = (c - (width - 2 * pairs)) / 2;
  if (c < width - 2 * pairs) return;
  RotatePair(values[0], values[1], table, pairs, i, inverse);
  RotatePair(values[2], values[3], table, pairs, i + 1, inverse);
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_ROPE_CUH_
