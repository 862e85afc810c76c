// FP8 linear straight from memory (skinny.h, DirectLinear): a block has 16 outputs, its eight warps a stretch of the
// columns each; a lane reads 16 consecutive codes of two weight rows at a time, decodes them in registers and
// multiplies. No shared memory and no barrier until the warps' sums are added, so a small weight takes little more than
// one trip to memory, and a large one has every load it needs under way.
#include "ops/cuda/decode_bf16.cuh"
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ptx.cuh"
#include "ops/cuda/skinny.h"
#include "ops/cuda/skinny_plan.h"

namespace deepinfer::cuda {
namespace {

constexpr int kWarps = kDirectWarps;
constexpr int kTileRows = 16;
constexpr int kStepColumns = 64;  // 16 of each of the four lanes that share a row
constexpr int kChunkSteps = 2;    // steps between two flushes of the accumulators

// Weights by their tiles of outputs: fewer than the GPU has processors for by far; less than two for each; many.
constexpr int64_t kTinyTiles = 112;
constexpr int64_t kSmallTiles = 160;
constexpr int64_t kLargeTiles = 400;

/// A weight and where its outputs go; blocks of one launch may have two.
struct DirectPart {
  WeightMatrix weight;
  int outputs_per_group = 0;
  FloatView out;
};

// MT tiles of 16 outputs, NT tiles of eight activation rows; weights of kLoadSteps steps are loaded together. Neither
// shows in a result: sums are per output and row, over steps.
template <int MT, int NT, int kLoadSteps, bool kPair>
__global__ void __launch_bounds__(kWarps * 32)
    DirectLinearKernel(Bf16Rows x, int rows, DirectPart first, DirectPart second, unsigned first_blocks) {
  __shared__ float sums[kWarps][kTileRows][8 * NT + 1];
  StartKernelBehind();
  const bool is_second = kPair && blockIdx.y >= first_blocks;
  const WeightMatrix weight = is_second ? second.weight : first.weight;
  const int outputs_per_group = is_second ? second.outputs_per_group : first.outputs_per_group;
  const FloatView out = is_second ? second.out : first.out;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int first_token = static_cast<int>(blockIdx.x) * 8 * NT;
  const int first_output = static_cast<int>(blockIdx.y - (is_second ? first_blocks : 0)) * kTileRows * MT;
  const int columns = static_cast<int>(weight.columns);
  const int steps = columns / kStepColumns;
  const int begin = DirectFirstStep(steps, warp);
  const int end = DirectFirstStep(steps, warp + 1);
  const uint8_t* const values = weight.data + int64_t{first_output + g} * columns + t * 16;
  const uint8_t* scales[MT];
#pragma unroll
  for (int m = 0; m < MT; ++m) {
    scales[m] = weight.scale + int64_t{(first_output + m * kTileRows) / 32} * (columns / 32) + t / 2;
  }
  const uint16_t* inputs[NT];
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    // Rows behind the last repeat it; their results are not stored.
    const int token = min(first_token + n * 8 + g, rows - 1);
    inputs[n] = x.values + int64_t{token} * x.columns + first_output / outputs_per_group * columns + t * 16;
  }
  float totals[MT][NT][4] = {};
  for (int load = begin; load < end; load += kLoadSteps) {
    uint4 words[kLoadSteps][MT][2];
    uint32_t scale[kLoadSteps][MT];
#pragma unroll
    for (int s = 0; s < kLoadSteps; ++s) {
      const int step = min(load + s, end - 1);
#pragma unroll
      for (int m = 0; m < MT; ++m) {
        const uint8_t* const at = values + int64_t{m * kTileRows} * columns + step * kStepColumns;
        words[s][m][0] = __ldg(reinterpret_cast<const uint4*>(at));
        words[s][m][1] = __ldg(reinterpret_cast<const uint4*>(at + int64_t{8} * columns));
        scale[s][m] = __ldg(scales[m] + step * (kStepColumns / 32));
      }
    }
    if (load == begin) WaitForKernelAhead();  // weights do not depend on it
#pragma unroll
    for (int chunk = 0; chunk < kLoadSteps; chunk += kChunkSteps) {
      float accumulators[MT][NT][4] = {};
#pragma unroll
      for (int s = chunk; s < chunk + kChunkSteps; ++s) {
        if (load + s >= end) break;
        const int64_t column = int64_t{load + s} * kStepColumns;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint4 b[NT];
#pragma unroll
          for (int n = 0; n < NT; ++n) b[n] = *reinterpret_cast<const uint4*>(inputs[n] + column + half * 8);
#pragma unroll
          for (int m = 0; m < MT; ++m) {
            const uint32_t factor = DecodeFactor<false>(scale[s][m]);
            uint32_t a[2][2][2];  // word of the half, upper row, pair
#pragma unroll
            for (int upper = 0; upper < 2; ++upper) {
              DecodeFp8(Word(words[s][m][upper], 2 * half), factor, a[0][upper]);
              DecodeFp8(Word(words[s][m][upper], 2 * half + 1), factor, a[1][upper]);
            }
#pragma unroll
            for (int n = 0; n < NT; ++n) {
              MmaBf16(accumulators[m][n], a[0][0][0], a[0][1][0], a[0][0][1], a[0][1][1], b[n].x, b[n].y);
              MmaBf16(accumulators[m][n], a[1][0][0], a[1][1][0], a[1][0][1], a[1][1][1], b[n].z, b[n].w);
            }
          }
        }
      }
#pragma unroll
      for (int m = 0; m < MT; ++m) {
#pragma unroll
        for (int n = 0; n < NT; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) totals[m][n][i] += accumulators[m][n][i];
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
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * 8 * NT; i += kWarps * 32) {
      const int r = i % kTileRows;
      const int token = i / kTileRows;
      if (first_token + token >= rows) break;
      float sum = sums[0][r][token];
      for (int w = 1; w < kWarps; ++w) sum += sums[w][r][token];
      RowOf(out, first_token + token)[first_output + m * kTileRows + r] = sum * kSkinnyFactor;
    }
  }
}

template <int MT, int NT, int kLoadSteps, bool kPair>
void Launch(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const DirectPart& first, const DirectPart& second) {
  const auto blocks_of = [](const DirectPart& part) {
    return static_cast<unsigned>(part.weight.rows / (kTileRows * MT));
  };
  const dim3 grid(Blocks(rows, 8 * NT), blocks_of(first) + blocks_of(second));
  LaunchEarly(stream, grid, kWarps * 32, 0, DirectLinearKernel<MT, NT, kLoadSteps, kPair>, x, static_cast<int>(rows),
              first, second, blocks_of(first));
}

template <bool kPair>
void LaunchParts(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const DirectPart& first,
                 const DirectPart& second) {
  if (rows == 0) return;
  // Measured on an H200 (docs/cuda.md). Small weights want all their loads at once and a block for each tile; large
  // ones many blocks an SM, and more outputs a block for more rows, since each block reads all of its rows.
  const int64_t tiles = (first.weight.rows + second.weight.rows) / kTileRows;
  const bool tiny = tiles <= kTinyTiles;
  const auto fits = [&](int high) {
    return first.outputs_per_group % (high * kTileRows) == 0 && second.outputs_per_group % (high * kTileRows) == 0;
  };
  if (rows <= 8) {
    if (tiles <= kSmallTiles) return Launch<1, 1, 6, kPair>(stream, x, rows, first, second);
    if (tiles <= kLargeTiles) return Launch<1, 1, 4, kPair>(stream, x, rows, first, second);
    return Launch<1, 1, 2, kPair>(stream, x, rows, first, second);
  }
  if (rows <= 16) {
    if (tiny) return Launch<1, 1, 6, kPair>(stream, x, rows, first, second);
    if (tiles > kSmallTiles && fits(2)) return Launch<2, 2, 2, kPair>(stream, x, rows, first, second);
    return Launch<1, 2, 4, kPair>(stream, x, rows, first, second);
  }
  if (tiny) return Launch<1, 2, 4, kPair>(stream, x, rows, first, second);
  if (rows <= 32 || !fits(4)) return Launch<1, 4, 2, kPair>(stream, x, rows, first, second);
  // A choice of two weights beside the sums of four tiles is more than the registers hold.
  if (kPair || tiles < kLargeTiles) return Launch<2, 4, 2, kPair>(stream, x, rows, first, second);
  Launch<4, 4, 2, false>(stream, x, rows, first, second);
}

}  // namespace

bool DirectLinearFits(const WeightMatrix& weight, int groups) {
  return weight.format == WeightFormat::kF8Block32 && weight.columns % kStepColumns == 0 &&
         weight.rows / groups % kTileRows == 0 && weight.rows / kTileRows < 65536 &&
         reinterpret_cast<uintptr_t>(weight.data) % 16 == 0;
}

void DirectLinear(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WeightMatrix& weight, int groups,
                  FloatView out) {
  LaunchParts<false>(stream, x, rows, {weight, static_cast<int>(weight.rows / groups), out}, {});
}

bool DirectLinearPairFits(const WeightMatrix& first, const WeightMatrix& second) {
  return DirectLinearFits(first, 1) && DirectLinearFits(second, 1) && first.columns == second.columns &&
         (first.rows + second.rows) / kTileRows < 65536;
}

void DirectLinearPair(cudaStream_t stream, const Bf16Rows& x, int64_t rows, const WeightMatrix& first,
                      const WeightMatrix& second, FloatView first_out, FloatView second_out) {
  LaunchParts<true>(stream, x, rows, {first, static_cast<int>(first.rows), first_out},
                    {second, static_cast<int>(second.rows), second_out});
}

}  // namespace deepinfer::cuda
