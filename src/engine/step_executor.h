// StepExecutor: the device side of the engine. Runs plans in order on the Model: takes slots, feeds chunks and
// verification rows, chooses tokens, accepts drafts, proposes the next ones (docs/engine.md).
//
// Everything that depends on tokens which the host does not know yet is decided here: input ids, positions of decoding
// sequences, how many drafts are verified, where a window restarts. Nothing allocates in a step, except when a request
// takes a slot and while lists grow to their largest size.
//
// Thread-safety: one thread, the device's. Ownership: model, ops and the memory of slots are the engine's.
#ifndef DEEPINFER_ENGINE_STEP_EXECUTOR_H_
#define DEEPINFER_ENGINE_STEP_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "deepinfer/engine.h"
#include "engine/decode_slot.h"
#include "engine/drafter.h"
#include "engine/mask_worker.h"
#include "engine/row_rules.h"
#include "engine/step_plan.h"
#include "engine/step_row.h"
#include "model/model.h"

namespace deepinfer {

struct ExecutorOptions {
  int64_t slots = 1;
  int64_t max_model_len = 0;  ///< tokens of one sequence
  DrafterOptions drafts;
  const Tokenizer* tokenizer = nullptr;  ///< spells text that a grammar forces; null: nothing is forced
};

/// kInternal: what everybody is told who needs a device that has failed with `cause`.
Status DeviceFailed(const Status& cause);

class StepExecutor {
 public:
  /// `pieces`: memory of options.slots sequences, layout()->PieceBytes() each. `profile` may be empty.
  /// kResourceExhausted: no memory for the taps.
  static Result<std::unique_ptr<StepExecutor>> Create(Model& model, Ops& ops, const ExecutorOptions& options,
                                                      uint8_t* pieces, StepProfile profile);

  /// Runs one plan. Errors of the model end the requests of the plan, not the engine; those of the device are final and
  /// in StepResult::device.
  void Run(const StepPlan& plan, StepResult* result);

  Drafter& drafter() { return *drafter_; }

  /// Bytes of slots' tables and of what a step needs, for the memory plan.
  int64_t bytes() const;

 private:
  StepExecutor(Model& model, Ops& ops, const ExecutorOptions& options);

  void Start(const SlotStart& start);
  void GatherRows(const StepPlan& plan);
  Status RestartEncoders();
  Status Forward();
  void AddMasks(const StepRow& row);
  void ApplyMasks(StepRow& row);
  Status Choose(StepResult* result);
  void Accept(StepRow& row, StepResult* result);
  void RecordPromptLogprobs(const StepRow& row, StepResult* result);
  void SaveRings(const StepRow& row, StepResult* result);
  void Emit(StepRow& row, int32_t id, const TokenChoice& choice, StepResult* result);
  void Fail(StepRow& row, const Status& status, StepResult* result);

  Model& model_;
  Ops& ops_;
  ExecutorOptions options_;
  std::shared_ptr<const SequenceLayout> layout_;
  std::vector<DecodeSlot> slots_;
  MaskWorker mask_worker_;
  std::unique_ptr<Drafter> drafter_;

  // Of the running step.
  std::vector<StepRow> rows_;
  std::vector<int32_t> ids_;
  std::vector<BatchItem> batch_;
  std::vector<TokenRule> rules_;
  std::vector<TokenChoice> choices_;
  std::vector<int32_t> restart_ids_;
  RowRules row_rules_;
  ForwardResult forward_;
  std::vector<TokenRule> one_draft_rules_;  // [b] of a rejection check
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_STEP_EXECUTOR_H_
