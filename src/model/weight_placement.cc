#include "model/weight_placement.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/machine.h"
#include "base/memory_advice.h"

namespace deepinfer {
namespace {

void Add(const CheckpointWeight& weight, bool resident, WeightList* list) {
  const int64_t values = weight.view.rows * weight.view.row_bytes();
  list->push_back({weight.view.data, values, resident, weight.layer, ValuesOf(weight.view.format)});
  if (weight.view.scale == nullptr) return;
  list->push_back({weight.view.scale, weight.view.total_bytes() - values, resident, weight.layer});
}

void Touch(const uint8_t& byte) { (void)*static_cast<const volatile uint8_t*>(&byte); }

// Faults every page of the Engram tables in, while the system reads ahead.
Status ReadTables(const Checkpoint& checkpoint, const LoadProgress& progress) {
  constexpr int64_t kStep = int64_t{64} << 20;
  constexpr int64_t kPage = 4096;
  WeightList list;
  for (const CheckpointWeight& weight : checkpoint.list()) {
    if (weight.engram_table) Add(weight, true, &list);
  }
  int64_t total = 0;
  for (const ListedBytes& table : list) total += table.bytes;
  const int64_t available = FindMemory().available;
  if (available > 0 && total > available) {
    return Status::ResourceExhausted("engram: the tables take " + HumanBytes(total) + " of memory, " +
                                     HumanBytes(available) + " are free; leave them on the disk");
  }
  int64_t done = 0;
  for (const ListedBytes& table : list) {
    const std::span<const uint8_t> bytes(table.data, static_cast<size_t>(table.bytes));
    const auto part = [&](int64_t at) {
      const int64_t begin = std::min(at, table.bytes);
      return bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(std::min(kStep, table.bytes - begin)));
    };
    AdviseWillNeed(part(0));
    for (int64_t at = 0; at < table.bytes; at += kStep) {
      AdviseWillNeed(part(at + kStep));
      const std::span<const uint8_t> now = part(at);
      for (int64_t i = 0; i < std::ssize(now); i += kPage) Touch(now[static_cast<size_t>(i)]);
      Touch(now.back());  // a table begins anywhere in a page
      done += std::ssize(now);
      if (progress) progress(done, total);
    }
  }
  return Status::Ok();
}

}  // namespace

WeightList ListWeights(const Checkpoint& checkpoint, const WeightPlacement& placement) {
  WeightList list;
  for (const CheckpointWeight& weight : checkpoint.list()) {
    if (weight.engram_table && !placement.engram_on_device) continue;
    const bool passes = placement.resident_layers != WeightPlacement::kAllLayers &&
                        weight.layer >= placement.resident_layers && weight.view.scale != nullptr &&
                        !weight.engram_table;
    Add(weight, !passes, &list);
  }
  return list;
}

Status PlaceWeights(const Checkpoint& checkpoint, const WeightPlacement& placement, Ops& ops,
                    const LoadProgress& progress) {
  const WeightList list = ListWeights(checkpoint, placement);
  DEEPINFER_RETURN_IF_ERROR(ops.LoadWeights(list, progress));
  return placement.engram_in_memory ? ReadTables(checkpoint, progress) : Status::Ok();
}

}  // namespace deepinfer
