// Rows of the caches: packs them into the formats of spec c.7 (one warp a group of 32 channels), copies and keeps them.
#include <algorithm>

#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/rms_norm.cuh"
#include "ops/cuda/rope.cuh"

namespace deepinfer::cuda {
namespace {

// All 32 lanes of a warp take part; lane = channel within the group of 32.
__device__ void PackGroup(float value, RowFormat format, uint8_t* values, uint8_t* scales, int group, int lane,
                          bool exists) {
  const int c = group * 32 + lane;
  if (format == RowFormat::kWindowFp8) {
    const uint8_t byte = Fp8ScaleByte(GroupMaximum(fabsf(value), 32));
    values[c] = FloatToE4m3(value * E8m0ToFloat(static_cast<uint8_t>(254 - byte)));
    if (lane == 0) scales[group] = byte;
    return;
  }
  uint8_t nibble;
  if (format == RowFormat::kIndexFp4) {
    const uint8_t byte = IndexFp4ScaleByte(GroupMaximum(fabsf(value), 32));
    nibble = FloatToE2m1(value / E8m0ToFloat(byte));
    if (lane == 0) scales[group] = byte;
  } else {
    const uint8_t byte = CompressedFp4ScaleByte(GroupMaximum(fabsf(value), 16));
    nibble = FloatToE2m1(value / E4m3ToFloat(byte));
    if (exists && lane % 16 == 0) scales[c / 16] = byte;
  }
  const uint32_t high = __shfl_down_sync(0xffffffffu, uint32_t{nibble}, 1);
  if (exists && lane % 2 == 0) values[c / 2] = static_cast<uint8_t>(nibble | high << 4);
}

__global__ void StoreRowsKernel(ConstFloatView x, RowFormat format, const RowPlace* places) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const RowPlace place = places[blockIdx.x];
  for (int group = static_cast<int>(threadIdx.x) / 32; group * 32 < x.columns;
       group += static_cast<int>(blockDim.x) / 32) {
    const bool exists = group * 32 + lane < x.columns;  // compressed rows may end in half a group
    PackGroup(exists ? RowOf(x, blockIdx.x)[group * 32 + lane] : 0.0f, format, place.values, place.scales, group, lane,
              exists);
  }
}

// Block 0 of a row is its key: norm, rotation, packed row. The others rotate its queries, a pair a thread.
template <bool kVector>
__global__ void __launch_bounds__(kMostNormThreads)
    FinishQueriesAndKeysKernel(FloatView queries, int heads, FloatView kv, WeightVector norm, float eps,
                               ConstFloatView cos_sin, RowFormat format, const RowPlace* places) {
  StartKernelBehind();
  extern __shared__ __align__(16) float shared[];
  const int64_t t = blockIdx.x;
  const float* const table = RowOf(cos_sin, t);
  const int64_t pairs = cos_sin.columns / 2;
  if (blockIdx.y > 0) {
    WaitForKernelAhead();
    const int64_t at = int64_t{blockIdx.y - 1} * blockDim.x + threadIdx.x;
    if (at >= heads * pairs) return;
    float* const pair = RowOf(queries, t) + (at / pairs + 1) * (queries.columns / heads) - 2 * pairs + 2 * (at % pairs);
    return RotatePair(pair[0], pair[1], table, pairs, at % pairs, false);
  }
  const int width = static_cast<int>(kv.columns);
  float* const own = RowOf(kv, t);
  float* const normed = shared + 4 * ((RowDotFloats(width) + 3) / 4);
  NormRow<kVector>(
      width, [&](int64_t c, float(&values)[kDotLaneColumns]) { LoadColumns<kVector>(own, c, width, values); }, norm,
      eps, shared, normed, RowForms(), t);
  __syncthreads();
  const RowPlace place = places[t];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_rotated = width - static_cast<int>(2 * pairs);
  for (int group = static_cast<int>(threadIdx.x) / 32; group * 32 < width; group += static_cast<int>(blockDim.x) / 32) {
    const int c = group * 32 + lane;
    const bool exists = c < width;
    float value = exists ? normed[c] : 0.0f;
    if (exists && c >= first_rotated) {
      const int odd = (c - first_rotated) % 2;
      float first = normed[c - odd];
      float second = normed[c - odd + 1];
      RotatePair(first, second, table, pairs, (c - first_rotated) / 2, false);
      value = odd ? second : first;
    }
    if (exists) own[c] = value;
    PackGroup(value, format, place.values, place.scales, group, lane, exists);
  }
}

template <typename T>
__device__ void CopyAs(const uint8_t* from, uint8_t* to, int64_t bytes) {
  for (int64_t i = threadIdx.x; i < bytes / static_cast<int64_t>(sizeof(T)); i += blockDim.x) {
    reinterpret_cast<T*>(to)[i] = reinterpret_cast<const T*>(from)[i];
  }
}

// In the widest pieces that both addresses allow.
__device__ void CopyPart(const uint8_t* from, uint8_t* to, int64_t bytes) {
  const uint64_t all = reinterpret_cast<uint64_t>(from) | reinterpret_cast<uint64_t>(to) | static_cast<uint64_t>(bytes);
  if (all % 16 == 0) return CopyAs<uint4>(from, to, bytes);
  if (all % 4 == 0) return CopyAs<uint32_t>(from, to, bytes);
  CopyAs<uint8_t>(from, to, bytes);
}

__global__ void CopyRowsKernel(const RowPlace* from, const RowPlace* to, RowBytes bytes) {
  WaitForKernelAhead();
  StartKernelBehind();
  const RowPlace source = from[blockIdx.x];
  const RowPlace target = to[blockIdx.x];
  CopyPart(source.values, target.values, bytes.values);
  CopyPart(source.scales, target.scales, bytes.scales);
}

__global__ void CopyFloatsKernel(const float* const* from, int64_t columns, float* const* to) {
  WaitForKernelAhead();
  StartKernelBehind();
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x) to[blockIdx.x][c] = from[blockIdx.x][c];
}

// A thread has a column of its own, whose rows it moves in ascending order, some at once: no row is overwritten before
// it is read, since its index is not below its place.
constexpr int kKeepThreads = 64;  // columns are all the parallelism there is
__global__ void KeepRowsKernel(const int32_t* rows, int64_t count, FloatView x) {
  WaitForKernelAhead();
  StartKernelBehind();
  constexpr int kAtOnce = 8;
  const int64_t c = int64_t{blockIdx.x} * kKeepThreads + threadIdx.x;
  if (c >= x.columns) return;
  for (int64_t first = 0; first < count; first += kAtOnce) {
    float values[kAtOnce];
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

__global__ void PoolPairsKernel(const float* const* first, const float* const* second, FloatView out) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= out.columns) return;
  const float* kv0 = first[blockIdx.x];
  const float* kv1 = second[blockIdx.x];
  const float gate0 = kv0[out.columns + c];
  const float gate1 = kv1[out.columns + c];
  const float maximum = fmaxf(gate0, gate1);
  const float e0 = expf(gate0 - maximum);
  const float e1 = expf(gate1 - maximum);
  RowOf(out, blockIdx.x)[c] = kv0[c] * (e0 / (e0 + e1)) + kv1[c] * (e1 / (e0 + e1));
}

}  // namespace

void PoolPairs(cudaStream_t stream, const float* const* first, const float* const* second, FloatView out) {
  if (out.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(out.rows), Blocks(out.columns, kThreads));
  LaunchEarly(stream, grid, kThreads, 0, PoolPairsKernel, first, second, out);
}

void StoreRows(cudaStream_t stream, ConstFloatView x, RowFormat format, const RowPlace* places) {
  if (x.rows > 0) LaunchEarly(stream, static_cast<unsigned>(x.rows), 128, 0, StoreRowsKernel, x, format, places);
}

void FinishQueriesAndKeys(cudaStream_t stream, FloatView queries, int heads, FloatView kv, const WeightVector& norm,
                          float eps, ConstFloatView cos_sin, RowFormat format, const RowPlace* places) {
  if (kv.rows == 0) return;
  const int threads = std::max(kThreads, RowDotThreads(kv.columns, kMostNormThreads));
  const dim3 grid(static_cast<unsigned>(kv.rows), 1 + Blocks(heads * cos_sin.columns / 2, threads));
  const int shared_bytes = static_cast<int>(kv.columns) * 4 + RowDotBytes(kv.columns) + 16;
  const bool vectors = TakesVectors(kv) && TakesVectors(norm);
  LaunchEarly(stream, grid, threads, shared_bytes,
              vectors ? &FinishQueriesAndKeysKernel<true> : &FinishQueriesAndKeysKernel<false>, queries, heads, kv,
              norm, eps, cos_sin, format, places);
}

void CopyRows(cudaStream_t stream, const RowPlace* from, const RowPlace* to, int64_t count, RowBytes bytes) {
  if (count > 0) LaunchEarly(stream, static_cast<unsigned>(count), 32, 0, CopyRowsKernel, from, to, bytes);
}

void CopyFloats(cudaStream_t stream, const float* const* from, int64_t count, int64_t columns, float* const* to) {
  if (count > 0) LaunchEarly(stream, static_cast<unsigned>(count), kThreads, 0, CopyFloatsKernel, from, columns, to);
}

void CopyBytes(cudaStream_t stream, const void* from, void* to, int64_t bytes) {
  // An error shows in cudaGetLastError(), as a launch's would.
  (void)cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream);
  LaunchNextInOrder(stream);
}

void KeepRows(cudaStream_t stream, const int32_t* rows, int64_t count, FloatView x) {
  if (count > 0) LaunchEarly(stream, Blocks(x.columns, kKeepThreads), kKeepThreads, 0, KeepRowsKernel, rows, count, x);
}

}  // namespace deepinfer::cuda
