// CudaOps in a build without CUDA.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/device_limits.h"

namespace deepinfer {

bool BuiltWithCuda() { return false; }

bool IsUsableCudaDevice(int) { return false; }

int CountCudaDevices() { return 0; }

Result<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions&) {
  return Status::Unsupported(
      "device: this build has no CUDA kernels; configure with -DDEEPINFER_CUDA=ON, or compute on the cpu");
}

namespace cuda {
DeviceLimits MeasureDeviceLimits(int, double, int64_t) { return {}; }
}  // namespace cuda

}  // namespace deepinfer
