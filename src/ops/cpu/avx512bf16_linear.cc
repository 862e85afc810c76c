// AVX512_BF16 + AVX512_VBMI kernels of the canonical dot product for FP8 activations in front of FP8 or FP4 weights.
//
// Both operands are exact in BF16, so VDPBF16PS multiplies them without loss; per lane it is two fused multiply-adds,
// the odd element first: exactly dot order 4, 0, 5, 1, 6, 2, 7, 3 when the pair n of lane l is (column 8l + n,
// column 8l + 4 + n). The instruction treats subnormals as zero, which products of these formats reach only below
// 2^-126.
//
// This file alone is compiled with these instruction sets; it uses nothing that could leave an inline function of a
// shared header compiled with them for the rest of the program.
#include "ops/cpu/linear_kernels.h"
#include "ops/cpu/linear_limits.h"

#if defined(__AVX512BF16__) && defined(__AVX512VBMI__)

#include <immintrin.h>

namespace deepinfer::cpu {
namespace {

#define DEEPINFER_INLINE inline __attribute__((always_inline))

constexpr int64_t kWordsPerChunk = kChunk;  // ordered BF16 activations, decoded BF16 weights
// A panel row's chunk: 128 BF16 weights, then 16 F32 scale lanes.
constexpr int64_t kPanelChunkBytes = kWordsPerChunk * 2 + 64;
constexpr int64_t kBlockChunks = kPanelColumns / kChunk;
constexpr int64_t kPanelStride = kBlockChunks * kPanelChunkBytes;
static_assert(kPanelRows * kPanelStride <= kPanelFloats * 4);

// The scale of each lane from a chunk's four bytes: byte g rotated to the exponent field of lanes 4g..4g+3.
DEEPINFER_INLINE __m512 ScaleLanes(const uint8_t* scales) {
  int four;
  __builtin_memcpy(&four, scales, 4);
  const __m512i rotate = _mm512_setr_epi32(23, 23, 23, 23, 15, 15, 15, 15, 7, 7, 7, 7, 31, 31, 31, 31);
  const __m512i bits =
      _mm512_and_si512(_mm512_rolv_epi32(_mm512_set1_epi32(four), rotate), _mm512_set1_epi32(0x7f800000));
  return _mm512_castsi512_ps(_mm512_max_epi32(bits, _mm512_set1_epi32(0x00400000)));  // byte 0 is 2^-127
}

struct F8Words {
  static constexpr int64_t kChunkBytes = 128;
  static constexpr int64_t kPrefetchBytes = 512;
  __m512i high0, high1, low0, low1, first, second;

  DEEPINFER_INLINE F8Words() {
    alignas(64) uint8_t high[128];
    alignas(64) uint8_t low[128];
    for (int code = 0; code < 128; ++code) {
      uint32_t bits = 0;
      if (code >= 8) {
        bits = (static_cast<uint32_t>(code) << 20) + (120u << 23);
      } else if (code != 0) {
        const float value = static_cast<float>(code) * 0x1p-9f;
        __builtin_memcpy(&bits, &value, 4);
      }
      high[code] = static_cast<uint8_t>(bits >> 24);
      low[code] = static_cast<uint8_t>(bits >> 16);
    }
    high0 = _mm512_load_si512(high);
    high1 = _mm512_load_si512(high + 64);
    low0 = _mm512_load_si512(low);
    low1 = _mm512_load_si512(low + 64);
    // 128-bit quarter q: for lanes l = 4q..4q+3 the bytes (8l + n, 8l + 4 + n), n = 0 then 1 (`first`), 2 then 3.
    alignas(64) uint8_t pick[64];
    for (int q = 0; q < 4; ++q) {
      for (int n = 0; n < 2; ++n) {
        for (int i = 0; i < 4; ++i) {
          pick[16 * q + 8 * n + 2 * i] = static_cast<uint8_t>(8 * (4 * q + i) + n);
          pick[16 * q + 8 * n + 2 * i + 1] = static_cast<uint8_t>(8 * (4 * q + i) + 4 + n);
        }
      }
    }
    first = _mm512_load_si512(pick);
    second = _mm512_add_epi8(first, _mm512_set1_epi8(2));
  }
  DEEPINFER_INLINE void Expand(__m512i bytes, __m512i* even, __m512i* odd) const {
    const __m512i low = _mm512_permutex2var_epi8(low0, bytes, low1);
    const __m512i high = _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high0, bytes, high1), bytes,
                                                   _mm512_set1_epi8(-128), 0xf8);  // high | (bytes & 0x80)
    *even = _mm512_unpacklo_epi8(low, high);
    *odd = _mm512_unpackhi_epi8(low, high);
  }
  DEEPINFER_INLINE void Decode(const uint8_t* chunk, __m512i* w) const {
    const __m512i a = _mm512_loadu_si512(chunk);
    const __m512i b = _mm512_loadu_si512(chunk + 64);
    Expand(_mm512_permutex2var_epi8(a, first, b), &w[0], &w[1]);
    Expand(_mm512_permutex2var_epi8(a, second, b), &w[2], &w[3]);
  }
};

struct F4Words {
  static constexpr int64_t kChunkBytes = 64;
  static constexpr int64_t kPrefetchBytes = 3072;
  __m512i table;

  DEEPINFER_INLINE F4Words() {
    alignas(64) static constexpr uint16_t kValues[32] = {
        0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80,
        0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0, 0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040,
        0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
    table = _mm512_load_si512(kValues);
  }
  DEEPINFER_INLINE void Decode(const uint8_t* chunk, __m512i* w) const {
    const __m512i nibbles = _mm512_loadu_si512(chunk);
    // The permute reads the low five bits of each word; the fifth selects between two equal halves.
    w[0] = _mm512_permutexvar_epi16(nibbles, table);
    w[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(nibbles, 4), table);
    w[2] = _mm512_permutexvar_epi16(_mm512_srli_epi16(nibbles, 8), table);
    w[3] = _mm512_permutexvar_epi16(_mm512_srli_epi16(nibbles, 12), table);
  }
};

DEEPINFER_INLINE __m512 Dot(__m512 sum, __m512i a, const void* b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)_mm512_loadu_si512(b));
}

// The fixed tree over 16 lanes: l += l + 8, then + 4, + 2, + 1.
DEEPINFER_INLINE float ReduceLanes(__m512 v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// One weight row as chunks; the last, incomplete one is a zero-padded copy.
template <class Words>
struct RowChunks {
  alignas(64) uint8_t tail[Words::kChunkBytes];
  const uint8_t* data;
  const uint8_t* scales;
  int64_t full;
  uint8_t tail_scales[4];

  DEEPINFER_INLINE void Init(const WeightMatrix& weight, int64_t row) {
    const int64_t row_bytes = weight.columns * Words::kChunkBytes / kChunk;
    const int64_t scale_bytes = weight.columns / 32;
    data = weight.data + row * row_bytes;
    scales = weight.scale + (weight.format == WeightFormat::kF8Block32 ? row / 32 : row) * scale_bytes;
    full = weight.columns / kChunk;
    if (weight.columns % kChunk != 0) {
      __builtin_memset(tail, 0, sizeof(tail));
      __builtin_memset(tail_scales, 127, 4);
      __builtin_memcpy(tail, data + full * Words::kChunkBytes,
                       static_cast<size_t>(row_bytes - full * Words::kChunkBytes));
      __builtin_memcpy(tail_scales, scales + full * 4, static_cast<size_t>(scale_bytes - full * 4));
    }
  }
  DEEPINFER_INLINE const uint8_t* chunk(int64_t c) const { return c < full ? data + c * Words::kChunkBytes : tail; }
  DEEPINFER_INLINE const uint8_t* scale(int64_t c) const { return c < full ? scales + c * 4 : tail_scales; }
};

// R activation rows against one weight row. One row at a time keeps the weights a single sequential stream, which the
// hardware prefetcher and the software prefetch below follow at memory speed; chunks are independent but for one
// multiply-add, so there is parallelism enough.
template <class Words, int R>
DEEPINFER_INLINE void StreamTile(const Words& words, const LinearSlice& slice, int64_t first_row, int64_t output) {
  RowChunks<Words> row;
  row.Init(slice.weight, output);
  const uint16_t* x = static_cast<const uint16_t*>(slice.x) + first_row * slice.x_stride;
  __m512 sum[R];
  DEEPINFER_UNROLL
  for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_ps();
  const auto step = [&](int64_t chunk, const uint8_t* data, const uint8_t* scales) __attribute__((always_inline)) {
    __m512i w[4];
    words.Decode(data, w);
    const __m512 scale = ScaleLanes(scales);
    DEEPINFER_UNROLL
    for (int r = 0; r < R; ++r) {
      const uint16_t* xr = x + r * slice.x_stride + chunk * kWordsPerChunk;
      __m512 partial = Dot(_mm512_setzero_ps(), w[0], xr);
      DEEPINFER_UNROLL
      for (int n = 1; n < 4; ++n) partial = Dot(partial, w[n], xr + 32 * n);
      sum[r] = _mm512_fmadd_ps(partial, scale, sum[r]);
    }
  };
  for (int64_t chunk = 0; chunk < row.full; ++chunk) {
    const uint8_t* data = row.data + chunk * Words::kChunkBytes;
    for (int64_t line = 0; line < Words::kChunkBytes; line += 64)
      __builtin_prefetch(data + Words::kPrefetchBytes + line);
    step(chunk, data, row.scales + chunk * 4);
  }
  if (slice.weight.columns % kChunk != 0) step(row.full, row.tail, row.tail_scales);
  DEEPINFER_UNROLL
  for (int r = 0; r < R; ++r) slice.out[(first_row + r) * slice.out_stride + output] = ReduceLanes(sum[r]);
}

template <class Words>
void StreamSlice(const LinearSlice& slice) {
  const Words words;
  // FP4 scales, one row of them per weight row, are a second stream that the hardware prefetcher takes away from the
  // first; a burst for the next few rows keeps them apart.
  constexpr int64_t kScaleRows = 4;
  const int64_t scale_bytes = slice.weight.format == WeightFormat::kF4Row32 ? slice.weight.columns / 32 : 0;
  for (int64_t output = slice.begin; output < slice.end; ++output) {
    if ((output - slice.begin) % kScaleRows == 0) {
      const uint8_t* scales = slice.weight.scale + (output + kScaleRows) * scale_bytes;
      for (int64_t line = 0; line < kScaleRows * scale_bytes; line += 64) __builtin_prefetch(scales + line);
    }
    int64_t row = 0;
    for (; row + 8 <= slice.rows; row += 8) StreamTile<Words, 8>(words, slice, row, output);
    for (; row + 4 <= slice.rows; row += 4) StreamTile<Words, 4>(words, slice, row, output);
    for (; row + 2 <= slice.rows; row += 2) StreamTile<Words, 2>(words, slice, row, output);
    if (row < slice.rows) StreamTile<Words, 1>(words, slice, row, output);
  }
}

// R activation rows against C panel rows over the panel's chunks; running sums [row][kPanelRows][16] stay in memory.
template <int R, int C>
DEEPINFER_INLINE void BlockTile(const uint16_t* x, int64_t x_stride, const uint8_t* panel, int64_t chunks,
                                float* sums) {
  __m512 sum[R][C];
  DEEPINFER_UNROLL
  for (int r = 0; r < R; ++r) {
    DEEPINFER_UNROLL
    for (int c = 0; c < C; ++c) sum[r][c] = _mm512_load_ps(sums + (r * kPanelRows + c) * 16);
  }
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const uint16_t* xc = x + chunk * kWordsPerChunk;
    const uint8_t* wc = panel + chunk * kPanelChunkBytes;
    __m512 partial[R][C];
    DEEPINFER_UNROLL
    for (int n = 0; n < 4; ++n) {
      __m512i xs[R];
      DEEPINFER_UNROLL
      for (int r = 0; r < R; ++r) {
        xs[r] = _mm512_load_si512(xc + r * x_stride + 32 * n);
        asm("" : "+v"(xs[r]));
      }
      DEEPINFER_UNROLL
      for (int c = 0; c < C; ++c) {
        __m512i w = _mm512_load_si512(wc + c * kPanelStride + 64 * n);
        asm("" : "+v"(w));  // one load, not one in each of its uses
        DEEPINFER_UNROLL
        for (int r = 0; r < R; ++r) {
          partial[r][c] = _mm512_dpbf16_ps(n == 0 ? _mm512_setzero_ps() : partial[r][c], (__m512bh)w, (__m512bh)xs[r]);
        }
      }
    }
    DEEPINFER_UNROLL
    for (int c = 0; c < C; ++c) {
      const __m512 scale = _mm512_load_ps(wc + c * kPanelStride + 2 * kWordsPerChunk);
      DEEPINFER_UNROLL
      for (int r = 0; r < R; ++r) sum[r][c] = _mm512_fmadd_ps(partial[r][c], scale, sum[r][c]);
    }
  }
  DEEPINFER_UNROLL
  for (int r = 0; r < R; ++r) {
    DEEPINFER_UNROLL
    for (int c = 0; c < C; ++c) _mm512_store_ps(sums + (r * kPanelRows + c) * 16, sum[r][c]);
  }
}

template <int R>
DEEPINFER_INLINE void BlockTileRow(const uint16_t* x, int64_t x_stride, const uint8_t* panel, int64_t chunks,
                                   int64_t outputs, float* sums) {
  int64_t c = 0;
  for (; c + 4 <= outputs; c += 4) BlockTile<R, 4>(x, x_stride, panel + c * kPanelStride, chunks, sums + c * 16);
  for (; c < outputs; ++c) BlockTile<R, 1>(x, x_stride, panel + c * kPanelStride, chunks, sums + c * 16);
}

template <class Words>
void BlockSlice(const LinearSlice& slice) {
  const Words words;
  const int64_t chunks = (slice.weight.columns + kChunk - 1) / kChunk;
  uint8_t* panel = reinterpret_cast<uint8_t*>(slice.panel);
  for (int64_t output = slice.begin; output < slice.end; output += kPanelRows) {
    const int64_t outputs = slice.end - output < kPanelRows ? slice.end - output : kPanelRows;
    RowChunks<Words> rows[kPanelRows];
    for (int64_t c = 0; c < outputs; ++c) rows[c].Init(slice.weight, output + c);
    __builtin_memset(slice.accumulators, 0, static_cast<size_t>(slice.rows * kPanelRows * 16) * sizeof(float));
    for (int64_t first = 0; first < chunks; first += kBlockChunks) {
      const int64_t count = chunks - first < kBlockChunks ? chunks - first : kBlockChunks;
      for (int64_t c = 0; c < outputs; ++c) {
        for (int64_t chunk = 0; chunk < count; ++chunk) {
          uint8_t* to = panel + c * kPanelStride + chunk * kPanelChunkBytes;
          __m512i w[4];
          words.Decode(rows[c].chunk(first + chunk), w);
          for (int n = 0; n < 4; ++n) _mm512_store_si512(to + 64 * n, w[n]);
          _mm512_store_ps(to + 2 * kWordsPerChunk, ScaleLanes(rows[c].scale(first + chunk)));
        }
      }
      const uint16_t* x = static_cast<const uint16_t*>(slice.x) + first * kWordsPerChunk;
      int64_t row = 0;
      for (; row + 3 <= slice.rows; row += 3) {
        BlockTileRow<3>(x + row * slice.x_stride, slice.x_stride, panel, count, outputs,
                        slice.accumulators + row * kPanelRows * 16);
      }
      for (; row < slice.rows; ++row) {
        BlockTileRow<1>(x + row * slice.x_stride, slice.x_stride, panel, count, outputs,
                        slice.accumulators + row * kPanelRows * 16);
      }
    }
    for (int64_t row = 0; row < slice.rows; ++row) {
      for (int64_t c = 0; c < outputs; ++c) {
        slice.out[row * slice.out_stride + output + c] =
            ReduceLanes(_mm512_load_ps(slice.accumulators + (row * kPanelRows + c) * 16));
      }
    }
  }
}

}  // namespace

const bool kBf16PairsCompiled = true;

void OrderRowBf16(const float* x, int64_t columns, uint16_t* ordered) {
  for (int64_t begin = 0; begin < columns; begin += kChunk) {
    const int64_t count = columns - begin < kChunk ? columns - begin : kChunk;
    alignas(64) uint16_t words[kChunk];
    __builtin_memset(words, 0, sizeof(words));
    for (int64_t group = 0; group < count; group += 32) {
      // Spec c.1: scale = 2^ceil(log2(F32(max(amax, 1e-4) * (1/448)))); q * scale has at most four significant bits.
      const __m512 a = _mm512_loadu_ps(x + begin + group);
      const __m512 b = _mm512_loadu_ps(x + begin + group + 16);
      const float amax = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
      const __m512 ratio = _mm512_set1_ps((amax > 1e-4f ? amax : 1e-4f) * (1.0f / 448));
      const __m512i bits = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(ratio), _mm512_set1_epi32(0x007fffff)),
                                            _mm512_set1_epi32(0x7f800000));
      const __m512 smallest = _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(1.0f / 64));
      const auto round = [&](__m512 v) __attribute__((always_inline)) {
        // 1.5 * 2^20 times the binade: its unit in the last place is E4M3's step, so the addition rounds to it.
        const __m512 binade =
            _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7f800000)));
        const __m512 shifter = _mm512_mul_ps(_mm512_max_ps(binade, smallest), _mm512_set1_ps(1.5f * 1048576));
        const __m512 rounded = _mm512_sub_ps(_mm512_add_ps(v, shifter), shifter);
        return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(rounded), 16));
      };
      _mm256_store_si256(reinterpret_cast<__m256i*>(words + group), round(a));
      _mm256_store_si256(reinterpret_cast<__m256i*>(words + group + 16), round(b));
    }
    uint16_t* to = ordered + begin;
    for (int n = 0; n < 4; ++n) {
      for (int l = 0; l < 16; ++l) {
        to[32 * n + 2 * l] = words[8 * l + n];
        to[32 * n + 2 * l + 1] = words[8 * l + 4 + n];
      }
    }
  }
}

void StreamSliceBf16(const LinearSlice& slice) {
  slice.weight.format == WeightFormat::kF4Row32 ? StreamSlice<F4Words>(slice) : StreamSlice<F8Words>(slice);
}

void BlockSliceBf16(const LinearSlice& slice) {
  slice.weight.format == WeightFormat::kF4Row32 ? BlockSlice<F4Words>(slice) : BlockSlice<F8Words>(slice);
}

}  // namespace deepinfer::cpu

#else  // not compiled for these instruction sets: HasBf16Pairs() is false and nothing here is called

namespace deepinfer::cpu {
const bool kBf16PairsCompiled = false;
void OrderRowBf16(const float*, int64_t, uint16_t*) {}
void StreamSliceBf16(const LinearSlice&) {}
void BlockSliceBf16(const LinearSlice&) {}
}  // namespace deepinfer::cpu

#endif
