// Quantisation of activations for the tensor core products (skinny.h).
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/row_dot.cuh"
#include "ops/cuda/row_forms.cuh"

namespace deepinfer::cuda {
namespace {

// Eight columns a thread.
template <ColumnOrder order, bool kVector>
__global__ void QuantiseRowsKernel(ConstFloatView x, Bf16Rows out) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t c = OwnColumn() * kDotLaneColumns;
  if (c >= x.columns) return;
  float values[kDotLaneColumns];
  LoadColumns<kVector>(RowOf(x, blockIdx.x), c, x.columns, values);
  uint16_t bits[kDotLaneColumns];
  QuantiseColumns(values, bits);
  StoreInOrder<order>(bits, out.values + blockIdx.x * out.columns, c);
}

}  // namespace

void QuantiseRows(cudaStream_t stream, ConstFloatView x, ColumnOrder order, const Bf16Rows& out) {
  if (x.rows == 0) return;
  WithOrder(order, [&](auto chosen) {
    constexpr ColumnOrder kOrder = decltype(chosen)::value;
    LaunchEarly(stream, ColumnGrid(x.rows, x.columns / kDotLaneColumns), kThreads, 0,
                TakesVectors(x) ? &QuantiseRowsKernel<kOrder, true> : &QuantiseRowsKernel<kOrder, false>, x, out);
  });
}

}  // namespace deepinfer::cuda
