// Rope: rotary positions (spec c.4). Contracts: ops/ops.h.
//
// Thread-safety: one caller at a time per pool. Ownership: views only.
#ifndef DEEPINFER_OPS_CPU_ROPE_H_
#define DEEPINFER_OPS_CPU_ROPE_H_

#include "base/thread_pool.h"
#include "ops/ops.h"

namespace deepinfer::cpu {

void RopeTable(ThreadPool& pool, std::span<const int64_t> positions, std::span<const float> frequencies,
               FloatView cos_sin);
void Rope(ThreadPool& pool, FloatView x, int heads, ConstFloatView cos_sin, bool inverse);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_ROPE_H_
