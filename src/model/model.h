// Model: the DeepSeek-V4.1 text model and its DSpark drafter, written once against Ops (spec architecture.md c, d).
//
// One Forward() serves prefill, chunked prefill, decode and verification: it takes the next tokens of any number of
// sequences. By promise 1 the logits of a token are the same bits whatever else is in the batch and however the prompt
// was cut into chunks.
//
// Thread-safety: one thread drives a Model and its sequences. Ownership: the Checkpoint, the token map and the Ops
// outlive the Model; a SequenceState may outlive nothing but itself.
#ifndef DEEPINFER_MODEL_MODEL_H_
#define DEEPINFER_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/tensor_view.h"
#include "checkpoint/weights.h"
#include "deepinfer/status.h"
#include "model/sequence_state.h"
#include "ops/ops.h"
#include "ops/sampling.h"

namespace deepinfer {

struct ModelOptions {
  ActivationFormat activation = ActivationFormat::kFp8Groups32;
  int64_t max_rows_per_step = 512;  ///< tokens of all sequences in one Forward()
  int64_t max_context = 8192;       ///< tokens of one sequence, at most max_position_embeddings
  int64_t max_logits_rows = 0;      ///< rows of one Forward() that get logits; 0: up to max_rows_per_step
  int64_t max_draft_sequences = 1;  ///< sequences of one DraftBlocks()

  static constexpr int64_t kMostRowsPerStep = 1 << 20;
};

/// Which rows of an item get logits.
enum class LogitsRows : uint8_t { kNone, kLast, kAll };

/// The next tokens of one sequence.
struct BatchItem {
  SequenceState* sequence = nullptr;
  std::span<const int32_t> ids;
  LogitsRows logits = LogitsRows::kLast;
  bool encoder_only = false;  ///< encoder-side replay: no row passes the decoder, whatever its position
};

struct Batch {
  std::span<const BatchItem> items;
};

/// Where the rows of an item lie in the results.
struct ItemRows {
  int32_t first_tap = 0;     ///< first row in ForwardResult::taps
  int32_t tap_count = 0;     ///< rows that passed the decoder: the last ones of the item
  int32_t first_logits = 0;  ///< first row in ForwardResult::logits
};

/// Views into the model's buffers, valid until the next Forward() (ExtendDrafts and DraftBlocks leave them alone).
struct ForwardResult {
  ConstFloatView logits;  // [rows asked for, V], items in order
  ConstFloatView taps;    // [rows that passed the decoder, taps * D], items in order: DSpark's input
  std::span<const ItemRows> items;
};

/// Accepted rows of one sequence for its draft rings: taps.row(first_tap + i) stands at first_position + i.
struct DraftContext {
  SequenceState* sequence = nullptr;
  int32_t first_tap = 0;
  int32_t row_count = 0;
  int64_t first_position = 0;
};

/// Drafts wanted after `token`, which was chosen for position draft_end().
struct DraftItem {
  SequenceState* sequence = nullptr;
  int32_t token = 0;
  TokenRule rule;  ///< how proposals are chosen; proposal k takes position draft_end() + 1 + k, whatever it says
};

/// Proposals of S sequences (spec c.11), proposal-major: element k * S + s is proposal k of sequence s. Valid until the
/// next call of the model.
struct DraftResult {
  std::span<const int32_t> ids;       // [length * S]
  std::span<const float> confidence;  // [length * S] logits of the conditional acceptance probability
  ConstFloatView logits;              // [length * S, V] Markov bias included
};

/// Rows that have gone through the model since it was made.
struct RowCounts {
  int64_t encoder = 0;  ///< through the layers below the decoder
  int64_t decoder = 0;  ///< through the decoder's layers
  int64_t logits = 0;
  int64_t drafts = 0;  ///< block rows through the DSpark stages
};

/// Looks into a Forward() in tests: the residual streams after each layer, the compressed rows that each index source
/// selected, the experts that each layer routed to; for all rows of the
/// step, those that pass the decoder from there on.
struct ForwardProbe {
  virtual ~ForwardProbe() = default;
  virtual void OnLayer(int layer, ConstFloatView streams /* [T, n*D] */) = 0;
  virtual void OnSelection(int layer, const SelectedRows& selected) = 0;
  virtual void OnExperts(int layer, TensorView<const int32_t> picks /* [T, K] */, ConstFloatView weights) = 0;
};

class Model {
 public:
  /// `token_map`: Engram's compressed ids, one per vocabulary id (text/token_map.h); checked against the config.
  static Result<std::unique_ptr<Model>> Create(const Checkpoint& checkpoint, std::span<const int32_t> token_map,
                                               Ops& ops, const ModelOptions& options);
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const ModelOptions& options() const = 0;

  /// Bytes of activations and scratch held by the model and its Ops (promise 5).
  virtual int64_t workspace_bytes() const = 0;

  /// Bytes reserved for a sequence of up to `tokens` tokens.
  virtual int64_t sequence_bytes(int64_t tokens) const = 0;

  virtual std::shared_ptr<const SequenceLayout> layout() const = 0;

  /// A new empty sequence that can hold `max_tokens` (<= max_context) tokens.
  virtual Result<std::unique_ptr<SequenceState>> NewSequence(int64_t max_tokens) const = 0;

  /// Appends the items' tokens. kInvalidArgument: an id outside the vocabulary or an empty item; kResourceExhausted:
  /// more rows than max_rows_per_step or a sequence that would outgrow its capacity. On error no state has changed.
  virtual Result<ForwardResult> Forward(const Batch& batch) = 0;

  /// Forgets the last tokens so that `length` remain; at most SequenceState::kRollback tokens.
  virtual Status Truncate(SequenceState& sequence, int64_t length) const = 0;

  /// Feeds taps (of the last ForwardResult, or a view like it) to the draft rings. Rows that do not continue the rings
  /// of their sequence start them anew.
  virtual Status ExtendDrafts(ConstFloatView taps, std::span<const DraftContext> items) = 0;

  /// `length` proposals (1 to the block size) for each item, at most max_draft_sequences of them.
  virtual Result<DraftResult> DraftBlocks(std::span<const DraftItem> items, int64_t length) = 0;

  virtual RowCounts row_counts() const = 0;

  virtual void SetProbe(ForwardProbe* probe) = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_MODEL_H_
