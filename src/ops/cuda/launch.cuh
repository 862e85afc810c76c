// Small helpers that the kernels share: grids, stored vectors, strided views.
#ifndef DEEPINFER_OPS_CUDA_LAUNCH_CUH_
#define DEEPINFER_OPS_CUDA_LAUNCH_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/tensor_view.h"
#include "base/weight_matrix.h"
#include "ops/cuda/number_formats.cuh"
#include "ops/packed_rows.h"

namespace deepinfer::cuda {

inline constexpr int kThreads = 256;

inline unsigned Blocks(int64_t work, int64_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

/// Whether this GPU has WGMMA.
inline bool IsSm90() {
  static const bool is = [] {
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major == 9;
  }();
  return is;
}

/// Streaming multiprocessors of this GPU.
inline int Processors() {
  static const int count = [] {
    int device = 0, processors = 0;
    const bool known = cudaGetDevice(&device) == cudaSuccess &&
                       cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
    return known ? processors : 2;
  }();
  return count;
}

/// A grid of kThreads-wide blocks over rows and columns, and the columns of a thread in it.
inline dim3 ColumnGrid(int64_t rows, int64_t columns) {
  return dim3(static_cast<unsigned>(rows), Blocks(columns, kThreads));
}
__device__ __forceinline__ int64_t OwnColumn() { return int64_t{blockIdx.y} * blockDim.x + threadIdx.x; }
__device__ __forceinline__ int64_t ColumnStep() { return int64_t{gridDim.y} * blockDim.x; }

/// Row `t` of a view.
template <typename T>
__device__ __forceinline__ T* RowOf(const TensorView<T>& view, int64_t t) {
  return view.data + t * view.stride;
}

/// Values and scales of a packed row (PackedRows::values, ::scales).
__device__ __forceinline__ uint8_t* RowValues(const PackedRows& rows, int64_t row) {
  return rows.pages[row / rows.rows_per_page] + rows.offset +
         (row % rows.rows_per_page) * PackedRowBytes(rows.format, rows.channels).values;
}
__device__ __forceinline__ uint8_t* RowScales(const PackedRows& rows, int64_t row) {
  const RowBytes bytes = PackedRowBytes(rows.format, rows.channels);
  return rows.pages[row / rows.rows_per_page] + rows.offset + rows.rows_per_page * bytes.values +
         (row % rows.rows_per_page) * bytes.scales;
}

/// Channel `c` of a packed row whose values and scales lie there.
__device__ __forceinline__ float UnpackChannel(RowFormat format, const uint8_t* values, const uint8_t* scales, int c) {
  if (format == RowFormat::kWindowFp8) return E4m3ToFloat(values[c]) * E8m0ToFloat(scales[c / 32]);
  const float value = E2m1ToFloat(uint32_t{values[c / 2]} >> (4 * (c % 2)));
  return value * (format == RowFormat::kCompressedFp4 ? E4m3ToFloat(scales[c / 16]) : E8m0ToFloat(scales[c / 32]));
}

/// Element `index` of a stored vector at an aligned device address.
__device__ __forceinline__ float LoadVector(const WeightVector& vector, int64_t index) {
  return vector.is_bf16 ? Bf16ToFloat(reinterpret_cast<const uint16_t*>(vector.data)[index])
                        : reinterpret_cast<const float*>(vector.data)[index];
}

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/// silu(min(gate, limit)) * clamp(up, -limit, limit) (spec c.9); limit 0: none.
__device__ __forceinline__ float SwiGluValue(float gate, float up, float limit) {
  if (limit > 0) {
    gate = fminf(gate, limit);
    up = fminf(fmaxf(up, -limit), limit);
  }
  return gate * Sigmoid(gate) * up;
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_LAUNCH_CUH_
