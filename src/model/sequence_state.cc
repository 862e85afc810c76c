#include "model/sequence_state.h"

#include <algorithm>
#include <cassert>
#include <string>

namespace deepinfer {
namespace {

constexpr int64_t kAlignment = 64;

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t RingBytes(const SequenceLayout& layout) {
  return AlignUp(layout.ring_slots * PackedRowBytes(RowFormat::kWindowFp8, layout.head_dim).total());
}

int64_t TailBytes(const SequenceLayout& layout) {
  return AlignUp(int64_t{layout.tail_slots} * 2 * layout.head_dim * static_cast<int64_t>(sizeof(float)));
}

int32_t RowsPerPage(const KvSource& source) { return SequenceState::kPageTokens / source.ratio; }

int64_t PageCount(int64_t tokens) { return (tokens + SequenceState::kPageTokens - 1) / SequenceState::kPageTokens; }

int64_t RowsPageBytes(const SequenceLayout& layout, const KvSource& source) {
  return AlignUp(RowsPerPage(source) * PackedRowBytes(RowFormat::kCompressedFp4, layout.head_dim).total());
}

int64_t KeysPageBytes(const SequenceLayout& layout, const KvSource& source) {
  return AlignUp(RowsPerPage(source) * PackedRowBytes(RowFormat::kIndexFp4, layout.index_head_dim).total());
}

// Rings, tails and the pages of `tokens` tokens.
int64_t BlockBytes(const SequenceLayout& layout, int64_t tokens) {
  int64_t bytes = (layout.layers + layout.stages) * RingBytes(layout) + layout.tails * TailBytes(layout);
  for (const KvSource& source : layout.sources) {
    bytes += PageCount(tokens) * (RowsPageBytes(layout, source) + KeysPageBytes(layout, source));
  }
  return bytes;
}

int64_t TableBytes(const SequenceLayout& layout, int64_t tokens) {
  const int64_t pages = layout.layers + layout.stages + 2 * PageCount(tokens) * std::ssize(layout.sources);
  return pages * static_cast<int64_t>(sizeof(uint8_t*)) + tokens * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace

std::shared_ptr<const SequenceLayout> SequenceLayout::FromConfig(const ModelConfig& config) {
  auto layout = std::make_shared<SequenceLayout>();
  layout->layers = static_cast<int32_t>(config.num_hidden_layers);
  layout->stages = static_cast<int32_t>(config.num_nextn_predict_layers);
  layout->window = static_cast<int32_t>(config.sliding_window);
  layout->ring_slots = layout->window + SequenceState::kRollback;
  // An open pair needs the token before the shortest length that a rollback reaches.
  layout->tail_slots = SequenceState::kRollback + 2;
  layout->head_dim = static_cast<int32_t>(config.head_dim);
  layout->index_head_dim = static_cast<int32_t>(config.index_head_dim);
  layout->source_of_layer.assign(static_cast<size_t>(layout->layers), -1);
  for (int layer = 0; layer < layout->layers; ++layer) {
    const int source_layer = config.KvSourceOf(layer);
    if (source_layer == layer) {
      const int32_t ratio = config.ratio(layer);
      layout->sources.push_back({layer, ratio, ratio > 1 ? layout->tails++ : -1});
    }
    if (source_layer >= 0)
      layout->source_of_layer[static_cast<size_t>(layer)] = static_cast<int32_t>(layout->sources.size()) - 1;
  }
  return layout;
}

int64_t SequenceLayout::PlannedBytes(int64_t capacity) const {
  return BlockBytes(*this, capacity) + TableBytes(*this, capacity);
}

int64_t SequenceLayout::UsedBytes(int64_t length) const {
  return BlockBytes(*this, length) + TableBytes(*this, length);
}

Result<std::unique_ptr<SequenceState>> SequenceState::Create(std::shared_ptr<const SequenceLayout> layout,
                                                             int64_t capacity) {
  if (capacity < 1) {
    return Status::InvalidArgument("a sequence must hold at least 1 token, asked for " + std::to_string(capacity));
  }
  std::unique_ptr<SequenceState> state(new SequenceState(std::move(layout), capacity));
  const SequenceLayout& plan = *state->layout_;
  const int64_t bytes = BlockBytes(plan, capacity);
  if (!state->memory_.Allocate(bytes)) {
    return Status::ResourceExhausted("no memory for a sequence of " + std::to_string(capacity) +
                                     " tokens: " + std::to_string(bytes) + " bytes needed; ask for a shorter context");
  }

  uint8_t* next = state->memory_.data();
  const auto take = [&next](int64_t size) {
    uint8_t* piece = next;
    next += size;
    return piece;
  };
  for (int32_t i = 0; i < plan.layers + plan.stages; ++i) state->rings_.push_back(take(RingBytes(plan)));
  for (int32_t i = 0; i < plan.tails; ++i) state->tails_.push_back(reinterpret_cast<float*>(take(TailBytes(plan))));
  for (const KvSource& source : plan.sources) {
    state->rows_begin_.push_back(std::ssize(state->pages_));
    for (int64_t i = 0; i < PageCount(capacity); ++i) state->pages_.push_back(take(RowsPageBytes(plan, source)));
    state->keys_begin_.push_back(std::ssize(state->pages_));
    for (int64_t i = 0; i < PageCount(capacity); ++i) state->pages_.push_back(take(KeysPageBytes(plan, source)));
  }
  assert(next == state->memory_.data() + bytes);
  state->ids_.reserve(static_cast<size_t>(capacity));
  return state;
}

SequenceState::SequenceState(std::shared_ptr<const SequenceLayout> layout, int64_t capacity)
    : layout_(std::move(layout)), capacity_(capacity) {}

PackedRows SequenceState::WindowRing(int layer) const {
  return {rings_.data() + layer, layout_->ring_slots, RowFormat::kWindowFp8, layout_->head_dim};
}

PackedRows SequenceState::DraftRing(int stage) const { return WindowRing(layout_->layers + stage); }

PackedRows SequenceState::CompressedRows(int source) const {
  const auto slot = static_cast<size_t>(source);
  return {pages_.data() + rows_begin_[slot], RowsPerPage(layout_->sources[slot]), RowFormat::kCompressedFp4,
          layout_->head_dim};
}

PackedRows SequenceState::IndexKeys(int source) const {
  const auto slot = static_cast<size_t>(source);
  return {pages_.data() + keys_begin_[slot], RowsPerPage(layout_->sources[slot]), RowFormat::kIndexFp4,
          layout_->index_head_dim};
}

FloatView SequenceState::Tail(int tail_slot) const {
  return {tails_[static_cast<size_t>(tail_slot)], layout_->tail_slots, int64_t{2} * layout_->head_dim,
          int64_t{2} * layout_->head_dim};
}

void SequenceState::SetDraftRange(int64_t begin, int64_t end) {
  draft_begin_ = begin;
  draft_end_ = end;
}

void SequenceState::Append(std::span<const int32_t> ids) {
  assert(length() + std::ssize(ids) <= capacity_);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  rollback_floor_ = std::max(rollback_floor_, length() - kRollback);
}

Status SequenceState::Truncate(int64_t new_length) {
  if (new_length > length() || new_length < rollback_floor_) {
    return Status::InvalidArgument("cannot truncate a sequence of " + std::to_string(length()) + " tokens to " +
                                   std::to_string(new_length) + ": expected " + std::to_string(rollback_floor_) +
                                   " to " + std::to_string(length()) + " (at most " + std::to_string(kRollback) +
                                   " tokens are kept for rollback)");
  }
  ids_.resize(static_cast<size_t>(new_length));
  draft_end_ = std::min(draft_end_, new_length);
  if (draft_begin_ >= draft_end_) draft_begin_ = draft_end_ = 0;
  return Status::Ok();
}

}  // namespace deepinfer
