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

namespace deepinfer {

struct ModelOptions {
  ActivationFormat activation = ActivationFormat::kFp8Groups32;
  int64_t max_rows_per_step = 512;  ///< tokens of all sequences in one Forward()
  int64_t max_context = 8192;       ///< tokens of one sequence, at most max_position_embeddings
  int64_t max_logits_rows = 0;      ///< rows of one Forward() that get logits; 0: up to max_rows_per_step

  static constexpr int64_t kMostRowsPerStep = 1 << 20;
};

/// Which rows of an item get logits.
enum class LogitsRows : uint8_t { kNone, kLast, kAll };

/// The next tokens of one sequence.
struct BatchItem {
  SequenceState* sequence = nullptr;
  std::span<const int32_t> ids;
  LogitsRows logits = LogitsRows::kLast;
};

struct Batch {
  std::span<const BatchItem> items;
};

/// Views into the model's buffers, valid until the next Forward() (ExtendDraft and DraftBlock leave them alone).
struct ForwardResult {
  ConstFloatView logits;  // [rows asked for, V], items in order
  ConstFloatView taps;    // [T, taps * D], all rows of the step: DSpark's input
};

/// One block of drafts (spec c.11).
struct Draft {
  std::vector<int32_t> ids;       // [b] greedy proposals for the positions after the given token
  std::vector<float> confidence;  // [b] logits of the conditional acceptance probability
  std::vector<float> logits;      // [b * V] draft logits, Markov bias included
};

/// Looks into a Forward() in tests: the residual streams after each layer, the compressed rows that each index source
/// selected, the experts that each layer routed to; for all rows of the step.
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

  /// A new empty sequence that can hold `max_tokens` (<= max_context) tokens.
  virtual Result<std::unique_ptr<SequenceState>> NewSequence(int64_t max_tokens) const = 0;

  /// Appends the items' tokens. kInvalidArgument: an id outside the vocabulary or an empty item; kResourceExhausted:
  /// more rows than max_rows_per_step or a sequence that would outgrow its capacity. On error no state has changed.
  virtual Result<ForwardResult> Forward(const Batch& batch) = 0;

  /// Forgets the last tokens so that `length` remain; at most SequenceState::kRollback tokens.
  virtual Status Truncate(SequenceState& sequence, int64_t length) const = 0;

  /// Feeds taps [rows, taps * D] (accepted rows of a sequence, from the last ForwardResult) to the draft rings; row i
  /// stands at first_position + i. Rows that do not continue the rings start them anew.
  virtual Status ExtendDraft(SequenceState& sequence, ConstFloatView taps, int64_t first_position) = 0;

  /// Greedy drafts after `token`, which was sampled for the position after the last one fed to ExtendDraft.
  virtual Result<Draft> DraftBlock(SequenceState& sequence, int32_t token) = 0;

  virtual void SetProbe(ForwardProbe* probe) = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_MODEL_MODEL_H_
