// Quantisation of activations for the tensor core products (skinny.h).
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/skinny_rows.cuh"

namespace deepinfer::cuda {
namespace {

__global__ void QuantiseRowsKernel(ConstFloatView x, ColumnOrder order, Bf16Rows out) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t group = OwnColumn() / 32; group < x.columns / 32; group += ColumnStep() / 32) {
    const float value = RowOf(x, blockIdx.x)[group * 32 + lane];
    StoreGroup(value, order, out.values + blockIdx.x * out.columns, group * 32 + lane);
  }
}

}  // namespace

void QuantiseRows(cudaStream_t stream, ConstFloatView x, ColumnOrder order, const Bf16Rows& out) {
  if (x.rows > 0) LaunchEarly(stream, ColumnGrid(x.rows, x.columns), kThreads, 0, QuantiseRowsKernel, x, order, out);
}

}  // namespace deepinfer::cuda
