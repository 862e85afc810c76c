#include "app/memory_plan.h"

#include "cache/kv_pool.h"
#include "checkpoint/parameter_summary.h"
#include "model/sequence_state.h"

namespace deepinfer {

MemoryPlan PlanOf(const EngineCore& engine) {
  const Checkpoint& checkpoint = *engine.files().checkpoint;
  MemoryPlan plan;
  plan.mapped_bytes = checkpoint.bytes();
  plan.engram_table_bytes = SummariseParameters(checkpoint.config()).part(ModelPart::kEngramTables).bytes;
  plan.allocations = engine.memory_plan();
  for (const PlannedMemory& allocation : plan.allocations) {
    if (!allocation.at_start) continue;
    plan.allocated_bytes += allocation.bytes;
    if (allocation.on_device) plan.device_bytes += allocation.bytes;
  }
  const auto layout = SequenceLayout::FromConfig(checkpoint.config());
  plan.kv_bytes_per_token = static_cast<double>(layout->BlockBytes()) / kKvBlockTokens;
  return plan;
}

}  // namespace deepinfer
