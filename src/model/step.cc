#include "model/step.h"

#include <cassert>
#include <numeric>

namespace deepinfer {

void Step::Reserve(int64_t max_rows) {
  const auto count = static_cast<size_t>(max_rows);
  attention.reserve(count);
  index.reserve(count);
  sources.reserve(count);
  destinations.reserve(count);
  row_ids.reserve(count);
  first_of_pair.reserve(count);
  second_of_pair.reserve(count);
  items_.reserve(count);
  ids_.reserve(count);
  positions_.reserve(count);
  pair_positions_.reserve(count);
  iota_.resize(count);
  std::iota(iota_.begin(), iota_.end(), int64_t{0});
}

void Step::Clear() {
  items_.clear();
  ids_.clear();
  positions_.clear();
  pair_positions_.clear();
}

void Step::Add(SequenceState& sequence, int64_t first_position, std::span<const int32_t> ids) {
  StepItem item;
  item.sequence = &sequence;
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
