// What the index kernels share: the rows a position sees, and the canonical score of one key.
//
// Thread-safety: pure device functions.
#ifndef DEEPINFER_OPS_CUDA_INDEX_ROWS_CUH_
#define DEEPINFER_OPS_CUDA_INDEX_ROWS_CUH_

#include <cstdint>

#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"
#include "ops/dot_order.h"

namespace deepinfer::cuda {

__device__ __forceinline__ int64_t VisibleRows(const DeviceIndexSequence& sequence, int64_t t, int ratio) {
  return (sequence.first_position + (t - sequence.first_row) + 1) / ratio;
}

/// Which keys a row scores: all that it sees, or those of its candidate blocks.
struct IndexItems {
  const int32_t* blocks = nullptr;  ///< null: item i is key i
  int count = 0;
  int visible = 0;
  uint32_t size = 1;

  __device__ __forceinline__ IndexItems(const IndexArguments& arguments, const DeviceLists& candidates, int64_t t,
                                        int64_t visible_rows)
      : count(static_cast<int>(visible_rows)), visible(static_cast<int>(visible_rows)) {
    if (arguments.restrict_to_candidates && !arguments.publish) {
      size = static_cast<uint32_t>(arguments.block_size);
      blocks = candidates.rows + t * candidates.stride;
      count = candidates.counts[t] * arguments.block_size;
    }
  }
  /// May be `visible` or more in the last block.
  __device__ __forceinline__ int Key(int item) const {
    if (blocks == nullptr) return item;
    const uint32_t i = static_cast<uint32_t>(item);
    return static_cast<int>(static_cast<uint32_t>(blocks[i / size]) * size + i % size);
  }
};

/// The score of a key by half a warp (lanes `half_mask`), to the bit of the reference; all of them get it. query(i):
/// value i of the quantised [heads * width].
template <typename Query>
__device__ __forceinline__ float CanonicalScore(const IndexArguments& arguments, const uint8_t* values,
                                                const uint8_t* scales, const float* head_weights, unsigned half_mask,
                                                const Query& query) {
  const int lane = static_cast<int>(threadIdx.x) % kDotLanes;
  const int width = arguments.head_width;
  float score = 0;
  for (int head = 0; head < arguments.heads; ++head) {
    float accumulator = 0;
    for (int chunk = 0; chunk < width; chunk += kDotChunk) {
      float partial = 0;
      constexpr int kOrder[kDotLaneColumns] = {4, 0, 5, 1, 6, 2, 7, 3};
#pragma unroll
      for (int i = 0; i < kDotLaneColumns; ++i) {
        const int c = chunk + lane * kDotLaneColumns + kOrder[i];
        if (c < width) {
          partial = fmaf(UnpackChannel(RowFormat::kIndexFp4, values, scales, c), query(head * width + c), partial);
        }
      }
      accumulator += partial;
    }
    for (int half = kDotLanes / 2; half > 0; half /= 2) {
      accumulator += __shfl_xor_sync(half_mask, accumulator, half, kDotLanes);
    }
    score += head_weights[head] * fmaxf(accumulator, 0.0f);
  }
  return score;
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_INDEX_ROWS_CUH_
