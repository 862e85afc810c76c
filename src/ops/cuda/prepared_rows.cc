#include "ops/cuda/prepared_rows.h"

#include <cuda_runtime_api.h>

#include "ops/cuda/exact_linear.h"

namespace deepinfer::cuda {
namespace {

const float* EndOf(ConstFloatView view) { return view.data + (view.rows - 1) * view.stride + view.columns; }

}  // namespace

Bf16Rows PreparedRows::Find(ConstFloatView x, Preparation preparation, ColumnOrder order) const {
  for (const Slot& slot : slots_) {
    if (slot.x.data == x.data && slot.x.rows == x.rows && slot.x.columns == x.columns && slot.x.stride == x.stride &&
        slot.preparation == preparation && slot.order == order) {
      return slot.rows();
    }
  }
  return {};
}

Bf16Rows PreparedRows::Add(ConstFloatView x, Preparation preparation, ColumnOrder order) {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % kSlots;
  slot.x = {};
  const int64_t terms = preparation == Preparation::kTerms ? kExactTerms : 1;
  const int64_t bytes = terms * x.rows * x.columns * static_cast<int64_t>(sizeof(uint16_t));
  if (slot.memory.bytes() < bytes) {
    void* data = nullptr;
    // cudaFree waits for kernels that still read the smaller buffer.
    slot.memory = DeviceMemory();
    if (cudaMalloc(&data, static_cast<size_t>(bytes)) != cudaSuccess) return {};
    slot.memory = DeviceMemory(static_cast<uint8_t*>(data), bytes, [](uint8_t* memory) { (void)cudaFree(memory); });
  }
  slot.x = x;
  slot.preparation = preparation;
  slot.order = order;
  return slot.rows();
}

void PreparedRows::Forget(ConstFloatView rows) {
  if (rows.data == nullptr || rows.rows == 0) return;
  for (Slot& slot : slots_) {
    if (slot.x.data != nullptr && rows.data < EndOf(slot.x) && slot.x.data < EndOf(rows)) slot.x = {};
  }
}

int64_t PreparedRows::bytes() const {
  int64_t bytes = 0;
  for (const Slot& slot : slots_) bytes += slot.memory.bytes();
  return bytes;
}

}  // namespace deepinfer::cuda
