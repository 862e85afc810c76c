// EnginePlan: every size of an engine, derived from its options, the model and the free memory before anything is
// allocated (promise 5).
//
// Thread-safety: values and pure functions. Ownership: none.
#ifndef DEEPINFER_ENGINE_ENGINE_PLAN_H_
#define DEEPINFER_ENGINE_ENGINE_PLAN_H_

#include <vector>

#include "cache/replay_plan.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weights.h"
#include "deepinfer/engine.h"
#include "engine/sequence_cache.h"
#include "engine/step_executor.h"
#include "model/model.h"
#include "model/weight_placement.h"
#include "ops/ops.h"

namespace deepinfer {

/// Memory that an engine may take beside its weights, and beside Engram tables that are read into host memory.
struct FreeMemory {
  int64_t device = 0;  ///< of what computes; 0: unknown
  int64_t host = 0;    ///< 0: unknown
  bool is_one = true;  ///< the CPU computes: both are the same memory
};

struct EnginePlan {
  EngineOptions options;  ///< with everything chosen
  ModelOptions model;
  WeightPlacement weights;
  KvManagerOptions kv;
  ExecutorOptions executor;
  ReplaySettings bounded;
  ReplaySettings exact;
  double encoder_cost = 1;  ///< of a row that ends below the decoder, in rows through all layers
  int64_t piece_bytes = 0;  ///< rings and tails of a running sequence

  const ReplaySettings& settings(ReplayMode mode) const { return mode == ReplayMode::kBounded ? bounded : exact; }
};

/// Where the weights go that `options` ask for.
WeightPlacement PlacementOf(const EngineOptions& options, const ModelConfig& config, const Ops& ops);

/// Bytes of Engram tables that are read into host memory at the start; 0: none.
int64_t TablesInHostMemory(const Checkpoint& checkpoint, const WeightPlacement& placement);

/// What is left of `host` bytes beside these tables; 0: unknown. kResourceExhausted: nothing, with both numbers.
Result<int64_t> LeaveRoomForTables(const Checkpoint& checkpoint, const WeightPlacement& placement, int64_t host);

/// What is left of the device that computes, and of the host, beside the weights. kResourceExhausted: a GPU, or the
/// host, has no room for them; says what would fit.
Result<FreeMemory> FindFreeMemory(const Ops& ops, const Checkpoint& checkpoint, const WeightPlacement& placement);

/// The same of a GPU with `device` bytes free, beside a host with `host` that tables have no part in.
Result<FreeMemory> LeaveRoomForWeights(const Checkpoint& checkpoint, const WeightPlacement& placement, int64_t device,
                                       int64_t host);

/// kInvalidArgument: an option that this model cannot have; kResourceExhausted: an engine of these options needs more
/// than is free, with both numbers.
Result<EnginePlan> PlanEngine(const EngineOptions& options, const ModelConfig& config, const FreeMemory& free);

/// Whether lines that are reserved at the start fit; those of weights are not counted.
Status CheckPlan(const std::vector<PlannedMemory>& lines, const FreeMemory& free);

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_ENGINE_PLAN_H_
