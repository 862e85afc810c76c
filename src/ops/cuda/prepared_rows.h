// PreparedRows: activations as the tensor core products read them, kept as long as the F32 rows they were made from
// stay.
//
// Several weights read the same rows (w1 and w3, wq_a and wkv), so the rows are quantised or split once; and an op that
// writes few rows anew prepares them itself as they were read before, in its own launch (AddWanted). Invariant: an
// entry equals what its rows in device memory hold; whoever writes there calls Forget(), then AddWanted() if it writes
// what that gives. Thread-safety: one thread. Ownership: owns its buffers, which are reused; one is valid until
// kFewSlots or kManySlots others of few or many rows were made, or a step begins.
#ifndef DEEPINFER_OPS_CUDA_PREPARED_ROWS_H_
#define DEEPINFER_OPS_CUDA_PREPARED_ROWS_H_

#include <array>
#include <cstdint>
#include <unordered_map>

#include "base/device_memory.h"
#include "base/tensor_view.h"
#include "ops/cuda/command_list.h"
#include "ops/cuda/row_forms.h"
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

  /// Room for them, which Find() gives from now on. Null values: the GPU has no memory left. A buffer that has to grow
  /// is freed: `commands` that may read it are launched first.
  Bf16Rows Add(ConstFloatView x, Preparation preparation, ColumnOrder order, CommandList& commands);

  /// The forms in which rows at this address were prepared before, for the op that writes x and them; Find() gives them
  /// from now on. None for more than kFewRows, where a launch costs little beside the work.
  RowForms AddWanted(ConstFloatView x, CommandList& commands);

  /// A step begins: slots are given from the first on, so that steps which do the same get the same addresses.
  void BeginStep() { next_few_ = next_many_ = 0; }

  /// An op writes these rows.
  void Forget(ConstFloatView rows);

  int64_t bytes() const;

  static constexpr int64_t kFewRows = 64;

 private:
  // A layer's input alone is read in three forms; buffers of many rows are large.
  static constexpr size_t kFewSlots = 12;
  static constexpr size_t kManySlots = 6;

  struct Slot {
    ConstFloatView x;  // no data: free
    Preparation preparation = Preparation::kQuantised;
    ColumnOrder order = ColumnOrder::kPlain;
    DeviceMemory memory;

    Bf16Rows rows() const { return {reinterpret_cast<uint16_t*>(memory.data()), x.columns}; }
  };

  std::array<Slot, kFewSlots + kManySlots> slots_;  // of few rows, then of many
  size_t next_few_ = 0;
  size_t next_many_ = 0;
  std::unordered_map<const float*, uint32_t> wanted_;  // forms by the address of rows, a bit each
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_PREPARED_ROWS_H_
