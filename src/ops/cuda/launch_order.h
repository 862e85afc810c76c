// What a launch has to know of others: which ones may not start early, and how much shared memory a kernel was allowed.
//
// A launch may not start before the kernel ahead has ended, although its launcher would allow it (early_launch.cuh), if
// it is the first one behind a fork or a join of a graph's branches, or behind a copy.
//
// Thread-safety: each thread has its own wishes; AllowSharedBytes: any thread. Ownership: none.
#ifndef DEEPINFER_OPS_CUDA_LAUNCH_ORDER_H_
#define DEEPINFER_OPS_CUDA_LAUNCH_ORDER_H_

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <utility>

namespace deepinfer::cuda {

/// Streams whose next early launch is an ordinary one: those of the list that is launched, two at most.
struct OrdinaryLaunch {
  cudaStream_t stream = nullptr;
  bool wanted = false;
};
inline thread_local OrdinaryLaunch ordinary_launches[2];

/// The next early launch of this thread on `stream` is an ordinary one.
inline void LaunchNextInOrder(cudaStream_t stream) {
  OrdinaryLaunch* free = nullptr;
  for (OrdinaryLaunch& launch : ordinary_launches) {
    if (launch.wanted && launch.stream == stream) return;
    if (!launch.wanted) free = &launch;
  }
  if (free != nullptr) *free = {stream, true};
}

/// Whether the launch that is about to be made is such a one; asked once for each.
inline bool TakeLaunchInOrder(cudaStream_t stream) {
  for (OrdinaryLaunch& launch : ordinary_launches) {
    if (!launch.wanted || launch.stream != stream) continue;
    launch.wanted = false;
    return true;
  }
  return false;
}

/// Forgets wishes that no launch has taken: a list begins or ends.
inline void ForgetLaunchOrder() {
  for (OrdinaryLaunch& launch : ordinary_launches) launch.wanted = false;
}

/// Allows a kernel so many bytes of dynamic shared memory on the current device. The permission only grows: a graph
/// that was recorded with more is made after a launch with less.
inline void AllowSharedBytes(const void* kernel, int bytes) {
  if (bytes <= 32 * 1024) return;  // 48 KB are allowed without asking, static shared memory counted
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, int> allowed;
  int device = 0;
  (void)cudaGetDevice(&device);
  const std::scoped_lock lock(mutex);
  int& most = allowed[{kernel, device}];
  if (bytes <= most) return;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) == cudaSuccess) most = bytes;
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_LAUNCH_ORDER_H_
