// Which launches may not start before the kernel ahead has ended, although their launcher would allow it
// (early_launch.cuh): the first one behind a fork or a join of a graph's branches, and one behind a copy.
//
// Thread-safety: each thread has its own. Ownership: none.
#ifndef DEEPINFER_OPS_CUDA_LAUNCH_ORDER_H_
#define DEEPINFER_OPS_CUDA_LAUNCH_ORDER_H_

#include <cuda_runtime_api.h>

namespace deepinfer::cuda {

/// Streams whose next early launch is an ordinary one: two at most have one at a time.
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
  // A wish that no launch has taken may be left of a stream that is gone.
  *(free != nullptr ? free : ordinary_launches) = {stream, true};
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

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_LAUNCH_ORDER_H_
