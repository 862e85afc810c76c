// DecodeSlot: the device's record of one running sequence: the row of the device token table (docs/engine.md).
//
// Thread-safety: the device thread only. Ownership: owns its state; the memory below it is the engine's.
#ifndef DEEPINFER_ENGINE_DECODE_SLOT_H_
#define DEEPINFER_ENGINE_DECODE_SLOT_H_

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/slot_constraint.h"
#include "engine/step_plan.h"
#include "model/sequence_state.h"
#include "ops/sampling.h"

namespace deepinfer {

struct DecodeSlot {
  std::unique_ptr<SequenceState> state;
  std::shared_ptr<const RequestInput> input;
  uint64_t serial = 0;
  bool finished = true;         ///< nothing is computed for it any more
  Status broken;                ///< why it could not be resumed
  int32_t pending = -1;         ///< the last chosen token, not fed yet; -1: none chosen
  int64_t outputs = 0;          ///< tokens chosen so far, those before a preemption included
  std::vector<SeenToken> seen;  ///< for the penalties; empty without them

  std::unique_ptr<SlotConstraint> constraint;  ///< null: any text

  int32_t draft_count = 0;              ///< proposals that stand ready
  int32_t certain_from = 0;             ///< drafts from here on are what the grammar leaves, not the draft head's
  bool typical_drafts = true;           ///< the draft head's, none cut or added
  std::vector<int32_t> drafts;          // [b]
  std::vector<float> confidence;        // [b] logits
  std::vector<float> survival;          // [b] of these drafts, calibrated
  std::vector<float> survival_before;   // [b] of the block before: what may size the next one (serving.md 3.2)
  std::vector<float> survival_average;  // [b] expected of the next block
  std::vector<float> draft_logits;      // [b, V] rejection rule only

  // Taps of these positions wait in the executor's buffer until somebody drafts.
  int64_t taps_begin = 0;
  int64_t taps_end = 0;

  std::array<uint8_t*, kRollingSnapshots> rolling = {};
  int32_t next_rolling = 0;

  bool bounded() const { return input->replay.bounded; }
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_DECODE_SLOT_H_
