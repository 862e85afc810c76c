// DeviceAttention: the attention ops from lists of the host, and which kernels it takes.
//
// Thread-safety, ownership: as Staging. Errors: the staging's.
#ifndef DEEPINFER_OPS_CUDA_DEVICE_ATTENTION_H_
#define DEEPINFER_OPS_CUDA_DEVICE_ATTENTION_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/staging.h"
#include "ops/ops.h"

namespace deepinfer::cuda {

/// The sequence of every row.
template <typename Sequence>
void ListOwners(std::span<const Sequence> sequences, int64_t rows, std::vector<int32_t>* owners) {
  owners->assign(static_cast<size_t>(rows), 0);
  for (size_t s = 0; s < sequences.size(); ++s) {
    std::fill_n(owners->begin() + sequences[s].first_row, sequences[s].row_count, static_cast<int32_t>(s));
  }
}

/// Elements from the first to the last of a list table.
template <typename T>
int64_t ListSpan(const TensorView<T>& lists) {
  return lists.rows == 0 ? 0 : (lists.rows - 1) * lists.stride + lists.columns;
}

/// Lists of one op, kept for the next.
struct AttentionLists {
  std::vector<int32_t> owners;
  std::vector<DeviceSequence> sequences;
};

/// Ops::Rope of rows on the device that the op has as InOut() or Out(); with their forms, where they are wanted.
void DeviceRope(Staging& s, FloatView x, int heads, ConstFloatView cos_sin, bool inverse);

/// Ops::Attention, and the inverse Rope of `out` by `cos_sin` where that is not empty; views on the device or on the
/// host. q has rows.
void DeviceAttention(Staging& s, CudaProducts products, AttentionLists& lists, ConstFloatView q, int heads,
                     std::span<const AttentionSequence> sequences, int window, const SelectedRows& selected,
                     const WeightVector& sink, float scale, ConstFloatView cos_sin, FloatView out);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_DEVICE_ATTENTION_H_
