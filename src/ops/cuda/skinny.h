// Tensor core products for few rows: what limits them is reading the weights (docs/cuda.md, "Skinny products").
//
// Activations are E4M3 codes with one E8M0 byte per 32 columns (spec c.1). A tile is 16 weight rows by 8 activation
// rows; products are exact in F16 MMA, sums are F32: within a block of 32 columns by the MMA, blocks in ascending order
// by one fused multiply-add each with both scales, then the parts of K (skinny_plan.h) in ascending order. That order
// depends on the weight's shape only.
// Thread-safety, ownership: as kernels.h.
#ifndef DEEPINFER_OPS_CUDA_SKINNY_H_
#define DEEPINFER_OPS_CUDA_SKINNY_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"

namespace deepinfer::cuda {

/// Quantised activations: codes [T, columns], scales [T, columns / 32].
struct Fp8Rows {
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;
  int64_t columns = 0;
};

/// One expert's weights as kF4Row32 holds them: w1, w3 [I, D], w2 [D, I].
struct DeviceExpert {
  const uint8_t* w1 = nullptr;
  const uint8_t* w1_scale = nullptr;
  const uint8_t* w3 = nullptr;
  const uint8_t* w3_scale = nullptr;
  const uint8_t* w2 = nullptr;
  const uint8_t* w2_scale = nullptr;
};

/// Which rows go to which expert (routing.h), all arrays on the device.
struct ExpertsPlan {
  const DeviceExpert* experts = nullptr;  // [E]
  const int32_t* active = nullptr;        // [active_count]
  int active_count = 0;
  int most_rows = 0;                 ///< of one expert, or an upper bound
  const int32_t* offsets = nullptr;  // [E + 1]
  const int32_t* order = nullptr;    // [slots]
  const float* weights = nullptr;    // [slots], by slot
  int per_token = 1;
  int64_t columns = 0;  // D
  int64_t inner = 0;    // I
  float limit = 0;
};

void QuantiseRows(cudaStream_t stream, ConstFloatView x, const Fp8Rows& out);

/// rms(x, weight) quantised; the unrounded rows too where `normed` is not empty.
void RmsNormQuantise(cudaStream_t stream, ConstFloatView x, const WeightVector& weight, float eps, const Fp8Rows& out,
                     FloatView normed);

/// Whether SkinnyLinear takes this weight.
bool SkinnyFits(const WeightMatrix& weight, int groups);
void SkinnyLinear(cudaStream_t stream, const Fp8Rows& x, int64_t rows, const WeightMatrix& weight, int groups,
                  FloatView out);

/// Whether SkinnyExperts takes experts like these.
bool SkinnyExpertsFit(const WeightMatrix& w1, const WeightMatrix& w2);
/// hidden [slots, I] is scratch; parts.row(slot) = w2(quantised(silu(w1 x) * (w3 x) * weight)), parts [slots, D].
void SkinnyExperts(cudaStream_t stream, const ExpertsPlan& plan, const Fp8Rows& x, const Fp8Rows& hidden,
                   FloatView parts);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_SKINNY_H_
