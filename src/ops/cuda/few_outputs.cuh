// A linear of few outputs: a block an output and a row, the chunks of the row side by side, in the canonical order.
#ifndef DEEPINFER_OPS_CUDA_FEW_OUTPUTS_CUH_
#define DEEPINFER_OPS_CUDA_FEW_OUTPUTS_CUH_

#include "ops/cuda/row_dot.cuh"

namespace deepinfer::cuda {

/// With four chunks of 128 columns a lane at once, 20480 columns, whose mix a layer computes twice, are all under way.
inline constexpr int kMostFewOutputsThreads = 640;

inline int FewOutputsThreads(int64_t columns) { return RowDotThreads(columns, kMostFewOutputsThreads); }

/// Whether rows and weight take vectors.
inline bool FewOutputsTakesVectors(const ConstFloatView& x, const WeightMatrix& weight) {
  return TakesVectors(x) && TakesVectors(weight.data, weight.rows, weight.columns, weight.columns);
}

/// One output of row t of a plain weight, or, for the output behind the last, squares[t] = the row times itself. For
/// the whole block, which waits for the kernel ahead after it has asked for the weight.
template <bool kVector>
__device__ __forceinline__ void FewOutputsBlock(const ConstFloatView& x, const WeightMatrix& weight,
                                                int64_t outputs_per_group, int64_t output, int64_t t,
                                                const FloatView& out, float* squares, float* partials) {
  constexpr int kAtOnce = kVector ? 4 : 1;
  if (output == weight.rows) {
    WaitForKernelAhead();
    const float square = BlockSquares<kAtOnce>(
        x.columns, partials, [own = RowOf(x, t), columns = x.columns](int64_t c, float(&values)[kDotLaneColumns]) {
          LoadColumns<kVector>(own, c, columns, values);
        });
    if (threadIdx.x == 0) squares[t] = square;
    return;
  }
  const int64_t columns = weight.columns;
  const float* const row = RowOf(x, t) + output / outputs_per_group * columns;
  const WeightVector vector{weight.data, weight.format == WeightFormat::kBF16, columns};
  const float sum = BlockCanonicalDot<kAtOnce>(
      columns, partials,
      [&](int64_t c, float(&values)[kDotLaneColumns]) {
        LoadColumns<kVector>(vector, output * columns, c, columns, values);
      },
      [&](int64_t c, float(&values)[kDotLaneColumns]) { LoadColumns<kVector>(row, c, columns, values); },
      [] { WaitForKernelAhead(); });
  if (threadIdx.x == 0) RowOf(out, t)[output] = sum;
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_FEW_OUTPUTS_CUH_
