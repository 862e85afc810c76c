#include "model/sequence_state.h"

#include <algorithm>
#include <cassert>
#include <cstring>
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

int64_t TableBytes(int64_t tokens) {
  return (1 + PageCount(tokens)) * static_cast<int64_t>(sizeof(uint8_t*)) +
         tokens * static_cast<int64_t>(sizeof(int32_t));
}

// What stands in front of the rings of a snapshot.
struct SnapshotHeader {
  int64_t position;
  int64_t draft_begin;
  int64_t draft_end;
  int64_t rings;
};
constexpr int64_t kSnapshotHeaderBytes = kAlignment;
static_assert(sizeof(SnapshotHeader) <= kSnapshotHeaderBytes);

}  // namespace

int64_t SequenceLayout::BlockBytes() const {
  int64_t bytes = 0;
  for (const KvSource& source : sources) bytes += RowsPageBytes(*this, source) + KeysPageBytes(*this, source);
  return bytes;
}

int64_t SequenceLayout::PieceBytes() const { return (layers + stages) * RingBytes(*this) + tails * TailBytes(*this); }

int64_t SequenceLayout::SnapshotBytes() const { return kSnapshotHeaderBytes + (layers + stages) * RingBytes(*this); }

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
  layout->first_decoder_layer = layout->sources.empty() ? layout->layers : layout->sources.back().layer;
  return layout;
}

int64_t SequenceLayout::PlannedBytes(int64_t capacity) const {
  return PieceBytes() + PageCount(capacity) * BlockBytes() + TableBytes(capacity);
}

int64_t SequenceLayout::UsedBytes(int64_t length) const { return PlannedBytes(length); }

Result<std::unique_ptr<SequenceState>> SequenceState::Create(std::shared_ptr<const SequenceLayout> layout,
                                                             int64_t capacity, Ops& ops) {
  if (capacity < 1) {
    return Status::InvalidArgument("a sequence must hold at least 1 token, asked for " + std::to_string(capacity));
  }
  const int64_t block_bytes = layout->BlockBytes();
  const int64_t piece_bytes = layout->PieceBytes();
  const int64_t bytes = piece_bytes + PageCount(capacity) * block_bytes;
  Result<DeviceMemory> memory = ops.Allocate(bytes);
  if (!memory.ok()) {
    return Status::ResourceExhausted("no memory for a sequence of " + std::to_string(capacity) +
                                     " tokens: " + std::to_string(bytes) + " bytes needed; ask for a shorter context");
  }
  DEEPINFER_ASSIGN_OR_RETURN(std::unique_ptr<SequenceState> state,
                             CreateLent(std::move(layout), capacity, memory->data(), ops));
  for (int64_t i = 0; i < PageCount(capacity); ++i) state->AttachBlock(memory->data() + piece_bytes + i * block_bytes);
  state->memory_ = std::move(*memory);
  return state;
}

Result<std::unique_ptr<SequenceState>> SequenceState::CreateLent(std::shared_ptr<const SequenceLayout> layout,
                                                                 int64_t most_tokens, uint8_t* piece, Ops& ops) {
  std::unique_ptr<SequenceState> state(new SequenceState(std::move(layout), most_tokens, piece, ops));
  if (!ops.computes_on_host_memory()) {
    DEEPINFER_ASSIGN_OR_RETURN(state->device_pages_,
                               ops.Allocate(std::ssize(state->pages_) * static_cast<int64_t>(sizeof(uint8_t*))));
    ops.CopyIn(state->pages_.data(), state->device_pages_.data(), sizeof(uint8_t*));
  }
  return state;
}

SequenceState::SequenceState(std::shared_ptr<const SequenceLayout> layout, int64_t most_tokens, uint8_t* piece,
                             Ops& ops)
    : layout_(std::move(layout)), ops_(ops), most_tokens_(most_tokens), piece_(piece) {
  const SequenceLayout& plan = *layout_;
  uint8_t* tails = piece + (plan.layers + plan.stages) * RingBytes(plan);
  for (int32_t i = 0; i < plan.tails; ++i) tails_.push_back(reinterpret_cast<float*>(tails + i * TailBytes(plan)));
  int64_t offset = 0;
  for (const KvSource& source : plan.sources) {
    rows_offset_.push_back(offset);
    offset += RowsPageBytes(plan, source);
    keys_offset_.push_back(offset);
    offset += KeysPageBytes(plan, source);
  }
  pages_.resize(static_cast<size_t>(1 + PageCount(most_tokens)));
  pages_[0] = piece;
  ids_.reserve(static_cast<size_t>(most_tokens));
}

int64_t SequenceState::capacity() const { return std::min(most_tokens_, blocks_ * kPageTokens); }

void SequenceState::AttachBlock(uint8_t* block) {
  assert(blocks_ < PageCount(most_tokens_));
  ++blocks_;
  pages_[static_cast<size_t>(blocks_)] = block;
  if (device_pages_.data() != nullptr) {
    ops_.CopyIn(&pages_[static_cast<size_t>(blocks_)],
                device_pages_.data() + blocks_ * static_cast<int64_t>(sizeof(uint8_t*)), sizeof(uint8_t*));
  }
}

void SequenceState::Clear() {
  assert(memory_.data() == nullptr);
  ids_.clear();
  blocks_ = 0;
  kv_floor_ = encoder_start_ = decoder_start_ = rollback_floor_ = draft_begin_ = draft_end_ = 0;
}

void SequenceState::Resume(std::span<const int32_t> ids, int64_t kv_floor, int64_t encoder_start,
                           int64_t decoder_start) {
  assert(length() == 0 && std::ssize(ids) % 2 == 0);
  ids_.assign(ids.begin(), ids.end());
  kv_floor_ = kv_floor;
  encoder_start_ = encoder_start;
  decoder_start_ = decoder_start;
  rollback_floor_ = length();
}

void SequenceState::RestartEncoder(int64_t position) {
  assert(position <= length() && position % 2 == 0);
  kv_floor_ = std::max(kv_floor_, length());
  ids_.resize(static_cast<size_t>(position));
  encoder_start_ = position;
  rollback_floor_ = position;
}

void SequenceState::SaveRings(int64_t position, bool encoder_only, uint8_t* to) const {
  assert(position <= length() && length() - position <= kRollback);
  const int64_t rings = encoder_only ? layout_->first_decoder_layer : layout_->layers + layout_->stages;
  const SnapshotHeader header = {position, draft_begin_, std::min(draft_end_, position), rings};
  std::memcpy(to, &header, sizeof(header));
  ops_.CopyOut(piece_, to + kSnapshotHeaderBytes, rings * RingBytes(*layout_));
}

bool SequenceState::LoadRings(const uint8_t* from) {
  SnapshotHeader header;
  std::memcpy(&header, from, sizeof(header));
  if (header.position != length()) return false;
  ops_.CopyIn(from + kSnapshotHeaderBytes, piece_, header.rings * RingBytes(*layout_));
  if (header.rings == layout_->layers + layout_->stages && header.draft_begin < header.draft_end) {
    SetDraftRange(header.draft_begin, header.draft_end);
  }
  return true;
}

PackedRows SequenceState::RowsAt(int64_t first_page, int64_t offset, int32_t rows_per_page, RowFormat format,
                                 int32_t channels) const {
  PackedRows rows{pages_.data() + first_page, rows_per_page, format, channels, offset};
  if (device_pages_.data() != nullptr) {
    rows.device_pages = reinterpret_cast<uint8_t* const*>(device_pages_.data()) + first_page;
  }
  return rows;
}

PackedRows SequenceState::WindowRing(int layer) const {
  return RowsAt(0, layer * RingBytes(*layout_), layout_->ring_slots, RowFormat::kWindowFp8, layout_->head_dim);
}

PackedRows SequenceState::DraftRing(int stage) const { return WindowRing(layout_->layers + stage); }

PackedRows SequenceState::CompressedRows(int source) const {
  const auto slot = static_cast<size_t>(source);
  return RowsAt(1, rows_offset_[slot], RowsPerPage(layout_->sources[slot]), RowFormat::kCompressedFp4,
                layout_->head_dim);
}

PackedRows SequenceState::IndexKeys(int source) const {
  const auto slot = static_cast<size_t>(source);
  return RowsAt(1, keys_offset_[slot], RowsPerPage(layout_->sources[slot]), RowFormat::kIndexFp4,
                layout_->index_head_dim);
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
  assert(length() + std::ssize(ids) <= capacity());
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
