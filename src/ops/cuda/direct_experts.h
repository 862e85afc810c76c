// FP4 experts straight from memory into the fragments (skinny.h, SkinnyFeed::kDirect).
//
// Sums have the order of the other feeds, so bits are the same: which feed, variant and rows at once is a choice of
// speed. Thread-safety, ownership: as kernels.h.
#ifndef DEEPINFER_OPS_CUDA_DIRECT_EXPERTS_H_
#define DEEPINFER_OPS_CUDA_DIRECT_EXPERTS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/tensor_view.h"
#include "ops/cuda/skinny.h"

namespace deepinfer::cuda {

/// A form of the kernels (direct_experts.cu); `rows` of an expert at once, more read its weights again.
struct ExpertsVariant {
  int warps, rows, depth, blocks, ahead;
  bool ring;
};
int DirectExpertsVariants();
const ExpertsVariant& DirectExpertsVariant(int variant);  ///< 1 .. DirectExpertsVariants()

/// Launches so far, of any variant.
int64_t DirectExpertsLaunches();

/// SkinnyExperts by that variant, 0: the one that suits most_rows. False, with nothing
/// launched, where columns are no multiples of 256 or rows do not fit into shared memory.
bool DirectExperts(cudaStream_t stream, const ExpertsPlan& plan, const Bf16Rows& x, const Bf16Rows& hidden,
                   FloatView parts, int variant);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_DIRECT_EXPERTS_H_
