// Launches that may start before the kernel ahead in the stream has ended (programmatic dependent launch).
//
// Such a kernel calls WaitForKernelAhead() in every block before it ends, also where the block has nothing to do, and
// before it writes or reads anything that another kernel has to do with. So "the kernel ahead has ended" means that all
// kernels before that one have, too. Weights are read before that: what makes them is a copy, or FillWeights or
// OrderFp4, whose threads end with a fence; they must not be the output of any other kernel.
#ifndef DEEPINFER_OPS_CUDA_EARLY_LAUNCH_CUH_
#define DEEPINFER_OPS_CUDA_EARLY_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <type_traits>

#include "ops/cuda/launch_order.h"

namespace deepinfer::cuda {

template <typename... Arguments>
void LaunchEarly(cudaStream_t stream, dim3 grid, int threads, int shared_bytes, void (*kernel)(Arguments...),
                 const std::type_identity_t<Arguments>&... arguments) {
  AllowSharedBytes(reinterpret_cast<const void*>(kernel), shared_bytes);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = TakeLaunchInOrder(stream) ? 0 : 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, static_cast<Arguments>(arguments)...);
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_EARLY_LAUNCH_CUH_
