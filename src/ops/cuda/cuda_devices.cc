#include <cuda_runtime_api.h>

#include "ops/cuda/cuda_ops.h"

namespace deepinfer {
namespace {

constexpr int kLeastMajor = 9;

}  // namespace

int CountCudaDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  int usable = 0;
  for (int device = 0; device < count; ++device) {
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
        major >= kLeastMajor) {
      ++usable;
    }
  }
  return usable;
}

}  // namespace deepinfer
