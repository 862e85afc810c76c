// DeviceLinear: which kernels a linear takes; and experts of any format, one after the other, on top of it.
//
// Thread-safety, ownership: as Staging. Errors: the staging's.
#ifndef DEEPINFER_OPS_CUDA_DEVICE_LINEAR_H_
#define DEEPINFER_OPS_CUDA_DEVICE_LINEAR_H_

#include <span>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/routing.h"
#include "ops/cuda/staging.h"

namespace deepinfer::cuda {

/// Ops::Linear; everything is on the device.
void DeviceLinear(Staging& s, CudaProducts products, ConstFloatView x, const WeightMatrix& weight,
                  ActivationFormat activation, int groups, FloatView out);

/// Ops::LinearPair, likewise: one launch for few rows of two FP8 weights.
void DeviceLinearPair(Staging& s, CudaProducts products, ConstFloatView x, const WeightMatrix& first,
                      const WeightMatrix& second, ActivationFormat activation, FloatView first_out,
                      FloatView second_out);

/// Ops::Experts on gathered rows, expert by expert; x and out are on the device, experts on the host.
void RunExperts(Staging& s, CudaProducts products, ConstFloatView x, const Routing& routing,
                std::span<const ExpertWeights> experts, float limit, ActivationFormat activation, FloatView out);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_DEVICE_LINEAR_H_
