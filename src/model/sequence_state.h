// SequenceState: everything the model remembers of one sequence (spec d), in the packed formats of spec c.7.
//
// What it holds, all in one block of memory that is reserved when the sequence is made and becomes resident as it is
// written, so that a sequence within its capacity never fails for lack of memory in the middle of a step:
//   * per layer a ring of the last window + kRollback window rows (row of position p in slot p % ring_slots);
//   * per kv source its compressed rows and index keys, in pages of kPageTokens tokens;
//   * per ratio-2 kv source the raw kv ++ gate rows of the last kRollback + 2 tokens, F32 (slot p % tail_slots);
//   * per DSpark stage a ring of its own, which covers positions draft_begin .. draft_end - 1;
//   * the token ids (Engram's lookback).
// Invariants: rows of positions >= length() are garbage that the next tokens overwrite; Truncate() may go back as far
// as rollback_floor(), below which rings and tails have lost what a shorter sequence needs.
//
// Thread-safety: as the Model that it was made by. Ownership: owns its memory; PackedRows point into it.
#ifndef DEEPINFER_MODEL_SEQUENCE_STATE_H_
#define DEEPINFER_MODEL_SEQUENCE_STATE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/tensor_view.h"
#include "checkpoint/model_config.h"
#include "deepinfer/status.h"
#include "ops/packed_rows.h"

namespace deepinfer {

/// A layer that publishes compressed rows and index keys.
struct KvSource {
  int32_t layer = 0;
  int32_t ratio = 1;       ///< tokens per row
  int32_t tail_slot = -1;  ///< among the sources that pool (ratio 2), -1 for the others
};

/// What the state of any sequence of a model looks like; derived from the config once and shared.
struct SequenceLayout {
  static std::shared_ptr<const SequenceLayout> FromConfig(const ModelConfig& config);

  int32_t layers = 0;
  int32_t stages = 0;
  int32_t window = 0;
  int32_t ring_slots = 0;
  int32_t tail_slots = 0;
  int32_t head_dim = 0;
  int32_t index_head_dim = 0;
  std::vector<KvSource> sources;
  std::vector<int32_t> source_of_layer;  // [layers], index into sources, -1: window only
  int32_t tails = 0;

  /// Bytes reserved for a sequence of up to `capacity` tokens, token ids and page tables included.
  int64_t PlannedBytes(int64_t capacity) const;
  /// The share of PlannedBytes() that a sequence of `length` tokens has written.
  int64_t UsedBytes(int64_t length) const;
};

class SequenceState {
 public:
  static constexpr int32_t kRollback = 16;    ///< tokens that can be taken back
  static constexpr int32_t kPageTokens = 64;  ///< tokens whose rows share a page

  /// kInvalidArgument: capacity < 1; kResourceExhausted: the system has no address space for it.
  static Result<std::unique_ptr<SequenceState>> Create(std::shared_ptr<const SequenceLayout> layout, int64_t capacity);

  const SequenceLayout& layout() const { return *layout_; }
  int64_t length() const { return static_cast<int64_t>(ids_.size()); }
  int64_t capacity() const { return capacity_; }
  std::span<const int32_t> ids() const { return ids_; }

  /// Bytes reserved (promise 5), and how many of them the current length has written.
  int64_t bytes() const { return layout_->PlannedBytes(capacity_); }
  int64_t used_bytes() const { return layout_->UsedBytes(length()); }

  /// Window rows of a layer; slot = position % layout().ring_slots.
  PackedRows WindowRing(int layer) const;
  /// Window rows of a DSpark stage's context, same slots.
  PackedRows DraftRing(int stage) const;
  /// Rows 0 .. length() / ratio - 1 of layout().sources[source].
  PackedRows CompressedRows(int source) const;
  PackedRows IndexKeys(int source) const;
  /// Raw kv ++ gate rows of a pooling source: [tail_slots, 2 * Dh], slot = position % tail_slots.
  FloatView Tail(int tail_slot) const;

  /// Positions in the draft rings.
  int64_t draft_begin() const { return draft_begin_; }
  int64_t draft_end() const { return draft_end_; }
  void SetDraftRange(int64_t begin, int64_t end);

  /// The shortest length Truncate() accepts.
  int64_t rollback_floor() const { return rollback_floor_; }

  /// Records tokens whose rows are about to be written. The caller has checked the capacity.
  void Append(std::span<const int32_t> ids);

  /// kInvalidArgument: a length beyond length() or below rollback_floor().
  Status Truncate(int64_t length);

 private:
  SequenceState(std::shared_ptr<const SequenceLayout> layout, int64_t capacity);

  std::shared_ptr<const SequenceLayout> layout_;
  int64_t capacity_ = 0;
  int64_t rollback_floor_ = 0;
  int64_t draft_begin_ = 0;
  int64_t draft_end_ = 0;
  AlignedBuffer<uint8_t> memory_;
  std::vector<int32_t> ids_;         // reserved to capacity
  std::vector<uint8_t*> rings_;      // [layers + stages], one page each
  std::vector<uint8_t*> pages_;      // rows then keys of source 0, of source 1, ...
  std::vector<int64_t> rows_begin_;  // [sources], index of the first rows page in pages_
  std::vector<int64_t> keys_begin_;  // [sources]
  std::vector<float*> tails_;        // [tails]
};

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_SEQUENCE_STATE_H_
