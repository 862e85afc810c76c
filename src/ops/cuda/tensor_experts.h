// TensorExperts: Ops::Experts by the tensor core products (experts.h), from weights of the checkpoint.
//
// Thread-safety, ownership: as Staging. Errors: the staging's.
#ifndef DEEPINFER_OPS_CUDA_TENSOR_EXPERTS_H_
#define DEEPINFER_OPS_CUDA_TENSOR_EXPERTS_H_

#include <span>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/staging.h"
#include "ops/ops.h"

namespace deepinfer::cuda {

/// Whether RunTensorExperts takes these, and how many rows of `per_token` picks at once.
bool TakesTensorExperts(std::span<const ExpertWeights> experts, ActivationFormat activation);
int64_t MostTensorExpertRows(int64_t per_token);

/// x [T, D], out [T, D] and the views of `end` on the device; picks and weights [T, K] there or on the host.
void RunTensorExperts(Staging& staging, ConstFloatView x, TensorView<const int32_t> picks, ConstFloatView weights,
                      std::span<const ExpertWeights> experts, float limit, FloatView out, const SublayerEnd& end = {});

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_TENSOR_EXPERTS_H_
