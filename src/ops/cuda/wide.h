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

/// Rows of one expert for a block: those from `first` on, as far as a block reaches. expert -1: none.
struct ExpertTile {
  int32_t expert;
  int32_t first;
};

/// Rows of a block: the smaller height loads a weight again for every so many rows of an expert.
inline constexpr int kLowTileRows = 128;
inline constexpr int kHighTileRows = 256;

/// One matrix of every expert: rows offsets[e] .. offsets[e + 1] - 1 of x times values[e * pointer_step] and scales
/// likewise. Either `active` and `most_rows` say what there is to do, or, where the host does not know them, `tiles`.
struct WideExperts {
  const uint8_t* const* values = nullptr;  // [E]
  const uint8_t* const* scales = nullptr;  // [E]
  int pointer_step = 1;
  const int32_t* offsets = nullptr;  // [E + 1]
  const int32_t* active = nullptr;   // [active_count]
  int active_count = 0;
  int most_rows = 0;                  ///< of one expert, or an upper bound
  const ExpertTile* tiles = nullptr;  // [tile_count], or null
  int tile_count = 0;
  int tile_rows = 0;  ///< kLowTileRows or kHighTileRows
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
