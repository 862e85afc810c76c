// MemoryPlan: every large allocation of a session, in bytes, known before the first token (promise 5).
//
// Thread-safety: a value. Ownership: none of the memory it speaks of.
#ifndef DEEPINFER_APP_MEMORY_PLAN_H_
#define DEEPINFER_APP_MEMORY_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "app/model_session.h"

namespace deepinfer {

struct PlannedAllocation {
  std::string key;   ///< stable name for programs
  std::string text;  ///< for people
  int64_t bytes = 0;
};

struct MemoryPlan {
  /// Pages of the checkpoint's files; the system shares them with its cache and may drop them.
  int64_t mapped_bytes = 0;
  /// The share of mapped_bytes that is read by single rows and never as a whole.
  int64_t engram_table_bytes = 0;
  std::vector<PlannedAllocation> allocations;
  int64_t allocated_bytes = 0;  ///< their sum
  double kv_bytes_per_token = 0;
};

/// For one sequence of the session's context.
MemoryPlan PlanMemory(ModelSession& session);

/// kResourceExhausted, with both numbers, when what would be allocated exceeds the memory that is free now.
Status CheckMemory(ModelSession& session);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_MEMORY_PLAN_H_
