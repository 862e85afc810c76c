// Staging: views of an op as device views, for the length of the op.
//
// Memory of the device passes through; host memory is copied: In() to the GPU, Out() gives room and copies back in
// Finish(), InOut() does both, and such an op waits for its kernels. Thread-safety: one thread. Ownership: device
// pieces belong to the arena, weight copies to the store. Errors: kept by the command list; after one nothing is
// launched and Finish() fills host outputs with NaN.
#ifndef DEEPINFER_OPS_CUDA_STAGING_H_
#define DEEPINFER_OPS_CUDA_STAGING_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "deepinfer/status.h"
#include "ops/cuda/command_list.h"
#include "ops/cuda/device_arena.h"
#include "ops/cuda/prepared_rows.h"
#include "ops/cuda/weight_store.h"
#include "ops/packed_rows.h"

namespace deepinfer::cuda {

/// Address ranges that Ops::Allocate has given, also those that were given back.
class DeviceRanges {
 public:
  void Add(const void* data, int64_t bytes);
  bool Contains(const void* address) const;

 private:
  std::map<const uint8_t*, const uint8_t*> ranges_;  // begin -> end, apart from one another
};

class Staging {
 public:
  /// `store` null: weights are copied for this op only.
  Staging(CommandList& commands, DeviceArena& arena, WeightStore* store, PreparedRows& prepared,
          const DeviceRanges& ranges)
      : commands_(commands), arena_(arena), store_(store), prepared_(prepared), ranges_(ranges) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  CommandList& commands() { return commands_; }
  bool ok() const { return commands_.ok(); }
  bool OnDevice(const void* address) const { return ranges_.Contains(address); }

  template <typename Function, typename... Arguments>
  void Launch(Function* function, Arguments&&... arguments) {
    if (ok()) commands_.Add(function, std::forward<Arguments>(arguments)...);
  }

  ConstFloatView In(ConstFloatView view);
  FloatView Out(FloatView view);
  FloatView InOut(FloatView view);
  /// A view that Out() gave is written once more, by a command of another branch.
  void WillWrite(ConstFloatView device);
  /// Rows of the device as the tensor core products read them.
  Bf16Rows Prepare(ConstFloatView x, Preparation preparation, ColumnOrder order);
  /// PreparedRows::AddWanted for rows of Out() or InOut(), asked for after that: the op writes them and what this
  /// gives.
  RowForms Forms(ConstFloatView out);
  /// Device memory only; rows start at 16 bytes.
  FloatView Temporary(int64_t rows, int64_t columns);
  template <typename T>
  T* Room(int64_t count) {
    return static_cast<T*>(Take(count * static_cast<int64_t>(sizeof(T))));
  }
  /// A list that the host holds.
  template <typename T>
  const T* Array(std::span<const T> host) {
    return static_cast<const T*>(commands_.Upload(host.data(), static_cast<int64_t>(host.size_bytes())));
  }
  /// `count` elements that lie on the device or on the host; they come in, and go back in Finish().
  template <typename T>
  T* InOutArray(T* view, int64_t count) {
    if (OnDevice(view)) {
      commands_.WillRead(view, count * static_cast<int64_t>(sizeof(T)));
      commands_.WillWrite(view, count * static_cast<int64_t>(sizeof(T)));
      return view;
    }
    T* device = Room<T>(count);
    CopyIn(device, view, count * static_cast<int64_t>(sizeof(T)));
    CopyBack(view, device, count * static_cast<int64_t>(sizeof(T)));
    return device;
  }
  /// FP4 codes of weights come in pair order (fp4_pairs.h).
  WeightMatrix Weight(const WeightMatrix& host);
  /// The same for kernels that read each byte once, by plain loads: a weight that passes (WeightStore) is read in host
  /// memory.
  WeightMatrix WeightInPlace(const WeightMatrix& host);
  /// Whether the list of weights has it.
  bool Holds(const WeightMatrix& host) const { return store_ != nullptr && store_->Holds(host.data); }
  bool Passes(const WeightMatrix& host) const { return store_ != nullptr && store_->Passes(host.data); }
  WeightVector Vector(const WeightVector& host);
  /// WeightStore::Table and ::FindTable; without a store, a table of this op only.
  const uint8_t* FindTable(const void* weights) const {
    return store_ == nullptr ? nullptr : store_->FindTable(weights);
  }
  const uint8_t* Table(const void* weights, const void* table, int64_t bytes);
  /// A table of this op beside weights that pass.
  const uint8_t* TableOfCopies(std::span<const uint8_t> table);
  /// Rows 0 .. count - 1 with the list of their pages on the device; pages of the host are copied.
  PackedRows Rows(const PackedRows& rows, int64_t count);
  /// Of a weight's bytes that were copied to the device as they are released: FP4 codes to the order of the kernels.
  void Order(uint8_t* copy, int64_t bytes, WeightBytes kind) {
    if (kind == WeightBytes::kFp4Codes) Launch(&OrderFp4, copy, bytes);
  }
  /// Enqueued at once: for what is too large for Array().
  void CopyIn(void* device, const void* host, int64_t bytes);
  void CopyBack(void* host, const void* device, int64_t bytes) { copies_.push_back({host, device, bytes}); }

  /// Copies outputs to the host and waits, where there are any; safe to call twice.
  Status Finish();
  /// The same where the command list's status is looked at later.
  void End() { (void)Finish(); }

 private:
  struct Copy {
    void* host;
    const void* device;
    int64_t bytes;
  };
  struct Output {
    FloatView host;
    FloatView device;
  };
  void* Take(int64_t bytes);
  template <typename Function>
  WeightMatrix PlaceWeight(const WeightMatrix& host, const Function& place);
  void FreeTemporaries() {
    arena_.Reset();
    if (store_ != nullptr) store_->EndOp();
  }
  FloatView Upload(ConstFloatView host);

  CommandList& commands_;
  DeviceArena& arena_;
  WeightStore* store_;
  PreparedRows& prepared_;
  const DeviceRanges& ranges_;
  bool finished_ = false;
  bool waits_ = false;  // host memory is read by a copy under way
  std::vector<Output> outputs_;
  std::vector<Copy> copies_;
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_STAGING_H_
