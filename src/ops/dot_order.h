// The canonical dot product: the one summation order of every matrix product, on every backend.
//
// Floating-point addition is not associative, so "the same bits for any batch, chunking, thread count and backend"
// (promise 1) needs one written order. This is it; Linear, the projection inside MixStreams, Route's gate and the
// products inside Experts follow it everywhere. It is shaped for SIMD, but says nothing about vector width:
//
//  1. The K columns are cut into chunks of 128; the last chunk is padded with columns whose weight and input are 0.
//  2. Within a chunk there are 16 lanes; lane l owns the eight columns 8l .. 8l+7 and adds, starting from +0 and with
//     one fused multiply-add each, weight * x of its columns in the order 4, 0, 5, 1, 6, 2, 7, 3. `weight` is the
//     stored value before its block scale (the E4M3, E2M1, BF16 or F32 value).
//  3. Then accumulator[l] = fma(partial[l], scale, accumulator[l]), where scale is the power of two that the weight
//     format gives to those columns (one per 32 columns = 4 lanes; 1 for BF16 and F32). Accumulators start from +0.
//  4. At the end the lanes are added as a tree: lane l += lane l+8, then l+4, l+2, l+1.
//
// `x` is what stands in front of the weight: the F32 activations, or q * 2^s after activation quantisation (spec c.1),
// which F32 holds exactly. All products q * weight are exact too, so only the additions round.
//
// Thread-safety: pure functions.
#ifndef DEEPINFER_OPS_DOT_ORDER_H_
#define DEEPINFER_OPS_DOT_ORDER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace deepinfer {

inline constexpr int kDotChunk = 128;
inline constexpr int kDotLanes = 16;
inline constexpr int kDotLaneColumns = kDotChunk / kDotLanes;
inline constexpr int kDotScaleColumns = 32;
inline constexpr int kDotColumnOrder[kDotLaneColumns] = {4, 0, 5, 1, 6, 2, 7, 3};

/// Steps 2 and 3 for one full chunk: values, x [128]; scales [4] or null for 1.
[[gnu::always_inline]] inline void AddDotChunk(const float* values, const float* scales, const float* x,
                                               float* accumulators /* [16] */) {
  float partial[kDotLanes] = {};
  for (const int column : kDotColumnOrder) {
    for (int lane = 0; lane < kDotLanes; ++lane) {
      const int at = lane * kDotLaneColumns + column;
      partial[lane] = std::fma(values[at], x[at], partial[lane]);
    }
  }
  for (int lane = 0; lane < kDotLanes; ++lane) {
    const float scale = scales == nullptr ? 1.0f : scales[lane * kDotLaneColumns / kDotScaleColumns];
    accumulators[lane] = std::fma(partial[lane], scale, accumulators[lane]);
  }
}

/// values, x [columns]; scales [ceil(columns / 32)] or null for 1.
[[gnu::always_inline]] inline float CanonicalDot(const float* values, const float* scales, const float* x,
                                                 int64_t columns) {
  float accumulators[kDotLanes] = {};
  int64_t begin = 0;
  for (; begin + kDotChunk <= columns; begin += kDotChunk) {
    AddDotChunk(values + begin, scales == nullptr ? nullptr : scales + begin / kDotScaleColumns, x + begin,
                accumulators);
  }
  if (begin < columns) {
    const int64_t rest = columns - begin;
    float last_values[kDotChunk] = {};
    float last_x[kDotChunk] = {};
    float last_scales[kDotChunk / kDotScaleColumns] = {1, 1, 1, 1};
    std::copy_n(values + begin, rest, last_values);
    std::copy_n(x + begin, rest, last_x);
    if (scales != nullptr) {
      std::copy_n(scales + begin / kDotScaleColumns, (rest + kDotScaleColumns - 1) / kDotScaleColumns, last_scales);
    }
    AddDotChunk(last_values, last_scales, last_x, accumulators);
  }
  for (int half = kDotLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) accumulators[lane] += accumulators[lane + half];
  }
  return accumulators[0];
}

}  // namespace deepinfer

#endif  // DEEPINFER_OPS_DOT_ORDER_H_
