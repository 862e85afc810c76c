// The coefficients of hyper-connections and the collapsed input of a sublayer (spec c.3) on the device: which kernels
// take them.
//
// Thread-safety: one thread. Ownership: owns a few hundred bytes of device memory. Errors: as Staging.
#ifndef DEEPINFER_OPS_CUDA_DEVICE_MIX_H_
#define DEEPINFER_OPS_CUDA_DEVICE_MIX_H_

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "ops/cuda/device_arena.h"
#include "ops/cuda/staging.h"

namespace deepinfer::cuda {

/// The weights and numbers of Ops::MixStreams.
struct MixWeights {
  const WeightMatrix& fn;
  const WeightVector& base;
  const WeightVector& scale;
  int sinkhorn_iterations;
  float hc_eps;
  float rms_eps;
};

class DeviceMix {
 public:
  /// Ops::MixStreams.
  void Mix(Staging& s, ConstFloatView streams, int n, const MixWeights& weights, FloatView out);

  /// Ops::MixAndCollapse of up to PreparedRows::kFewRows rows. The divisions of Sinkhorn are a branch (CommandList):
  /// a chain of 4 us that nothing needs before the end of the sublayer.
  void MixAndCollapse(Staging& s, ConstFloatView streams, int n, const MixWeights& weights, FloatView mix,
                      ConstFloatView pre, const WeightVector& norm, FloatView normed);

  /// Of device memory.
  int64_t bytes() const { return kept_.bytes(); }

 private:
  DeviceArena kept_{256, false};  // not the ops': those behind use theirs while the branch reads
  float* squares_ = nullptr;      // [PreparedRows::kFewRows]
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_DEVICE_MIX_H_
