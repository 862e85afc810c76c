// CudaOps: the Ops of an NVIDIA GPU (docs/cuda.md).
//
// With device_memory ops run on memory of Allocate() and are recorded, so that a step does not wait in between; host
// memory is copied in and out, and such an op waits. AcceptDrafts and copies between host rows run on the CPU.
//
// Thread-safety: as Ops: one driving thread. Ownership: owns its stream, scratch and weight copies.
// Errors: an op cannot report; after a CUDA error every output is NaN (or row 0) and status() says why.
#ifndef DEEPINFER_OPS_CUDA_CUDA_OPS_H_
#define DEEPINFER_OPS_CUDA_CUDA_OPS_H_

#include <memory>
#include <string>

#include "deepinfer/status.h"
#include "ops/ops.h"

namespace deepinfer {

/// Goes up whenever a kernel changes a bit of a KV row or of a window ring: what a GPU left in the KV tiers before is
/// not found any more.
inline constexpr int kCudaNumericsVersion = 1;

/// Which matrix products run.
enum class CudaProducts : uint8_t {
  kCanonical,    ///< ops/dot_order.h: the bits of the CPU
  kTensorCores,  ///< MMA where the shape allows: exact products, F32 sums in a fixed order of its own
};

struct CudaOptions {
  int device = 0;
  CudaProducts products = CudaProducts::kTensorCores;
  /// Weights stay on the GPU, from LoadWeights() or their first use on. Their host bytes must not change or move.
  bool keep_weights = true;
  /// Allocate() gives memory of the GPU, on which ops run without waiting; false: host memory, and every op copies.
  bool device_memory = false;
};

/// Whether this build has CUDA kernels at all.
bool BuiltWithCuda();
/// Whether this build has kernels for GPU number `device`; false without a driver or in a build without CUDA.
bool IsUsableCudaDevice(int device);
/// GPUs that this build has kernels for; 0 without a driver or in a build without CUDA.
int CountCudaDevices();

/// Ops::numerics() of a GPU of this compute capability.
std::string CudaNumerics(int major, int minor, CudaProducts products);

/// The Ops of a GPU. Errors: kUnsupported in a build without CUDA, kNotFound without such a GPU.
Result<std::unique_ptr<Ops>> MakeCudaOps(const CudaOptions& options);

}  // namespace deepinfer

#endif  // DEEPINFER_OPS_CUDA_CUDA_OPS_H_
