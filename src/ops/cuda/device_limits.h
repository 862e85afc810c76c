// What a GPU can do at most, measured: cpu/machine_limits.h for GPUs.
//
// Thread-safety: any thread; what else runs on the GPU meanwhile makes the figures smaller. Ownership: none kept.
#ifndef DEEPINFER_OPS_CUDA_DEVICE_LIMITS_H_
#define DEEPINFER_OPS_CUDA_DEVICE_LIMITS_H_

#include <cstdint>

namespace deepinfer::cuda {

struct DeviceLimits {
  double read_bytes_per_second = 0;  ///< sequential reads of a buffer far larger than L2, best of several launches
  /// BF16 products with F32 sums on operands in shared memory (2 FLOP a multiply-add), best of several; 0: not SM90.
  double tensor_flops_per_second = 0;
};

/// Measures both with events, in about `seconds`. Zeros after an error, such as no `buffer_bytes` of memory, and in a
/// build without CUDA.
DeviceLimits MeasureDeviceLimits(int device, double seconds, int64_t buffer_bytes);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_DEVICE_LIMITS_H_
