// Packs rows into the cache formats of spec c.7: one warp a group of 32 channels.
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.cuh"

namespace deepinfer::cuda {
namespace {

// All 32 lanes of a warp take part; lane = channel within the group of 32.
__device__ void PackGroup(float value, const PackedRows& rows, uint8_t* values, uint8_t* scales, int group, int lane,
                          bool exists) {
  const int c = group * 32 + lane;
  if (rows.format == RowFormat::kWindowFp8) {
    const uint8_t byte = Fp8ScaleByte(GroupMaximum(fabsf(value), 32));
    values[c] = FloatToE4m3(value * E8m0ToFloat(static_cast<uint8_t>(254 - byte)));
    if (lane == 0) scales[group] = byte;
    return;
  }
  uint8_t nibble;
  if (rows.format == RowFormat::kIndexFp4) {
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

__global__ void StoreRowsKernel(ConstFloatView x, PackedRows rows, const int64_t* destination) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = destination[blockIdx.x];
  uint8_t* values = RowValues(rows, row);
  uint8_t* scales = RowScales(rows, row);
  for (int group = static_cast<int>(threadIdx.x) / 32; group * 32 < rows.channels;
       group += static_cast<int>(blockDim.x) / 32) {
    const bool exists = group * 32 + lane < rows.channels;  // compressed rows may end in half a group
    PackGroup(exists ? RowOf(x, blockIdx.x)[group * 32 + lane] : 0.0f, rows, values, scales, group, lane, exists);
  }
}

}  // namespace

void StoreRows(cudaStream_t stream, ConstFloatView x, const PackedRows& rows, const int64_t* destination) {
  if (x.rows > 0) StoreRowsKernel<<<static_cast<unsigned>(x.rows), 128, 0, stream>>>(x, rows, destination);
}

}  // namespace deepinfer::cuda
