// Which keys a row attends, in order: window positions ascending, then selected rows ascending (Ops::Attention).
//
// Thread-safety: pure functions on device views.
#ifndef DEEPINFER_OPS_CUDA_KEY_LIST_CUH_
#define DEEPINFER_OPS_CUDA_KEY_LIST_CUH_

#include <cstdint>

#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"

namespace deepinfer::cuda {

struct KeyRange {
  int64_t oldest = 0;  ///< first window position
  int window_count = 0;
  int selected_count = 0;
  __device__ int count() const { return window_count + selected_count; }
};

struct KeyRow {
  const uint8_t* values;
  const uint8_t* scales;
  RowFormat format;
};

__device__ inline KeyRange KeysOf(const DeviceSequence& sequence, int64_t t, int window, const DeviceLists& selected) {
  const int64_t position = sequence.first_position + (t - sequence.first_row);
  int64_t oldest = sequence.whole_block ? sequence.first_position - window : position - window + 1;
  const int64_t newest = sequence.whole_block ? sequence.first_position + sequence.row_count - 1 : position;
  if (oldest < sequence.window_start) oldest = sequence.window_start;
  if (oldest < 0) oldest = 0;
  KeyRange range;
  range.oldest = oldest;
  range.window_count = newest >= oldest ? static_cast<int>(newest - oldest + 1) : 0;
  range.selected_count = selected.counts == nullptr ? 0 : selected.counts[t];
  return range;
}

/// Key `j` < range.count() of row `t`.
__device__ inline KeyRow KeyAt(const DeviceSequence& sequence, const KeyRange& range, const DeviceLists& selected,
                               int64_t t, int j) {
  if (j < range.window_count) {
    const int64_t position = range.oldest + j;
    const bool in_ring = position < sequence.first_position;
    const PackedRows& rows = in_ring ? sequence.ring : sequence.fresh;
    const int64_t row = in_ring ? position % sequence.ring_slots : position - sequence.first_position;
    return {RowValues(rows, row), RowScales(rows, row), rows.format};
  }
  const int64_t row = selected.rows[t * selected.stride + (j - range.window_count)];
  return {RowValues(sequence.compressed, row), RowScales(sequence.compressed, row), sequence.compressed.format};
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_KEY_LIST_CUH_
