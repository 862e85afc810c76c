// FP4 experts straight from memory into the fragments (skinny.h, SkinnyFeed::kDirect).
//
// Sums have the order of the other feeds, so bits are the same: which feed, form and rows at once is a choice of
// speed. Thread-safety, ownership: as kernels.h.
#ifndef DEEPINFER_OPS_CUDA_DIRECT_EXPERTS_H_
#define DEEPINFER_OPS_CUDA_DIRECT_EXPERTS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/tensor_view.h"
#include "ops/cuda/skinny.h"

namespace deepinfer::cuda {

/// How the kernels cut their work (direct_experts.cu).
enum class DirectForm : uint8_t {
  kAuto,         ///< by the numbers of experts and rows, one of the others
  kFewExperts,   ///< two steps of weights ahead, two blocks an SM
  kManyExperts,  ///< one step ahead, three blocks an SM as far as their activation rows go
  kTwoTiles,     ///< 32 weight rows a warp, which share the reads of activations; two blocks an SM
};
/// For benches and tests, while no other thread launches.
void UseDirectForm(DirectForm form);
/// Launches so far, of any form.
int64_t DirectExpertsLaunches();

/// SkinnyExperts, of what it takes. False, with nothing launched, where columns are no multiples of 256 or rows do not
/// fit into shared memory.
bool DirectExperts(cudaStream_t stream, const ExpertsPlan& plan, const Bf16Rows& x, const Bf16Rows& hidden,
                   FloatView parts);

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_DIRECT_EXPERTS_H_
