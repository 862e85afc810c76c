// Hyper-connections after a sublayer (spec c.3 `post`), one column of a row's streams.
#ifndef DEEPINFER_OPS_CUDA_SPREAD_CUH_
#define DEEPINFER_OPS_CUDA_SPREAD_CUH_

#include <cstdint>

namespace deepinfer::cuda {

inline constexpr int kMostStreams = 8;

/// Column d of the n streams of a row; `stream` is where that of stream 0 lies.
__device__ __forceinline__ void LoadStreams(const float* stream, int n, int64_t width, float (&source)[kMostStreams]) {
#pragma unroll
  for (int i = 0; i < kMostStreams; ++i) {
    if (i < n) source[i] = stream[i * width];
  }
}

/// stream[j] = post[j] * value + sum_i comb[i, j] * source[i]; comb lies behind post.
__device__ __forceinline__ void SpreadColumn(float value, const float* post, int n, int64_t width,
                                             const float (&source)[kMostStreams], float* stream) {
  const float* const comb = post + n;
  for (int j = 0; j < n; ++j) {
    float sum = post[j] * value;
#pragma unroll
    for (int i = 0; i < kMostStreams; ++i) {
      if (i < n) sum += comb[i * n + j] * source[i];
    }
    stream[j * width] = sum;
  }
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_SPREAD_CUH_
