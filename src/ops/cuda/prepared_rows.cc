#include "ops/cuda/prepared_rows.h"

#include <cuda_runtime_api.h>

#include <iterator>

#include "ops/cuda/exact_linear.h"

namespace deepinfer::cuda {
namespace {

/// What an op can write beside its rows.
struct Form {
  Preparation preparation;
  ColumnOrder order;
  uint16_t* RowForms::*values;
};
constexpr Form kForms[] = {{Preparation::kQuantised, ColumnOrder::kFp8, &RowForms::fp8},
                           {Preparation::kQuantised, ColumnOrder::kFp4, &RowForms::fp4},
                           {Preparation::kTerms, ColumnOrder::kPlain, &RowForms::terms},
                           {Preparation::kTerms, ColumnOrder::kFp8, &RowForms::fp8_terms}};

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

Bf16Rows PreparedRows::Add(ConstFloatView x, Preparation preparation, ColumnOrder order, CommandList& commands) {
  const bool few = x.rows <= kFewRows;
  Slot& slot = few ? slots_[next_few_] : slots_[kFewSlots + next_many_];
  if (few) {
    next_few_ = (next_few_ + 1) % kFewSlots;
  } else {
    next_many_ = (next_many_ + 1) % kManySlots;
  }
  for (size_t i = 0; i < std::size(kForms); ++i) {
    if (kForms[i].preparation == preparation && kForms[i].order == order) wanted_[x.data] |= 1u << i;
  }
  slot.x = {};
  const int64_t terms = preparation == Preparation::kTerms ? kExactTerms : 1;
  const int64_t bytes = terms * x.rows * x.columns * static_cast<int64_t>(sizeof(uint16_t));
  if (slot.memory.bytes() < bytes) {
    void* data = nullptr;
    commands.Flush();  // cudaFree waits for what runs
    slot.memory = DeviceMemory();
    if (cudaMalloc(&data, static_cast<size_t>(bytes)) != cudaSuccess) {
      cudaGetLastError();  // the next launch is not to blame
      return {};
    }
    slot.memory = DeviceMemory(static_cast<uint8_t*>(data), bytes, [](uint8_t* memory) { (void)cudaFree(memory); });
  }
  slot.x = x;
  slot.preparation = preparation;
  slot.order = order;
  return slot.rows();
}

RowForms PreparedRows::AddWanted(ConstFloatView x, CommandList& commands) {
  RowForms forms;
  const auto found = wanted_.find(x.data);
  if (found == wanted_.end() || x.rows == 0 || x.rows > kFewRows || x.columns % 32 != 0) return forms;
  const uint32_t wanted = found->second;
  for (size_t i = 0; i < std::size(kForms); ++i) {
    if (wanted >> i & 1) forms.*kForms[i].values = Add(x, kForms[i].preparation, kForms[i].order, commands).values;
  }
  return forms;
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
