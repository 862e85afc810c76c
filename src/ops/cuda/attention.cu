// Window plus selected rows attention in F32 (spec c.5): one block a (row, head), any width. The readable form; its
// keys are visited in one fixed order, so a row does not depend on the batch or the chunking. sparse_attention.cu is
// the fast one.
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/key_list.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"

namespace deepinfer::cuda {
namespace {

// Fixed tree over the threads of the block; every thread gets the result. scratch [kThreads].
template <typename Combine>
__device__ float BlockReduce(float value, float* scratch, const Combine& combine) {
  __syncthreads();
  scratch[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) {
      scratch[threadIdx.x] = combine(scratch[threadIdx.x], scratch[threadIdx.x + half]);
    }
    __syncthreads();
  }
  return scratch[0];
}

__global__ void AttentionKernel(ConstFloatView q, int width, const DeviceSequence* sequences,
                                const int32_t* row_sequence, int window, DeviceLists selected, WeightVector sink,
                                float scale, FloatView out) {
  WaitForKernelAhead();
  StartKernelBehind();
  extern __shared__ float shared[];
  float* scratch = shared;             // [kThreads]
  float* query = shared + kThreads;    // [width]
  float* probability = query + width;  // [keys]
  const int64_t t = blockIdx.x;
  const int head = static_cast<int>(blockIdx.y);
  const DeviceSequence& sequence = sequences[row_sequence[t]];
  const KeyRange range = KeysOf(sequence, t, window, selected);
  for (int c = static_cast<int>(threadIdx.x); c < width; c += kThreads) {
    query[c] = RowOf(q, t)[int64_t{head} * width + c];
  }
  __syncthreads();

  const int lane = static_cast<int>(threadIdx.x) % 32;
  float maximum = LoadVector(sink, head);
  for (int j = static_cast<int>(threadIdx.x) / 32; j < range.count(); j += kThreads / 32) {
    const KeyRow key = KeyAt(sequence, range, selected, t, j);
    float sum = 0;
    for (int c = lane; c < width; c += 32)
      sum = fmaf(UnpackChannel(key.format, key.values, key.scales, c), query[c], sum);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    const float score = sum * scale;
    if (lane == 0) probability[j] = score;
    maximum = fmaxf(maximum, score);
  }
  maximum = BlockReduce(maximum, scratch, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0;
  for (int j = static_cast<int>(threadIdx.x); j < range.count(); j += kThreads) {
    sum += probability[j] = expf(probability[j] - maximum);
  }
  sum = BlockReduce(sum, scratch, [](float a, float b) { return a + b; });
  const float denominator = sum + expf(LoadVector(sink, head) - maximum);
  __syncthreads();

  float* result = RowOf(out, t) + int64_t{head} * width;
  for (int c = static_cast<int>(threadIdx.x); c < width; c += kThreads) {
    float value = 0;
    for (int j = 0; j < range.count(); ++j) {
      const KeyRow key = KeyAt(sequence, range, selected, t, j);
      value = fmaf(probability[j], UnpackChannel(key.format, key.values, key.scales, c), value);
    }
    result[c] = value / denominator;
  }
}

}  // namespace

void Attention(cudaStream_t stream, ConstFloatView q, int heads, const DeviceSequence* sequences,
               const int32_t* row_sequence, int window, const DeviceLists& selected, const WeightVector& sink,
               float scale, int most_keys, FloatView out) {
  if (q.rows == 0) return;
  const int width = static_cast<int>(q.columns / heads);
  const dim3 grid(static_cast<unsigned>(q.rows), static_cast<unsigned>(heads));
  const size_t bytes = static_cast<size_t>(kThreads + width + most_keys) * 4;
  LaunchEarly(stream, grid, kThreads, bytes, AttentionKernel, q, width, sequences, row_sequence, window, selected, sink,
              scale, out);
}

}  // namespace deepinfer::cuda
