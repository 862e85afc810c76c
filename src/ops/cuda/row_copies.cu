// Pooling of pairs (spec c.6) and copies of rows. kernels.h says what each does.
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"

namespace deepinfer::cuda {
namespace {

__global__ void PoolPairsKernel(const float* const* first, const float* const* second, FloatView out) {
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= out.columns) return;
  const float* kv0 = first[blockIdx.x];
  const float* kv1 = second[blockIdx.x];
  const float gate0 = kv0[out.columns + c], gate1 = kv1[out.columns + c];
  const float maximum = fmaxf(gate0, gate1);
  const float e0 = expf(gate0 - maximum), e1 = expf(gate1 - maximum);
  RowOf(out, blockIdx.x)[c] = kv0[c] * (e0 / (e0 + e1)) + kv1[c] * (e1 / (e0 + e1));
}

template <typename T>
__device__ void CopyAs(const uint8_t* from, uint8_t* to, int64_t bytes, int lane) {
  for (int64_t i = lane; i < bytes / static_cast<int64_t>(sizeof(T)); i += 32) {
    reinterpret_cast<T*>(to)[i] = reinterpret_cast<const T*>(from)[i];
  }
}

// By one warp, in the widest pieces that both addresses allow.
__device__ void CopyBytes(const uint8_t* from, uint8_t* to, int64_t bytes, int lane) {
  const uint64_t all = reinterpret_cast<uint64_t>(from) | reinterpret_cast<uint64_t>(to) | static_cast<uint64_t>(bytes);
  if (all % 16 == 0) return CopyAs<uint4>(from, to, bytes, lane);
  if (all % 4 == 0) return CopyAs<uint32_t>(from, to, bytes, lane);
  CopyAs<uint8_t>(from, to, bytes, lane);
}

constexpr int kRowsPerBlock = kThreads / 32;

__global__ void CopyRowsKernel(const RowCopies* jobs) {
  const RowCopies& job = jobs[blockIdx.y];
  const int64_t i = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / 32;
  if (i >= job.count) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const RowBytes bytes = PackedRowBytes(job.from.format, job.from.channels);
  const int64_t source = job.source[i], destination = job.destination[i];
  CopyBytes(RowValues(job.from, source), RowValues(job.to, destination), bytes.values, lane);
  CopyBytes(RowScales(job.from, source), RowScales(job.to, destination), bytes.scales, lane);
}

// A thread owns a column and takes its rows in order, so no row is overwritten before it is read: its index is not
// below its place. The same holds for a few rows read before they are written.
template <typename T>
__global__ void KeepRowsKernel(const int32_t* rows, int64_t count, TensorView<T> x) {
  constexpr int kAtOnce = 8;
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= x.columns) return;
  for (int64_t first = 0; first < count; first += kAtOnce) {
    T values[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < count) values[i] = RowOf(x, rows[first + i])[c];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < count) RowOf(x, first + i)[c] = values[i];
    }
  }
}

template <typename T>
void KeepRowsAs(cudaStream_t stream, const int32_t* rows, int64_t count, const TensorView<T>& x) {
  constexpr int kColumns = 64;  // small blocks: the columns are all the parallelism there is
  KeepRowsKernel<T><<<Blocks(x.columns, kColumns), kColumns, 0, stream>>>(rows, count, x);
}

}  // namespace

void PoolPairs(cudaStream_t stream, const float* const* first, const float* const* second, FloatView out) {
  if (out.rows == 0 || out.columns == 0) return;
  const dim3 grid(static_cast<unsigned>(out.rows), Blocks(out.columns, kThreads));
  PoolPairsKernel<<<grid, kThreads, 0, stream>>>(first, second, out);
}

void CopyRows(cudaStream_t stream, const RowCopies* jobs, int64_t count, int64_t most_rows) {
  if (count == 0 || most_rows == 0) return;
  const dim3 grid(Blocks(most_rows, kRowsPerBlock), static_cast<unsigned>(count));
  CopyRowsKernel<<<grid, kThreads, 0, stream>>>(jobs);
}

void KeepRows(cudaStream_t stream, const int32_t* rows, int64_t count, FloatView x) {
  if (count == 0 || x.columns == 0) return;
  if (reinterpret_cast<uint64_t>(x.data) % 16 == 0 && x.columns % 4 == 0 && x.stride % 4 == 0) {
    float4* data = reinterpret_cast<float4*>(x.data);
    return KeepRowsAs(stream, rows, count, TensorView<float4>(data, x.rows, x.columns / 4, x.stride / 4));
  }
  KeepRowsAs(stream, rows, count, x);
}

}  // namespace deepinfer::cuda
