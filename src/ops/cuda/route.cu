// The router after its gate (spec c.9): one warp a row.
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"

namespace deepinfer::cuda {
namespace {

// sqrt(softplus(logit)) (spec c.9).
__device__ __forceinline__ float RouteScore(float logit) {
  return sqrtf(fmaxf(logit, 0.0f) + log1pf(expf(-fabsf(logit))));
}

// logits.row(t) becomes the scores; biased scores are in shared memory, -inf once picked.
__global__ void RouteKernel(FloatView logits, WeightVector bias, bool normalise, float scaling, int32_t* picks,
                            int64_t picks_stride, int per_token, FloatView weights) {
  WaitForKernelAhead();
  StartKernelBehind();
  extern __shared__ float biased[];  // [E]
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t t = blockIdx.x;
  float* scores = RowOf(logits, t);
  const int experts = static_cast<int>(logits.columns);
  for (int e = lane; e < experts; e += 32) {
    const float score = RouteScore(scores[e]);
    scores[e] = score;
    const float value = score + LoadVector(bias, e);
    biased[e] = isnan(value) ? -INFINITY : value;
  }
  __syncwarp();
  int32_t* row = picks + t * picks_stride;
  // The k best, each the largest of what is left and the lowest id of equal ones; a lane marks its own picks by NaN.
  for (int k = 0; k < per_token; ++k) {
    float best = -INFINITY;
    int id = 0x7fffffff;
    for (int e = lane; e < experts; e += 32) {
      if (!isnan(biased[e]) && (id == 0x7fffffff || biased[e] > best)) {
        best = biased[e];
        id = e;
      }
    }
    for (int step = 16; step > 0; step /= 2) {
      const float other = __shfl_xor_sync(0xffffffffu, best, step);
      const int other_id = __shfl_xor_sync(0xffffffffu, id, step);
      const bool mine =
          id != 0x7fffffff && (other_id == 0x7fffffff || best > other || (best == other && id < other_id));
      if (!mine) {
        best = other;
        id = other_id;
      }
    }
    if (lane == 0) {
      row[k] = id;
      biased[id] = NAN;
    }
    __syncwarp();
  }
  if (lane != 0) return;
  for (int i = 1; i < per_token; ++i) {  // ascending ids
    const int32_t id = row[i];
    int j = i;
    for (; j > 0 && row[j - 1] > id; --j) row[j] = row[j - 1];
    row[j] = id;
  }
  float sum = 0;
  for (int k = 0; k < per_token; ++k) sum += scores[row[k]];
  const float divisor = normalise ? sum + 1e-20f : 1.0f;
  for (int k = 0; k < per_token; ++k) RowOf(weights, t)[k] = scores[row[k]] / divisor * scaling;
}

}  // namespace

void FinishRoute(cudaStream_t stream, FloatView logits, const WeightVector& bias, bool normalise, float scaling,
                 int32_t* picks, int64_t picks_stride, int per_token, FloatView weights) {
  if (logits.rows == 0) return;
  LaunchEarly(stream, static_cast<unsigned>(logits.rows), 32, static_cast<size_t>(logits.columns) * 4, RouteKernel,
              logits, bias, normalise, scaling, picks, picks_stride, per_token, weights);
}

}  // namespace deepinfer::cuda
