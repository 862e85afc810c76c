// Drafter: DSpark on the device side: how many drafts a step verifies, which drafts stand ready for the next one
// (docs/dspark.md).
//
// Taps of accepted rows are kept until somebody drafts, and fed to the draft rings then: a machine on which speculation
// does not pay must not pay for it. Thread-safety: the device thread. Ownership: taps and planner; slots and model are
// the executor's. Nothing allocates after Create.
#ifndef DEEPINFER_ENGINE_DRAFTER_H_
#define DEEPINFER_ENGINE_DRAFTER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/device_memory.h"
#include "deepinfer/engine.h"
#include "engine/calibration.h"
#include "engine/row_rules.h"
#include "engine/speculation_planner.h"
#include "engine/step_row.h"
#include "model/model.h"

namespace deepinfer {

struct DrafterOptions {
  int draft_length = 0;  ///< at most the block size; 0: never drafts
  bool variable_drafts = true;
  SpeculationRule rule = SpeculationRule::kCoupled;
};

class Drafter {
 public:
  /// `slots`: all of the executor's; they stay where they are. kResourceExhausted: no memory for the taps.
  static Result<std::unique_ptr<Drafter>> Create(Model& model, Ops& ops, std::span<DecodeSlot> slots,
                                                 const DrafterOptions& options, StepProfile profile);

  /// A slot that begins: its drafts are expected to survive as others' do.
  void Reset(DecodeSlot* slot) const;

  /// The slot's drafts have been verified: what to expect of the next ones.
  void Observe(DecodeSlot* slot);

  /// Sets StepRow::drafts of the decoding rows: how many of the drafts that stand ready are verified.
  void PlanVerification(std::span<StepRow> rows);

  /// After acceptance: keeps the taps of rows that stand. items[i] belongs to rows[i].
  void KeepTaps(std::span<const StepRow> rows, const ForwardResult& forward);

  /// Proposes drafts for the next step of every slot that goes on, if that is worth it.
  Status Propose(std::span<const StepRow> rows);

  /// Cuts the slot's drafts where its grammar forbids them and adds what the grammar leaves no choice about. Outputs
  /// do not change: a draft stands only if it is the token that is chosen. `tokenizer` may be null: nothing is added.
  Status Constrain(DecodeSlot* slot, const Tokenizer* tokenizer);

  void SetCalibration(const Calibration& calibration) { calibration_ = calibration; }
  const std::string& warning() const { return planner_.warning(); }
  int64_t bytes() const { return tap_storage_.bytes(); }

 private:
  Drafter(Model& model, Ops& ops, std::span<DecodeSlot> slots, const DrafterOptions& options, StepProfile profile);

  int32_t Limit(const DecodeSlot& slot, int64_t length) const;
  Status FlushTaps(std::span<DecodeSlot* const> slots);
  Status DraftBlocks();

  Model& model_;
  Ops& ops_;
  std::span<DecodeSlot> slots_;
  DrafterOptions options_;
  int64_t window_ = 0;
  DeviceMemory tap_storage_;
  std::vector<const float*> copy_from_;
  std::vector<float*> copy_to_;
  FloatView taps_;  // [slots * window, taps * D], row of position p: slot * window + p % window
  StepProfile profile_;
  SpeculationPlanner planner_;
  Calibration calibration_;
  bool probe_ = false;
  RowRules rules_;

  std::vector<DraftContext> contexts_;
  std::vector<DraftItem> items_;
  std::vector<DecodeSlot*> drafting_;
  std::vector<float> expected_;         // [b] survival, moving average over all slots
  std::vector<float> survival_;         // [R, b]
  std::vector<float> survival_before_;  // [R, b]
  std::vector<int32_t> limits_;         // [R]
  std::vector<int32_t> lengths_;        // [R]
  std::vector<int32_t> forced_;         // of one slot
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_DRAFTER_H_
