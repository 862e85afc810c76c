#include <cuda_runtime_api.h>

#include "ops/cuda/cuda_ops.h"

namespace deepinfer {
namespace {

// The build's code is for these (cmake/Cuda.cmake), and code of one major runs on no other.
constexpr bool HasKernels(int major) { return major == 9 || major == 10; }

}  // namespace

bool BuiltWithCuda() { return true; }

bool IsUsableCudaDevice(int device) {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && HasKernels(major);
}

std::string CudaNumerics(int major, int minor, CudaProducts products) {
  // Kernels differ between generations, and functions such as exp come with the toolkit.
  return "cuda " + std::to_string(major) + "." + std::to_string(minor) +
         (products == CudaProducts::kCanonical ? " canonical" : " tensor") + ", toolkit " +
         std::to_string(CUDART_VERSION) + ", version " + std::to_string(kCudaNumericsVersion);
}

int CountCudaDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  int usable = 0;
  for (int device = 0; device < count; ++device) usable += IsUsableCudaDevice(device) ? 1 : 0;
  return usable;
}

}  // namespace deepinfer
