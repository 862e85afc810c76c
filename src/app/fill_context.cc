#include "app/fill_context.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/generated_weights.h"

namespace deepinfer {
namespace {

constexpr int64_t kRows = 8192;

}  // namespace

Result<ContextFiller> ContextFiller::Create(int64_t width, Ops& ops) {
  WeightRecipe random;
  random.kind = WeightRecipe::Kind::kF32;
  random.deviation = 1;
  std::vector<float> values(static_cast<size_t>(kRows * width));
  const int64_t bytes = std::ssize(values) * static_cast<int64_t>(sizeof(float));
  FillGenerated(random, 0, bytes, reinterpret_cast<uint8_t*>(values.data()));
  DEEPINFER_ASSIGN_OR_RETURN(DeviceMemory memory, ops.Allocate(bytes));
  ops.CopyIn(values.data(), memory.data(), bytes);
  DEEPINFER_RETURN_IF_ERROR(ops.Finish());
  return ContextFiller(std::move(memory), width, ops);
}

void ContextFiller::Fill(std::span<const int32_t> ids, SequenceState* sequence) const {
  sequence->Resume(ids, 0, 0, 0);
  const SequenceLayout& layout = sequence->layout();
  for (int32_t layer = 0; layer < layout.layers; ++layer) Store(sequence->WindowRing(layer), layout.ring_slots);
  for (int32_t source = 0; source < static_cast<int32_t>(layout.sources.size()); ++source) {
    const int64_t count = std::ssize(ids) / layout.sources[static_cast<size_t>(source)].ratio;
    Store(sequence->CompressedRows(source), count);
    Store(sequence->IndexKeys(source), count);
  }
}

void ContextFiller::Store(const PackedRows& rows, int64_t count) const {
  const int64_t pieces = width_ / rows.channels;
  std::vector<int64_t> places(kRows);
  for (int64_t first = 0; first < count; first += kRows) {
    const int64_t length = std::min(kRows, count - first);
    std::iota(places.begin(), places.end(), first);
    // Narrow rows take another part of the wide ones each time, so that few keys are alike.
    float* values = reinterpret_cast<float*>(memory_.data()) + first / kRows % pieces * rows.channels;
    ops_->StoreRows(ConstFloatView{values, length, rows.channels, width_}, rows,
                    std::span(places).first(static_cast<size_t>(length)));
  }
}

}  // namespace deepinfer
