// SequenceState: everything the model remembers of one sequence (spec d), in the packed formats of spec c.7.
//
// Two kinds of memory:
//  * the piece: window rings, draft rings and compressor tails, of one size for every sequence of a model.
//      - per layer a ring of the last window + kRollback window rows (row of position p in slot p % ring_slots);
//      - per DSpark stage a ring of its own, which covers positions draft_begin .. draft_end - 1;
//      - per ratio-2 kv source the raw kv ++ gate rows of the last kRollback + 2 tokens, F32 (slot p % tail_slots);
//  * KV blocks: the compressed rows and index keys of all kv sources for kPageTokens tokens, one piece of memory each.
// Create() owns both, reserved at once so that a sequence within its capacity never fails for lack of memory; a lent
// state (CreateLent) gets its piece from outside and its blocks one by one, so that sequences can share blocks.
//
// What a row may see, besides causality (spec c.12):
//  * rows below kv_floor() were published before (a prefix hit): they are read, never written again;
//  * window rows before encoder_start() are not seen by encoder layers, those before decoder_start() not by decoder
//    layers; rows of positions before decoder_start() do not pass the decoder at all (bounded replay).
// Invariants: rows of positions >= length() are garbage that the next tokens overwrite; Truncate() may go back as far
// as rollback_floor(), below which rings and tails have lost what a shorter sequence needs.
//
// Thread-safety: as the Model that it was made by. Ownership: see above; PackedRows point into the memory.
#ifndef DEEPINFER_MODEL_SEQUENCE_STATE_H_
#define DEEPINFER_MODEL_SEQUENCE_STATE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/device_memory.h"
#include "base/tensor_view.h"
#include "checkpoint/model_config.h"
#include "deepinfer/status.h"
#include "ops/ops.h"
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
  /// Layers from here on are the decoder: the last kv source and everything above it (spec c.12).
  int32_t first_decoder_layer = 0;

  /// Bytes of one KV block and of the piece.
  int64_t BlockBytes() const;
  int64_t PieceBytes() const;
  /// Bytes of a snapshot of all rings.
  int64_t SnapshotBytes() const;
  /// Tokens whose window rows a row depends on through all layers: layers * (window - 1) (spec c.12).
  int64_t ReceptiveField() const { return int64_t{layers} * (window - 1); }

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
  static Result<std::unique_ptr<SequenceState>> Create(std::shared_ptr<const SequenceLayout> layout, int64_t capacity,
                                                       Ops& ops);

  /// A state on lent memory of `ops`: `piece` has layout->PieceBytes() bytes on a 64-byte boundary; no blocks yet. It
  /// can hold up to `most_tokens`. kResourceExhausted: the device has no memory for its page table.
  static Result<std::unique_ptr<SequenceState>> CreateLent(std::shared_ptr<const SequenceLayout> layout,
                                                           int64_t most_tokens, uint8_t* piece, Ops& ops);

  /// Lends the block of the next kPageTokens positions; at most most_tokens of them.
  void AttachBlock(uint8_t* block);

  /// Makes a lent state empty and gives its blocks back.
  void Clear();

  /// Makes an empty state stand behind `ids` (an even number of them), whose global rows lie in the attached blocks or
  /// are about to be recomputed: the next token takes position ids.size(). kv_floor, encoder_start and decoder_start as
  /// above. Rings are empty unless LoadRings() follows.
  void Resume(std::span<const int32_t> ids, int64_t kv_floor, int64_t encoder_start, int64_t decoder_start);

  /// Encoder-side replay (spec c.12): goes back to `position` (even), from where encoder layers see no older window
  /// rows. The caller feeds the same ids again, encoder only; global rows are kept. Decoder rings stay.
  void RestartEncoder(int64_t position);

  /// Copies the rings of all layers and stages, or of the encoder's layers only, into `to` [SnapshotBytes()] in host
  /// memory. The state is at most kRollback tokens beyond the even `position` for which the copy is made.
  void SaveRings(int64_t position, bool encoder_only, uint8_t* to) const;
  /// The rings of a snapshot, and its draft rings if it has them. False, and nothing changes: it was made for another
  /// position than length().
  [[nodiscard]] bool LoadRings(const uint8_t* from);

  const SequenceLayout& layout() const { return *layout_; }
  int64_t length() const { return static_cast<int64_t>(ids_.size()); }
  /// Tokens that fit: attached blocks and the limit given at creation.
  int64_t capacity() const;
  int64_t kv_floor() const { return kv_floor_; }
  int64_t encoder_start() const { return encoder_start_; }
  int64_t decoder_start() const { return decoder_start_; }
  /// First window position that `layer` may see.
  int64_t window_start(int layer) const {
    return layer >= layout_->first_decoder_layer ? decoder_start_ : encoder_start_;
  }
  std::span<const int32_t> ids() const { return ids_; }

  /// Bytes reserved (promise 5), and how many of them the current length has written.
  int64_t bytes() const { return layout_->PlannedBytes(most_tokens_); }
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
  SequenceState(std::shared_ptr<const SequenceLayout> layout, int64_t most_tokens, uint8_t* piece, Ops& ops);

  PackedRows RowsAt(int64_t first_page, int64_t offset, int32_t rows_per_page, RowFormat format,
                    int32_t channels) const;

  std::shared_ptr<const SequenceLayout> layout_;
  Ops& ops_;
  int64_t most_tokens_ = 0;
  uint8_t* piece_ = nullptr;
  int64_t blocks_ = 0;
  int64_t kv_floor_ = 0;
  int64_t encoder_start_ = 0;
  int64_t decoder_start_ = 0;
  int64_t rollback_floor_ = 0;
  int64_t draft_begin_ = 0;
  int64_t draft_end_ = 0;
  DeviceMemory memory_;               // of a state that owns its memory
  std::vector<int32_t> ids_;          // reserved to most_tokens
  std::vector<uint8_t*> pages_;       // [1 + blocks], the piece, then the blocks
  DeviceMemory device_pages_;         // the same on a device with memory of its own
  std::vector<int64_t> rows_offset_;  // [sources], bytes from a block to the rows page of a source
  std::vector<int64_t> keys_offset_;  // [sources]
  std::vector<float*> tails_;         // [tails]
};

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_SEQUENCE_STATE_H_
