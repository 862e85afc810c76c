// What this machine can do at most, measured: the limits that bench/ and `deepinfer bench` print speeds against.
//
// Thread-safety: one caller at a time per pool. The figures are of the pool's threads running together.
#ifndef DEEPINFER_OPS_CPU_MACHINE_LIMITS_H_
#define DEEPINFER_OPS_CPU_MACHINE_LIMITS_H_

#include <cstdint>

#include "base/thread_pool.h"
#include "deepinfer/status.h"

namespace deepinfer::cpu {

struct MachineLimits {
  double read_bytes_per_second = 0;  ///< sequential reads of a buffer far larger than the caches, best of several runs
  double fma_flops_per_second = 0;  ///< F32 fused multiply-adds (2 FLOP each) on independent registers, best of several
};

/// Measures both, in about `seconds`. `buffer_bytes`: size of the read test's buffer.
Result<MachineLimits> MeasureMachineLimits(ThreadPool& pool, double seconds, int64_t buffer_bytes = int64_t{1} << 30);

}  // namespace deepinfer::cpu

#endif  // DEEPINFER_OPS_CPU_MACHINE_LIMITS_H_
