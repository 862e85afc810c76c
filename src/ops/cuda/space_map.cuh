// SpaceMap: one tensor map for many matrices with rows of the same length, wherever they lie, so that experts need no
// map each.
//
// Thread-safety: pure functions. Ownership: none; what the map covers need not be memory, what is read must be.
#ifndef DEEPINFER_OPS_CUDA_SPACE_MAP_CUH_
#define DEEPINFER_OPS_CUDA_SPACE_MAP_CUH_

#include <cstdint>

#include "ops/cuda/tensor_map.h"

namespace deepinfer::cuda {

/// Covers 2^31 rows of some length from `base` on, whatever lies there; a matrix begins at some row and column of it.
struct SpaceMap {
  CUtensorMap map;
  const uint8_t* base;
};

/// 2^30 rows before `near`, or the first address where there are none.
constexpr uintptr_t SpaceBase(uintptr_t near, int64_t pitch) {
  const uintptr_t back = static_cast<uintptr_t>(pitch) << 30;
  return (near > back + 256 ? near - back : 256) & ~uintptr_t{255};
}
static_assert(SpaceBase(0x7f5e4a000000, 256) == 0x7f1e4a000000, "all bits of an address");
static_assert(SpaceBase(0xa02000000, 2560) == 256);

/// near: an address within 2^30 rows of all matrices. pitch: of rows in bytes, a multiple of 16. Boxes are box_rows x
/// box_bytes. False: no driver, or it refuses.
inline bool MakeSpaceMap(const void* near, int64_t pitch, uint32_t box_rows, uint32_t box_bytes,
                         CUtensorMapSwizzle swizzle, SpaceMap* space) {
  space->base = reinterpret_cast<const uint8_t*>(SpaceBase(reinterpret_cast<uintptr_t>(near), pitch));
  // Columns of two rows: a matrix that begins inside a row goes on in the next.
  return MakeTensorMap(CU_TENSOR_MAP_DATA_TYPE_UINT8, space->base, (int64_t{1} << 31) - 1, 2 * pitch, pitch, box_rows,
                       box_bytes, swizzle, &space->map);
}

/// Where a matrix lies in a SpaceMap.
struct SpacePlace {
  int column;  // bytes
  int row;
};

/// Row `row` of the matrix at `values`.
__device__ __forceinline__ SpacePlace PlaceIn(const SpaceMap& space, const uint8_t* values, int64_t row,
                                              uint32_t pitch) {
  const uint64_t offset = static_cast<uint64_t>(values - space.base);
  const uint64_t first = offset / pitch;
  const uint64_t place = first + static_cast<uint64_t>(row);
  if (place >> 31 != 0) __trap();  // outside the map: TMA would bring zeros, or what lies elsewhere
  return {static_cast<int>(offset - first * pitch), static_cast<int>(place)};
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_SPACE_MAP_CUH_
