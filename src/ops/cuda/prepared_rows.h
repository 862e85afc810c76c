// PreparedRows: activations as the tensor core products read them, kept as long as the F32 rows they were made from
// stay.
//
// Several weights read the same rows (w1 and w3, wq_a and wkv), so the rows are quantised or split once. Invariant: an
// entry equals what its rows in device memory hold; whoever writes there calls Forget(). Thread-safety: one thread.
// Ownership: owns its buffers, which are reused; one is valid until kSlots others were made.
#ifndef DEEPINFER_OPS_CUDA_PREPARED_ROWS_H_
#define DEEPINFER_OPS_CUDA_PREPARED_ROWS_H_

#include <array>
#include <cstdint>

#include "base/device_memory.h"
#include "base/tensor_view.h"
#include "ops/cuda/skinny.h"

namespace deepinfer::cuda {

enum class Preparation : uint8_t {
  kQuantised,  ///< QuantiseRows
  kTerms,      ///< SplitRows
};

class PreparedRows {
 public:
  /// The rows prepared so, if they were and have not been written since; null values: they are not there.
  Bf16Rows Find(ConstFloatView x, Preparation preparation, ColumnOrder order) const;

  /// Room for them, which Find() gives from now on. Null values: the GPU has no memory left.
  Bf16Rows Add(ConstFloatView x, Preparation preparation, ColumnOrder order);

  /// An op writes these rows.
  void Forget(ConstFloatView rows);

  int64_t bytes() const;

 private:
  static constexpr size_t kSlots = 6;

  struct Slot {
    ConstFloatView x;  // no data: free
    Preparation preparation = Preparation::kQuantised;
    ColumnOrder order = ColumnOrder::kPlain;
    DeviceMemory memory;

    Bf16Rows rows() const { return {reinterpret_cast<uint16_t*>(memory.data()), x.columns}; }
  };

  std::array<Slot, kSlots> slots_;
  size_t next_ = 0;
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_PREPARED_ROWS_H_
