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

// For any number of experts and picks: logits.row(t) becomes the scores; biased scores are in shared memory, NaN once
// picked.
__global__ void WideRouteKernel(FloatView logits, WeightVector bias, bool normalise, float scaling, int32_t* picks,
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

// Unsigned numbers in the order of the floats, +0 and -0 the same; 0 is below all of them.
__device__ __forceinline__ uint32_t OrderOf(float value) {
  const uint32_t bits = value == 0 ? 0 : __float_as_uint(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Up to 32 * kOwn experts and 32 picks: scores, their order and the picks stay in registers, so a row is one trip to
// memory. Expert lane + 32 * j is in place j of its lane.
template <int kOwn>
__global__ void RouteKernel(ConstFloatView logits, WeightVector bias, bool normalise, float scaling, int32_t* picks,
                            int64_t picks_stride, int per_token, FloatView weights) {
  constexpr unsigned kAllLanes = 0xffffffffu;
  StartKernelBehind();
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t t = blockIdx.x;
  const int experts = static_cast<int>(logits.columns);
  float scores[kOwn], biases[kOwn];
#pragma unroll
  for (int j = 0; j < kOwn; ++j) biases[j] = lane + 32 * j < experts ? LoadVector(bias, lane + 32 * j) : 0.0f;
  WaitForKernelAhead();
#pragma unroll
  for (int j = 0; j < kOwn; ++j) scores[j] = lane + 32 * j < experts ? RowOf(logits, t)[lane + 32 * j] : 0.0f;
  uint32_t order[kOwn];  // 0: picked, or no expert
#pragma unroll
  for (int j = 0; j < kOwn; ++j) {
    scores[j] = RouteScore(scores[j]);
    const float value = scores[j] + biases[j];
    order[j] = lane + 32 * j < experts ? OrderOf(isnan(value) ? -INFINITY : value) : 0u;
  }
  // Lane k keeps the k-th pick: the largest of what is left and the lowest id of equal ones.
  int own_id = 0x7fffffff;
  float own_score = 0;
  for (int k = 0; k < per_token; ++k) {
    uint32_t best = 0;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) best = max(best, order[j]);
    best = __reduce_max_sync(kAllLanes, best);
    unsigned id = 0xffffffffu;
#pragma unroll
    for (int j = kOwn - 1; j >= 0; --j) {
      if (order[j] == best) id = static_cast<unsigned>(lane + 32 * j);
    }
    id = __reduce_min_sync(kAllLanes, id);
    float score = 0;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      if (id / 32 == static_cast<unsigned>(j)) {
        score = scores[j];
        if (id % 32 == static_cast<unsigned>(lane)) order[j] = 0;
      }
    }
    score = __shfl_sync(kAllLanes, score, static_cast<int>(id % 32));
    if (lane == k) {
      own_id = static_cast<int>(id);
      own_score = score;
    }
  }
  // Ascending ids: `place` of this lane's, and the sum in their order.
  int place = 0;
  for (int k = 0; k < per_token; ++k) place += __shfl_sync(kAllLanes, own_id, k) < own_id;
  float sum = 0;
  for (int k = 0; k < per_token; ++k) {
    const unsigned holder = __ballot_sync(kAllLanes, lane < per_token && place == k);
    sum += __shfl_sync(kAllLanes, own_score, __ffs(static_cast<int>(holder)) - 1);
  }
  if (lane >= per_token) return;
  const float divisor = normalise ? sum + 1e-20f : 1.0f;
  picks[t * picks_stride + place] = own_id;
  RowOf(weights, t)[place] = own_score / divisor * scaling;
}

}  // namespace

void FinishRoute(cudaStream_t stream, FloatView logits, const WeightVector& bias, bool normalise, float scaling,
                 int32_t* picks, int64_t picks_stride, int per_token, FloatView weights) {
  if (logits.rows == 0) return;
  const auto rows = static_cast<unsigned>(logits.rows);
  const auto launch = [&](auto* kernel) {
    LaunchEarly(stream, rows, 32, 0, kernel, logits, bias, normalise, scaling, picks, picks_stride, per_token, weights);
  };
  if (logits.columns > 32 * 16 || per_token > 32) {
    LaunchEarly(stream, rows, 32, static_cast<int>(logits.columns * 4), WideRouteKernel, logits, bias, normalise,
                scaling, picks, picks_stride, per_token, weights);
  } else if (logits.columns <= 32 * 4) {
    launch(&RouteKernel<4>);
  } else if (logits.columns <= 32 * 12) {
    launch(&RouteKernel<12>);
  } else {
    launch(&RouteKernel<16>);
  }
}

}  // namespace deepinfer::cuda
