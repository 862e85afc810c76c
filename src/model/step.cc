#include "model/step.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace deepinfer {

void Step::Reserve(int64_t max_rows) {
  const auto count = static_cast<size_t>(max_rows);
  attention.reserve(count);
  index.reserve(count);
  sources.reserve(count);
  destinations.reserve(count);
  pages.reserve(count);
  copy_from.reserve(count);
  copy_to.reserve(count);
  row_ids.reserve(count);
  first_of_pair.reserve(count);
  second_of_pair.reserve(count);
  items_.reserve(count);
  ids_.reserve(count);
  positions_.reserve(count);
  pair_positions_.reserve(count);
  kept_.reserve(count);
  iota_.resize(count);
  std::iota(iota_.begin(), iota_.end(), int64_t{0});
}

void Step::Clear() {
  items_.clear();
  ids_.clear();
  positions_.clear();
  pair_positions_.clear();
}

void Step::Add(SequenceState& sequence, int64_t first_position, std::span<const int32_t> ids, bool encoder_only) {
  StepItem item;
  item.sequence = &sequence;
  item.encoder_only = encoder_only;
  item.first_position = first_position;
  item.first_row = static_cast<int32_t>(rows());
  item.row_count = static_cast<int32_t>(ids.size());
  item.first_pair = first_position / 2;
  item.first_pair_row = static_cast<int32_t>(pair_positions_.size());
  item.pair_count = static_cast<int32_t>((first_position + std::ssize(ids)) / 2 - item.first_pair);
  for (int64_t pair = 0; pair < item.pair_count; ++pair) pair_positions_.push_back((item.first_pair + pair) * 2);
  for (int64_t i = 0; i < std::ssize(ids); ++i) positions_.push_back(first_position + i);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  items_.push_back(item);
}

std::span<const int32_t> Step::KeepDecoderRows() {
  kept_.clear();
  for (StepItem& item : items_) {
    const int64_t end = item.first_position + item.row_count;
    const int64_t begin =
        item.encoder_only ? end : std::clamp(item.sequence->decoder_start(), item.first_position, end);
    const auto dropped = static_cast<int32_t>(begin - item.first_position);
    const int32_t first_kept = item.first_row + dropped;
    item.first_row = static_cast<int32_t>(kept_.size());
    item.row_count -= dropped;
    item.first_position = begin;
    for (int32_t row = 0; row < item.row_count; ++row) kept_.push_back(first_kept + row);
  }
  if (std::ssize(kept_) == rows()) return {};
  for (size_t i = 0; i < kept_.size(); ++i) {
    ids_[i] = ids_[static_cast<size_t>(kept_[i])];
    positions_[i] = positions_[static_cast<size_t>(kept_[i])];
  }
  ids_.resize(kept_.size());
  positions_.resize(kept_.size());
  return kept_;
}

void GatherFloatRows(Ops& ops, ConstFloatView from, std::span<const int32_t> rows, FloatView out) {
  assert(from.stride == from.columns);
  WeightMatrix table;
  table.data = reinterpret_cast<const uint8_t*>(from.data);
  table.format = WeightFormat::kF32;
  table.rows = from.rows;
  table.columns = from.columns;
  ops.Embed(table, rows, out);
}

}  // namespace deepinfer
