// StepPlan and StepResult: what the host and the device side of the engine exchange, once per step (docs/engine.md).
//
// The host (scheduler) knows requests, blocks and budgets; the device (StepExecutor) knows how far each sequence really
// is: tokens that it chose, drafts, accepted counts. A plan is made before the results of the step before it are known,
// so an item of a decoding request names no positions and no ids.
//
// Thread-safety: a plan belongs to the host until it is launched and to the device until its result is read; a result
// the other way round. Ownership: pointers are to memory of the engine's pools, which outlive both.
#ifndef DEEPINFER_ENGINE_STEP_PLAN_H_
#define DEEPINFER_ENGINE_STEP_PLAN_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/replay_plan.h"
#include "deepinfer/generation.h"
#include "deepinfer/sampling_params.h"
#include "deepinfer/status.h"
#include "engine/slot_constraint.h"
#include "model/model.h"

namespace deepinfer {

/// Ring snapshots that a running sequence keeps of its last block boundaries.
inline constexpr int kRollingSnapshots = 4;

/// What the device must know of a request; shared with the host, never changed.
struct RequestInput {
  std::vector<int32_t> ids;  ///< prompt, and what was generated before a preemption
  int64_t prompt_tokens = 0;
  SamplingParams sampling;                             ///< seed of this choice; bad_words as bad_token_sequences
  std::vector<int32_t> end_ids;                        ///< tokens that end the answer
  int64_t most_tokens = 0;                             ///< prompt and answer
  ReplaySettings replay;                               ///< of the request's mode
  bool prompt_logprobs = false;                        ///< of this run: not computed before
  std::shared_ptr<const OutputConstraint> constraint;  ///< null: any text
};

/// A request takes a slot. What the slot held before is forgotten.
struct SlotStart {
  int32_t slot = 0;
  uint64_t serial = 0;  ///< comes back in results, so that late ones are known
  std::shared_ptr<const RequestInput> input;
  ReplayPlan replay;
  const uint8_t* rings = nullptr;                        ///< snapshot to restore, or none
  std::array<uint8_t*, kRollingSnapshots> rolling = {};  ///< buffers for block boundaries, null: none
};

/// The next block of a slot.
struct BlockGrant {
  int32_t slot = 0;
  uint8_t* block = nullptr;
};

/// Rows of one sequence in a step.
struct PlanItem {
  int32_t slot = 0;
  /// Prefill: positions first_position .. + count - 1 of the input's ids. count 0: decode, as many rows as the device
  /// finds right, at most 1 + max_drafts.
  int64_t first_position = 0;
  int64_t count = 0;
  bool last = false;  ///< prefill: the chunk ends the input, choose the next token
  int32_t max_drafts = 0;
  uint8_t* save_rings = nullptr;  ///< prefill: snapshot of the rings behind this chunk
};

struct StepPlan {
  std::vector<SlotStart> starts;
  std::vector<BlockGrant> grants;
  std::vector<PlanItem> items;  ///< at most one per slot

  void Clear() {
    starts.clear();
    grants.clear();
    items.clear();
  }
};

/// A token that a step chose, or whose log probability it computed.
struct StepToken {
  int32_t id = 0;
  double logprob = 0;  ///< with sampling.logprobs >= 0
  std::span<const TokenLogprob> top;
};

/// A ring snapshot that the device took of a decoding sequence.
struct RollingSnapshot {
  int32_t index = 0;  ///< in SlotStart::rolling
  int64_t position = 0;
};

struct SlotResult {
  int32_t slot = 0;
  uint64_t serial = 0;
  int64_t length = 0;       ///< tokens whose rows are computed
  int32_t first_token = 0;  ///< in StepResult::tokens
  int32_t token_count = 0;
  int64_t prompt_position = 0;     ///< of the first token in StepResult::prompt_tokens
  int32_t first_prompt_token = 0;  ///< in StepResult::prompt_tokens
  int32_t prompt_token_count = 0;
  bool finished = false;
  FinishReason reason = FinishReason::kStop;
  Status status;  ///< not ok: the request failed
  bool decode = false;
  int32_t drafted = 0;  ///< drafts that stood ready, verified ones, accepted ones
  int32_t verified = 0;
  int32_t accepted = 0;
  int32_t first_confidence = 0;  ///< in StepResult::confidence, [b] logits when drafted > 0
  bool typical = true;           ///< false: a grammar chose among the drafts, so they say nothing about the draft head
  std::array<RollingSnapshot, 2> snapshots;
  int32_t snapshot_count = 0;
};

struct StepResult {
  std::vector<SlotResult> slots;
  std::vector<StepToken> tokens;
  std::vector<StepToken> prompt_tokens;
  double seconds = 0;  ///< the device took
  Status device;       ///< not ok: it has failed, so every later step fails, too (DeviceFailed)
  RowCounts rows;      ///< that went through the model

  std::vector<float> confidence;          ///< of drafts that stood ready, for calibration
  std::vector<TokenLogprob> top_storage;  ///< what StepToken::top points to
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_STEP_PLAN_H_
