// EnginePlan: every size of an engine, derived from its options, the model and the free memory before anything is
// allocated (promise 5).
//
// Thread-safety: values and pure functions. Ownership: none.
#ifndef DEEPINFER_ENGINE_ENGINE_PLAN_H_
#define DEEPINFER_ENGINE_ENGINE_PLAN_H_

#include "cache/replay_plan.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"
#include "deepinfer/engine.h"
#include "engine/sequence_cache.h"
#include "engine/step_executor.h"
#include "model/model.h"
#include "ops/ops.h"

namespace deepinfer {

struct EnginePlan {
  EngineOptions options;  ///< with everything chosen
  ModelOptions model;
  KvManagerOptions kv;
  ExecutorOptions executor;
  ReplaySettings bounded;
  ReplaySettings exact;
  double encoder_cost = 1;  ///< of a row that ends below the decoder, in rows through all layers
  int64_t piece_bytes = 0;  ///< rings and tails of a running sequence

  const ReplaySettings& settings(ReplayMode mode) const { return mode == ReplayMode::kBounded ? bounded : exact; }
};

/// What the plan of an engine may take on the device that computes, its weights counted. kResourceExhausted: a GPU has
/// no room for the weights.
Result<int64_t> FreeBytes(const Ops& ops, const Checkpoint& checkpoint);

/// `free_bytes`: memory that may be used, 0: unknown. kInvalidArgument: an option that this model cannot have;
/// kResourceExhausted: an engine of these options needs more than is free, with both numbers.
Result<EnginePlan> PlanEngine(const EngineOptions& options, const ModelConfig& config, int64_t free_bytes);

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_ENGINE_PLAN_H_
