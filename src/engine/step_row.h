// StepRow: one item of a plan that has rows in the step at hand, as the device works on it.
//
// Thread-safety: the device thread. Ownership: points into plan and slots.
#ifndef DEEPINFER_ENGINE_STEP_ROW_H_
#define DEEPINFER_ENGINE_STEP_ROW_H_

#include <cstdint>

#include "engine/decode_slot.h"
#include "engine/step_plan.h"

namespace deepinfer {

struct StepRow {
  const PlanItem* item = nullptr;
  DecodeSlot* slot = nullptr;
  bool decode = false;
  int64_t first_position = 0;
  int32_t first_id = 0;  ///< in the step's ids
  int32_t row_count = 0;
  int32_t drafts = 0;       ///< verified
  int32_t first_rule = -1;  ///< in the step's rules: rows with logits, row_count of them for a decode
  int32_t rule_count = 0;
  int32_t first_logits = 0;
  int32_t result = -1;  ///< in StepResult::slots
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_STEP_ROW_H_
