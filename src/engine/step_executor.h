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

#include "base/aligned_buffer.h"
#include "deepinfer/engine.h"
#include "engine/calibration.h"
#include "engine/decode_slot.h"
#include "engine/row_rules.h"
#include "engine/speculation_planner.h"
#include "engine/step_plan.h"
#include "model/model.h"

namespace deepinfer {

struct ExecutorOptions {
  int64_t slots = 1;
  int64_t max_model_len = 0;  ///< tokens of one sequence
  int draft_length = 0;
  bool variable_drafts = true;
  SpeculationRule rule = SpeculationRule::kCoupled;
};

class StepExecutor {
 public:
  /// `pieces`: memory of options.slots sequences, layout()->PieceBytes() each. `profile` may be empty.
  /// kResourceExhausted: no memory for the taps.
  static Result<std::unique_ptr<StepExecutor>> Create(Model& model, Ops& ops, const ExecutorOptions& options,
                                                      uint8_t* pieces, StepProfile profile);

  /// Runs one plan. Errors of the model end the requests of the plan, not the engine.
  void Run(const StepPlan& plan, StepResult* result);

  void SetCalibration(const Calibration& calibration) { calibration_ = calibration; }
  const std::string& speculation_warning() const { return planner_.warning(); }

  /// Bytes of slots' tables and of what a step needs, for the memory plan.
  int64_t bytes() const;

 private:
  StepExecutor(Model& model, Ops& ops, const ExecutorOptions& options, uint8_t* pieces, StepProfile profile);

  struct Row {  // one item of the plan that has rows in this step
    const PlanItem* item = nullptr;
    DecodeSlot* slot = nullptr;
    bool decode = false;
    int64_t first_position = 0;
    int32_t first_id = 0;  // in ids_
    int32_t row_count = 0;
    int32_t drafts = 0;       // verified
    int32_t first_rule = -1;  // in rules_; rows with logits, row_count of them for a decode, else 1
    int32_t rule_count = 0;
    int32_t first_logits = 0;
    int32_t result = -1;  // in StepResult::slots
  };

  void Start(const SlotStart& start);
  void GatherRows(const StepPlan& plan);
  Status RestartEncoders();
  void PlanDrafts();
  Status Forward();
  Status Choose(StepResult* result);
  void Accept(Row& row, StepResult* result);
  void RecordPromptLogprobs(const Row& row, StepResult* result);
  void SaveRings(const Row& row, StepResult* result);
  void Emit(Row& row, int32_t id, const TokenChoice& choice, StepResult* result);
  void Fail(Row& row, const Status& status, StepResult* result);
  void KeepTaps();
  Status FlushTaps(std::span<DecodeSlot* const> slots);
  Status ProposeDrafts();
  int32_t DraftLimit(const DecodeSlot& slot, int64_t length) const;

  Model& model_;
  Ops& ops_;
  ExecutorOptions options_;
  std::shared_ptr<const SequenceLayout> layout_;
  int64_t block_ = 0;  // DSpark block size
  std::vector<DecodeSlot> slots_;
  /// Taps of the last window of each slot, fed to the draft rings only when somebody drafts, for a machine on which
  /// speculation does not pay must not pay for it. Row of position p: slot * window + p % window.
  AlignedBuffer<float> tap_storage_;
  FloatView taps_;  // [slots * window, taps * D]
  StepProfile profile_;
  SpeculationPlanner planner_;
  Calibration calibration_;
  bool probe_ = false;

  // Of the running step.
  std::vector<Row> rows_;
  std::vector<int32_t> ids_;
  std::vector<BatchItem> batch_;
  std::vector<TokenRule> rules_;
  std::vector<TokenChoice> choices_;
  std::vector<int32_t> restart_ids_;
  RowRules row_rules_;
  RowRules draft_rules_;
  ForwardResult forward_;
  std::vector<DraftContext> contexts_;
  std::vector<DraftItem> draft_items_;
  std::vector<DecodeSlot*> draft_slots_;
  std::vector<float> survival_;  // [R, b]
  std::vector<float> survival_before_;
  std::vector<int32_t> limits_;             // [R]
  std::vector<int32_t> lengths_;            // [R]
  std::vector<TokenRule> one_draft_rules_;  // [b] of a rejection check
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_STEP_EXECUTOR_H_
