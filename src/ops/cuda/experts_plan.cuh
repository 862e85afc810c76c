// How a block of an experts' kernel finds its expert and its rows (skinny.h, ExpertsPlan), and what joins gate and up.
//
// The reads go to L2: DownKernel may do them while GateUpKernel runs, and L1 may still have the lists of a step before.
#ifndef DEEPINFER_OPS_CUDA_EXPERTS_PLAN_CUH_
#define DEEPINFER_OPS_CUDA_EXPERTS_PLAN_CUH_

#include <cstdint>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/skinny.h"

namespace deepinfer::cuda {

__device__ __forceinline__ const uint8_t* LoadPointer(const uint8_t* const* at) {
  return reinterpret_cast<const uint8_t*>(__ldcg(reinterpret_cast<const unsigned long long*>(at)));
}
/// The block's expert; -1: none.
__device__ __forceinline__ int32_t ActiveExpert(const ExpertsPlan& plan) { return __ldcg(plan.active + blockIdx.z); }

struct Assignment {
  const int32_t* order;
  int count;
};
__device__ __forceinline__ Assignment AssignmentOf(const ExpertsPlan& plan, int32_t id) {
  const int begin = __ldcg(plan.offsets + id);
  return {plan.order + begin, __ldcg(plan.offsets + id + 1) - begin};
}

/// A hidden value of `slot` before its quantisation.
__device__ __forceinline__ float JoinGateUp(const ExpertsPlan& plan, float gate, float up, int64_t slot) {
  return SwiGluValue(gate, up, plan.limit) * plan.weights[slot];
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_EXPERTS_PLAN_CUH_
