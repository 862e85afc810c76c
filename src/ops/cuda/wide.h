// Tensor core products for many rows (prefill): WGMMA on SM90 (docs/cuda.md, "Wide products").
//
// Activations are BF16 rows in ColumnOrder::kFp8Wide or kFp4Wide (skinny.h), quantised or terms of exact ones; weights
// become BF16 in registers, with their scale, exactly. Results have the bits of DirectLinear and SkinnyExperts, so
// a prompt may take these kernels and an answer those (promise 1). Other GPUs than SM90 do not have them: WideFits says
// no. Thread-safety, ownership: as kernels.h.
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

/// out = x W^T for `rows` rows; x as DirectLinear but for its order. Returns false when the launch could not be made.
bool WideLinear(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WeightMatrix& weight, int groups,
                FloatView out);

/// Rows of one expert for a block: kWideTileRows from `first` on, as far as there are. expert -1: none.
struct ExpertTile {
  int32_t expert;
  int32_t first;
};

/// Rows of a block.
inline constexpr int kWideTileRows = 128;

/// One matrix of every expert: rows offsets[e] .. offsets[e + 1] - 1 of x times values[e * pointer_step] and scales
/// likewise.
struct WideExperts {
  const uint8_t* const* values = nullptr;  // [E]
  const uint8_t* const* scales = nullptr;  // [E]
  int pointer_step = 1;
  const void* near = nullptr;         ///< an address by all of them (space_map.cuh)
  const int32_t* offsets = nullptr;   // [E + 1]
  const ExpertTile* tiles = nullptr;  // [tile_count], of kWideTileRows
  int tile_count = 0;
  int64_t outputs = 0, columns = 0;
};

/// x holds the rows sorted by expert, `rows` in all, in ColumnOrder::kFp4Wide.
bool WideExpertsProduct(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WideExperts& experts,
                        FloatView out);

/// hidden.row(i) = quantised silu(gate) * up * weights[i], in ColumnOrder::kFp4Wide.
void SwiGluQuantise(cudaStream_t stream, ConstFloatView gate, ConstFloatView up, const float* weights, float limit,
                    const Bf16Rows& hidden);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_WIDE_H_
