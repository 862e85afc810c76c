// Tensor core products for many rows (prefill): WGMMA on SM90 (docs/cuda.md, "Wide products").
//
// Activations are quantised BF16 rows in the column order of the weight's format (skinny.h); weights become BF16 in
// shared memory, with their scale, exactly. Sums are the F32 accumulators of the MMAs over ascending columns: a row's
// result depends on nothing but the row and the weight. It is not the bits of the skinny products, whose order is
// another. Other GPUs than SM90 do not have these kernels: WideFits says no. Thread-safety, ownership: as kernels.h.
#ifndef DEEPINFER_OPS_CUDA_WIDE_H_
#define DEEPINFER_OPS_CUDA_WIDE_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "ops/cuda/skinny.h"

namespace deepinfer::cuda {

/// Whether this GPU and these products can take a weight (kF8Block32 or kF4Row32).
bool WideFits(const WeightMatrix& weight, int groups);

/// out = x W^T for `rows` rows; x as SkinnyLinear; rows of out are 8-byte aligned. Returns false when the launch could
/// not be made.
bool WideLinear(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WeightMatrix& weight, int groups,
                FloatView out);

/// One matrix of every expert: rows offsets[e] .. offsets[e + 1] - 1 of x times values[e] and scales[e].
struct WideExperts {
  const uint8_t* const* values = nullptr;  // [E]
  const uint8_t* const* scales = nullptr;  // [E]
  const int32_t* active = nullptr;         // [active_count]
  const int32_t* offsets = nullptr;        // [E + 1]
  int active_count = 0;
  int most_rows = 0;  ///< of one expert, or an upper bound
  int64_t outputs = 0, columns = 0;
};

/// x holds the rows sorted by expert, `rows` in all, in ColumnOrder::kFp4; rows of out are 8-byte aligned.
bool WideExpertsProduct(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WideExperts& experts,
                        FloatView out);

/// hidden.row(i) = quantised silu(gate) * up * weights[i], in ColumnOrder::kFp4.
void SwiGluQuantise(cudaStream_t stream, ConstFloatView gate, ConstFloatView up, const float* weights, float limit,
                    const Bf16Rows& hidden);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_WIDE_H_
