// Products of unquantised activations (exact_linear.h). Bf16Linear: a block has 16 outputs, its eight warps a stretch
// of the columns each; a lane reads 32 consecutive bytes of two weight rows at a time, straight into the fragments.
#include <algorithm>

#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/exact_linear.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/row_dot.cuh"
#include "ops/cuda/row_forms.cuh"
#include "ops/cuda/skinny_rows.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kTileRows = 16;
constexpr int kStepColumns = 64;     // 16 of each of the four lanes that share a row
constexpr int kChunkSteps = 2;       // steps between two flushes of the accumulators
constexpr int64_t kTinyTiles = 112;  // of outputs: fewer than the GPU has processors for

// Eight columns a thread.
template <ColumnOrder order, bool kVector>
__global__ void SplitRowsKernel(ConstFloatView x, Bf16Rows out) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t c = OwnColumn() * kDotLaneColumns;
  if (c >= x.columns) return;
  float rest[kDotLaneColumns];
  LoadColumns<kVector>(RowOf(x, blockIdx.x), c, x.columns, rest);
#pragma unroll
  for (int term = 0; term < kExactTerms; ++term) {
    uint16_t bits[kDotLaneColumns];
    TakeTerm(rest, bits);
    StoreInOrder<order>(bits, out.values + (int64_t{blockIdx.x} * kExactTerms + term) * out.columns, c);
  }
}

__global__ void JoinTermsKernel(ConstFloatView terms, FloatView out, RowForms forms) {
  WaitForKernelAhead();
  StartKernelBehind();
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= out.columns) return;
  const int64_t t = blockIdx.x;
  const float sum =
      (RowOf(terms, kExactTerms * t)[c] + RowOf(terms, kExactTerms * t + 1)[c]) + RowOf(terms, kExactTerms * t + 2)[c];
  RowOf(out, t)[c] = sum;
  StoreForms(forms, sum, t, c, out.columns);
}

// MT tiles of 16 outputs, NT tiles of eight terms: 8 * NT / 3 activation rows. Neither shows in a result. More outputs
// a block for many rows: each block reads all of its rows, from L2 once and then from L1.
template <int MT, int NT, int kLoadSteps>
__global__ void __launch_bounds__(kWarps * 32)
    Bf16LinearKernel(Bf16Rows terms, int rows, WeightMatrix weight, FloatView out) {
  StartKernelBehind();
  constexpr int kTokens = 8 * NT / kExactTerms;
  __shared__ float sums[kWarps][kTileRows][8 * NT + 1];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int first_token = static_cast<int>(blockIdx.x) * kTokens;
  const int64_t first_output = int64_t{blockIdx.y} * kTileRows * MT;
  const int steps = static_cast<int>(weight.columns) / kStepColumns;
  const int begin = steps * warp / kWarps;
  const int end = steps * (warp + 1) / kWarps;

  const uint16_t* const values = reinterpret_cast<const uint16_t*>(weight.data);
  const uint16_t* const low = values + (first_output + g) * weight.columns + t * 16;
  const int64_t eight_rows = 8 * weight.columns;
  const uint16_t* inputs[NT];
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    // Terms behind the last row repeat it; their results are not stored.
    const int term = min(first_token * kExactTerms + n * 8 + g, rows * kExactTerms - 1);
    inputs[n] = terms.values + int64_t{term} * terms.columns + t * 16;
  }
  float totals[MT][NT][4] = {};
  for (int load = begin; load < end; load += kLoadSteps) {
#pragma unroll
    for (int m = 0; m < MT; ++m) {
      uint4 a[kLoadSteps][4];
#pragma unroll
      for (int s = 0; s < kLoadSteps; ++s) {
        if (load + s >= end) break;
        const uint16_t* const at = low + 2 * m * eight_rows + int64_t{load + s} * kStepColumns;
        a[s][0] = __ldg(reinterpret_cast<const uint4*>(at));
        a[s][1] = __ldg(reinterpret_cast<const uint4*>(at + 8));
        a[s][2] = __ldg(reinterpret_cast<const uint4*>(at + eight_rows));
        a[s][3] = __ldg(reinterpret_cast<const uint4*>(at + eight_rows + 8));
      }
      if (m == 0 && load == begin) WaitForKernelAhead();  // weights do not depend on it
#pragma unroll
      for (int chunk = 0; chunk < kLoadSteps; chunk += kChunkSteps) {
        if (load + chunk >= end) break;
        float accumulators[NT][4] = {};
#pragma unroll
        for (int s = chunk; s < chunk + kChunkSteps; ++s) {
          if (load + s >= end) break;
          const int64_t column = int64_t{load + s} * kStepColumns;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint4 w0 = a[s][half];
            const uint4 w1 = a[s][2 + half];
#pragma unroll
            for (int n = 0; n < NT; ++n) {
              const uint4 x = *reinterpret_cast<const uint4*>(inputs[n] + column + half * 8);
              MmaBf16(accumulators[n], w0.x, w1.x, w0.y, w1.y, x.x, x.y);
              MmaBf16(accumulators[n], w0.z, w1.z, w0.w, w1.w, x.z, x.w);
            }
          }
        }
#pragma unroll
        for (int n = 0; n < NT; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) totals[m][n][i] += accumulators[n][i];
        }
      }
    }
  }
  if (begin >= end) WaitForKernelAhead();  // a warp without columns
#pragma unroll
  for (int m = 0; m < MT; ++m) {
    if (m > 0) __syncthreads();  // the sums of the tile before are read
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[warp][g + i / 2 * 8][n * 8 + t * 2 + i % 2] = totals[m][n][i];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kTokens; i += kWarps * 32) {
      const int r = i % kTileRows;
      const int token = i / kTileRows;
      if (first_token + token >= rows) break;
      float total = 0;
#pragma unroll
      for (int term = 0; term < kExactTerms; ++term) {
        float sum = 0;
        for (int w = 0; w < kWarps; ++w) sum += sums[w][r][token * kExactTerms + term];
        total += sum;
      }
      RowOf(out, first_token + token)[first_output + m * kTileRows + r] = total;
    }
  }
}

template <int MT, int NT, int kLoadSteps = kChunkSteps>
void Launch(cudaStream_t stream, const Bf16Rows& terms, int64_t rows, const WeightMatrix& weight, FloatView out) {
  const dim3 grid(Blocks(rows, 8 * NT / kExactTerms), static_cast<unsigned>(weight.rows / (kTileRows * MT)));
  LaunchEarly(stream, grid, kWarps * 32, 0, Bf16LinearKernel<MT, NT, kLoadSteps>, terms, static_cast<int>(rows), weight,
              out);
}

}  // namespace

void SplitRows(cudaStream_t stream, ConstFloatView x, ColumnOrder order, const Bf16Rows& out) {
  if (x.rows == 0) return;
  WithOrder(order, [&](auto chosen) {
    constexpr ColumnOrder kOrder = decltype(chosen)::value;
    LaunchEarly(stream, ColumnGrid(x.rows, x.columns / kDotLaneColumns), kThreads, 0,
                TakesVectors(x) ? &SplitRowsKernel<kOrder, true> : &SplitRowsKernel<kOrder, false>, x, out);
  });
}

void JoinTerms(cudaStream_t stream, ConstFloatView terms, FloatView out, const RowForms& forms) {
  if (out.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(out.rows), Blocks(out.columns, kThreads));
  LaunchEarly(stream, grid, kThreads, 0, JoinTermsKernel, terms, out, forms);
}

bool Bf16LinearFits(const WeightMatrix& weight, int groups) {
  return weight.format == WeightFormat::kBF16 && groups == 1 && weight.columns % kStepColumns == 0 &&
         weight.rows % kTileRows == 0 && weight.rows / kTileRows < 65536 &&
         reinterpret_cast<uintptr_t>(weight.data) % 16 == 0;
}

void Bf16Linear(cudaStream_t stream, const Bf16Rows& terms, int64_t rows, const WeightMatrix& weight, FloatView out) {
  if (rows == 0) return;
  // Enough for all SMs by 64 outputs: many of them, or many rows.
  constexpr int64_t kManyOutputs = 16384, kManyRows = 1024;
  const bool wide = (weight.rows >= kManyOutputs || rows >= kManyRows) && weight.rows % (4 * kTileRows) == 0;
  // Few blocks, with all registers of a processor: a warp's columns, 640 of 5120, on their way at once.
  const bool tiny = weight.rows / kTileRows <= kTinyTiles;
  if (rows <= 2) {
    return tiny ? Launch<1, 1, 10>(stream, terms, rows, weight, out) : Launch<1, 1>(stream, terms, rows, weight, out);
  }
  if (rows <= 8)
    return wide ? Launch<2, 3>(stream, terms, rows, weight, out) : Launch<1, 3>(stream, terms, rows, weight, out);
  if (wide) return Launch<4, 6>(stream, terms, rows, weight, out);
  Launch<1, 6>(stream, terms, rows, weight, out);
}

}  // namespace deepinfer::cuda
