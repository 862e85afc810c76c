// Index scores on the tensor cores, to the bit of the canonical order (spec c.6; docs/cuda.md, "Index scores").
//
// A warp takes 64 keys at a time straight from device memory into the fragments of m16n8k16: lane (g, t) has columns
// 32t .. 32t + 31, one scale group, of keys g and g + 8. The queries of all heads lie in its registers. Products of
// E2M1 values times powers of two are multiples of a quarter of the smallest scale; where the scales of a query and a
// key are within 2^9 of each other, the whole product has 24 bits and every order of additions gives the same, exact
// sum. Other keys, and those that the exponents of BF16 do not hold, go the canonical way.
#include <algorithm>

#include "ops/cuda/decode_bf16.cuh"
#include "ops/cuda/early_launch.cuh"
#include "ops/cuda/index_rows.cuh"
#include "ops/cuda/ptx.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kThreadsPerBlock = 384;
constexpr int kWarps = kThreadsPerBlock / 32;
constexpr int kWidth = 128;
constexpr int kGroups = kWidth / 32;
constexpr int kTileKeys = 16;
constexpr int kTiles = 4;  // of a warp at a time
constexpr int kUnitKeys = kTiles * kTileKeys;
constexpr int kMostSpread = 9;    // bits between the scales of a product
constexpr int kKeyExponent = 16;  // keys are 2^16 too small in the fragments
constexpr int kBlocks = 2 * 132;  // enough for an H200; more would quantise the queries more often

/// NT tiles of eight heads. Head 2 NT t + 2 n + i is column 2t + i of tile n: a lane has neighbouring heads.
template <int NT>
struct ScoreShape {
  static constexpr int kHeads = 8 * NT;
  static constexpr int kQueryWords = kHeads * kGroups * 16;
  static constexpr int kRowFloats = kHeads + 4;  // of a key; 16-byte pieces of neighbouring keys meet in no bank
  static constexpr int kBytes = kQueryWords * 4 + kWarps * 2 * kTileKeys * kRowFloats * 4;
};

/// Where column c of a head lies among its 128 halves: pairs as DecodeFp4 takes codes apart.
__device__ __forceinline__ int QueryHalf(int c) { return c / 32 * 32 + (c % 32 / 8 * 4 + c % 4) * 2 + c % 8 / 4; }

struct KeyTile {
  uint4 words[2];
  uint32_t scales[2];
};

/// Whether the scales of a key are in range and within 2^limit.
__device__ __forceinline__ bool IsExact(uint32_t scales, int limit) {
  const int a = static_cast<int>(scales & 255u), b = static_cast<int>(scales >> 8 & 255u);
  const int c = static_cast<int>(scales >> 16 & 255u), d = static_cast<int>(scales >> 24);
  const int most = max(max(a, b), max(c, d)), least = min(min(a, b), min(c, d));
  return most - least <= limit && least >= 127 - 40 && most <= 254 - (126 - kKeyExponent);
}

template <int NT>
__global__ void __launch_bounds__(kThreadsPerBlock, 1)
    TensorScoreKernel(ConstFloatView q, ConstFloatView head_weights, const DeviceIndexSequence* sequences,
                      const int32_t* row_sequence, int64_t first_row, IndexArguments arguments, DeviceLists candidates,
                      float* scores, int64_t most_visible) {
  WaitForKernelAhead();
  StartKernelBehind();
  using Shape = ScoreShape<NT>;
  extern __shared__ uint4 shared[];
  __shared__ int limit;
  StartKernelBehind();
  uint16_t* const queries = reinterpret_cast<uint16_t*>(shared);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  float* const products =
      reinterpret_cast<float*>(shared) + Shape::kQueryWords + warp * 2 * kTileKeys * Shape::kRowFloats;
  const int64_t row = first_row + blockIdx.y;
  const DeviceIndexSequence& sequence = sequences[row_sequence[row]];
  const IndexItems items(arguments, candidates, row, VisibleRows(sequence, row, arguments.ratio));
  const uint32_t page_rows = static_cast<uint32_t>(sequence.keys.rows_per_page);
  uint8_t* const* const pages = sequence.keys.pages;
  float* const own_scores = scores + blockIdx.y * most_visible;

  const auto load = [&](int first, KeyTile& tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      tile.words[r] = make_uint4(0, 0, 0, 0);
      tile.scales[r] = 0x7f7f7f7f;
      const int item = first + g + 8 * r;
      if (item >= items.count) continue;
      const int key = items.Key(item);
      if (key >= items.visible) continue;
      const uint32_t page = static_cast<uint32_t>(key) / page_rows;
      const uint32_t slot = static_cast<uint32_t>(key) - page * page_rows;
      const uint8_t* const values = pages[page] + sequence.keys.offset;
      tile.words[r] = __ldg(reinterpret_cast<const uint4*>(values + slot * (kWidth / 2)) + t);
      tile.scales[r] = __ldg(reinterpret_cast<const uint32_t*>(values + page_rows * (kWidth / 2)) + slot);
    }
  };
  const int stride = static_cast<int>(gridDim.x) * kWarps * kUnitKeys;
  int unit = (static_cast<int>(blockIdx.x) * kWarps + warp) * kUnitKeys;
  KeyTile tiles[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) load(unit + i * kTileKeys, tiles[i]);

  if (threadIdx.x == 0) limit = kMostSpread;
  __syncthreads();
  for (int head = warp; head < Shape::kHeads; head += kWarps) {
    const float4 loaded = reinterpret_cast<const float4*>(RowOf(q, row) + head * kWidth)[lane];
    const float x[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
    const float largest = fmaxf(fmaxf(fabsf(x[0]), fabsf(x[1])), fmaxf(fabsf(x[2]), fabsf(x[3])));
    int most = IndexFp4ScaleByte(GroupMaximum(largest, 8));
    const float scale = E8m0ToFloat(static_cast<uint8_t>(most));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float value = E2m1ToFloat(FloatToE2m1(x[i] / scale)) * scale;
      queries[head * kWidth + QueryHalf(4 * lane + i)] = static_cast<uint16_t>(__float_as_uint(value) >> 16);
    }
    int least = most;
    for (int step = 8; step < 32; step *= 2) {
      most = max(most, __shfl_xor_sync(0xffffffffu, most, step));
      least = min(least, __shfl_xor_sync(0xffffffffu, least, step));
    }
    const bool in_range = least >= 127 - 40 && most <= 127 + 40;
    if (lane == 0) atomicMin(&limit, in_range ? kMostSpread - (most - least) : -1);
  }
  __syncthreads();
  const int key_limit = limit;
  uint32_t b[NT][16];
  float weights[2 * NT];
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    const int head = 2 * NT * (g / 2) + 2 * n + g % 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 words = shared[(head * kGroups + t) * 4 + i];
#pragma unroll
      for (int e = 0; e < 4; ++e) b[n][4 * i + e] = Word(words, e);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      weights[2 * n + i] = RowOf(head_weights, row)[2 * NT * t + 2 * n + i] * 0x1p16f;
    }
  }

  for (; unit < items.count; unit += stride) {
#pragma unroll
    for (int pair = 0; pair < kTiles / 2; ++pair) {  // 32 keys
      unsigned canonical[2][2];                      // bit 4g: key g + 8r of the tile
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        KeyTile& tile = tiles[2 * pair + i];
        uint32_t a[2][16];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          canonical[i][r] = __ballot_sync(0xffffffffu, t == 0 && !IsExact(tile.scales[r], key_limit));
          const uint32_t exponent = ((tile.scales[r] >> (8 * t) & 255u) + 126 - kKeyExponent) & 255u;
          const uint32_t factor = exponent << 7 | exponent << 23;
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            uint32_t pairs[4];
            DecodeFp4(Word(tile.words[r], w), factor, pairs);
#pragma unroll
            for (int e = 0; e < 4; ++e) a[r][4 * w + e] = pairs[e];
          }
        }
        load(unit + stride + (2 * pair + i) * kTileKeys, tile);
        float sums[NT][4] = {};
#pragma unroll
        for (int k = 0; k < 8; ++k) {
#pragma unroll
          for (int n = 0; n < NT; ++n) {
            MmaBf16(sums[n], a[0][2 * k], a[1][2 * k], a[0][2 * k + 1], a[1][2 * k + 1], b[n][2 * k], b[n][2 * k + 1]);
          }
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float4* const to =
              reinterpret_cast<float4*>(products + (kTileKeys * i + g + 8 * r) * Shape::kRowFloats + 2 * NT * t);
#pragma unroll
          for (int n = 0; n < NT; n += 2) {
            to[n / 2] = make_float4(weights[2 * n] * fmaxf(sums[n][2 * r], 0.0f),
                                    weights[2 * n + 1] * fmaxf(sums[n][2 * r + 1], 0.0f),
                                    weights[2 * n + 2] * fmaxf(sums[n + 1][2 * r], 0.0f),
                                    weights[2 * n + 3] * fmaxf(sums[n + 1][2 * r + 1], 0.0f));
          }
        }
      }
      __syncwarp();
      // A lane a key: heads in ascending order.
      const int item = unit + 2 * pair * kTileKeys + lane;
      const int key = item < items.count ? items.Key(item) : items.visible;
      const bool exists = key < items.visible;
      const float4* const from = reinterpret_cast<const float4*>(products + lane * Shape::kRowFloats);
      float score = 0;
#pragma unroll
      for (int n = 0; n < 2 * NT; ++n) {
        const float4 v = from[n];
        score += v.x;
        score += v.y;
        score += v.z;
        score += v.w;
      }
      const unsigned own =
          lane < 16 ? (lane < 8 ? canonical[0][0] : canonical[0][1]) : (lane < 24 ? canonical[1][0] : canonical[1][1]);
      const bool is_canonical = (own >> (lane % 8 * 4) & 1u) != 0;
      if (exists && !is_canonical) own_scores[key] = score;
      for (unsigned rest = __ballot_sync(0xffffffffu, exists && is_canonical); rest != 0; rest &= rest - 1) {
        const int j = __shfl_sync(0xffffffffu, key, __ffs(static_cast<int>(rest)) - 1);
        const float exact = CanonicalScore(arguments, RowValues(sequence.keys, j), RowScales(sequence.keys, j),
                                           RowOf(head_weights, row), lane < 16 ? 0x0000ffffu : 0xffff0000u, [&](int i) {
                                             return Bf16ToFloat(queries[i / kWidth * kWidth + QueryHalf(i % kWidth)]);
                                           });
        if (lane == 0) own_scores[j] = exact;
      }
      __syncwarp();
    }
  }
}

}  // namespace

bool IndexScoresFit(const IndexArguments& arguments) {
  return arguments.head_width == kWidth && (arguments.heads == 16 || arguments.heads == 32);
}

void IndexScores(cudaStream_t stream, ConstFloatView q, ConstFloatView head_weights,
                 const DeviceIndexSequence* sequences, const int32_t* row_sequence, int64_t first_row, int64_t rows,
                 const IndexArguments& arguments, const DeviceLists& candidates, float* scores, int64_t most_visible) {
  if (rows == 0 || most_visible == 0) return;
  int64_t most_items = most_visible;
  if (arguments.restrict_to_candidates && !arguments.publish) {
    most_items =
        std::min<int64_t>(most_items + arguments.block_size - 1, int64_t{arguments.topk_blocks} * arguments.block_size);
  }
  const auto launch = [&](auto kernel, int bytes) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const int64_t most = std::max<int64_t>(1, kBlocks / rows);
    const dim3 grid(static_cast<unsigned>(std::min<int64_t>(Blocks(most_items, kWarps * kUnitKeys), most)),
                    static_cast<unsigned>(rows));
    LaunchEarly(stream, grid, kThreadsPerBlock, bytes, kernel, q, head_weights, sequences, row_sequence, first_row,
                arguments, candidates, scores, most_visible);
  };
  if (arguments.heads == 32) return launch(TensorScoreKernel<4>, ScoreShape<4>::kBytes);
  launch(TensorScoreKernel<2>, ScoreShape<2>::kBytes);
}

}  // namespace deepinfer::cuda
