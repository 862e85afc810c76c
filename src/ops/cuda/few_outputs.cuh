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

/// Outputs of a row that a block of FewOutputsGroup computes.
inline constexpr int kGroupOutputs = 5;

/// FewOutputsBlock of outputs first .. first + kGroupOutputs - 1, as far as there are: the row is loaded once, and the
/// sums, chains of additions, are made side by side by a warp each. partials: kGroupOutputs times RowDotFloats.
template <bool kVector>
__device__ __forceinline__ void FewOutputsGroup(const ConstFloatView& x, const WeightMatrix& weight, int64_t first,
                                                int64_t t, const FloatView& out, float* squares, float* partials) {
  constexpr int kAtOnce = kVector ? 4 : 1;
  WaitForKernelAhead();
  const int64_t columns = weight.columns;
  const int64_t step = int64_t{blockDim.x} * kDotLaneColumns;
  const int chunks = DotChunks(columns);
  const int64_t end = int64_t{chunks} * kDotChunk;
  const float* const row = RowOf(x, t);
  const WeightVector vector{weight.data, weight.format == WeightFormat::kBF16, columns};
  for (int64_t c = int64_t{threadIdx.x} * kDotLaneColumns; c < end; c += kAtOnce * step) {
    float own[kAtOnce][kDotLaneColumns];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) LoadColumns<kVector>(row, c + k * step, columns, own[k]);
    for (int i = 0; i < kGroupOutputs; ++i) {
      const int64_t output = first + i;
      float* const partials_of_output = partials + i * RowDotFloats(columns);
      if (output > weight.rows) break;
      if (output == weight.rows) {
        StorePartials(own, own, c, step, end, partials_of_output);
        break;
      }
      float values[kAtOnce][kDotLaneColumns];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        LoadColumns<kVector>(vector, output * columns, c + k * step, columns, values[k]);
      }
      StorePartials(values, own, c, step, end, partials_of_output);
    }
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int i = warp; i < kGroupOutputs; i += static_cast<int>(blockDim.x) / 32) {
    const int64_t output = first + i;
    if (output > weight.rows) break;
    const float sum = WarpSumOfPartials(chunks, partials + i * RowDotFloats(columns));
    if (threadIdx.x % 32 != 0) continue;
    (output == weight.rows ? squares[t] : RowOf(out, t)[output]) = sum;
  }
}

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_FEW_OUTPUTS_CUH_
