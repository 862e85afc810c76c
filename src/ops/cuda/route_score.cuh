// The router's score of an expert (spec c.9).
#ifndef DEEPINFER_OPS_CUDA_ROUTE_SCORE_CUH_
#define DEEPINFER_OPS_CUDA_ROUTE_SCORE_CUH_

namespace deepinfer::cuda {

/// sqrt(softplus(logit)).
__device__ __forceinline__ float RouteScore(float logit) {
  return sqrtf(fmaxf(logit, 0.0f) + log1pf(expf(-fabsf(logit))));
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_ROUTE_SCORE_CUH_
