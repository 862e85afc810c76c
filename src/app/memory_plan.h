// MemoryPlan: everything that an engine holds in memory, in bytes (promise 5): its own plan, and the mapped checkpoint.
//
// Thread-safety: a value. Ownership: none of the memory it speaks of.
#ifndef DEEPINFER_APP_MEMORY_PLAN_H_
#define DEEPINFER_APP_MEMORY_PLAN_H_

#include <cstdint>
#include <vector>

#include "engine/engine_core.h"

namespace deepinfer {

struct MemoryPlan {
  /// Pages of the checkpoint's files; the system shares them with its cache and may drop them.
  int64_t mapped_bytes = 0;
  /// The share of mapped_bytes that is read by single rows and never as a whole.
  int64_t engram_table_bytes = 0;
  std::vector<PlannedMemory> allocations;
  int64_t allocated_bytes = 0;  ///< the sum of those that are reserved at the start
  int64_t device_bytes = 0;     ///< of these: in memory of a GPU's own
  double kv_bytes_per_token = 0;
};

MemoryPlan PlanOf(const EngineCore& engine);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_MEMORY_PLAN_H_
