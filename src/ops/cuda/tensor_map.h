// Tensor maps of the driver: how TMA finds a box of a matrix in device memory.
//
// Thread-safety: pure but for the first call, which finds the driver's function. Ownership: none.
#ifndef DEEPINFER_OPS_CUDA_TENSOR_MAP_H_
#define DEEPINFER_OPS_CUDA_TENSOR_MAP_H_

#include <cuda_runtime_api.h>
#include <cudaTypedefs.h>

#include <cstdint>

namespace deepinfer::cuda {

/// A matrix [rows, columns] of `type` at `base` with rows `pitch` bytes apart (both multiples of 16), read in boxes of
/// box_rows x box_columns. What lies outside reads as 0. False: no driver, or it refuses.
inline bool MakeTensorMap(CUtensorMapDataType type, const void* base, int64_t rows, int64_t columns, int64_t pitch,
                          uint32_t box_rows, uint32_t box_columns, CUtensorMapSwizzle swizzle, CUtensorMap* map) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess) {
      function = nullptr;
    }
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  if (encode == nullptr) return false;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(pitch)};
  const cuuint32_t box[2] = {box_columns, box_rows};
  const cuuint32_t steps[2] = {1, 1};
  return encode(map, type, 2, const_cast<void*>(base), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_TENSOR_MAP_H_
