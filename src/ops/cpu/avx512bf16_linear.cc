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
static_assert(kPanelChunkBytes <= kPanelChunkFloats * 4);

// The scale of each lane from a chunk's four bytes: byte g rotated to the exponent field of lanes 4g..4g+3.
DEEPINFER_INLINE __m512 ScaleLanes(const uint8_t* scales) {
  int four;
  __builtin_memcpy(&four, scales, 4);
  const __m512i rotate = _mm512_setr_epi32(23, 23, 23, 23, 15, 15, 15, 15, 7, 7, 7, 7, 31, 31, 31, 31);
  const __m512i bits =
      _mm512_and_si512(_mm512_rolv_epi32(_mm512_set1_epi32(four), rotate), _mm512_set1_epi32(0x7f800000));
  return _mm512_castsi512_ps(_mm512_max_epi32(bits, _mm512_set1_epi32(0x00400000)));  // byte 0 is 2^-127
}

// The two high bytes of each E4M3 code's F32, then the order in which a chunk's bytes become pairs.
struct F8Tables {
  alignas(64) uint8_t high[128];
  alignas(64) uint8_t low[128];
  // 128-bit quarter q: for lanes l = 4q..4q+3 the bytes (8l + n, 8l + 4 + n), n = 0, then 1. n = 2 and 3: 2 more.
  alignas(64) uint8_t pick[64];

  constexpr F8Tables() : high(), low(), pick() {
    for (int code = 0; code < 128; ++code) {
      // Code c < 8 is c * 2^-9: its leading bit b stands for 2^(b - 9).
      const int leading = code >= 4 ? 2 : code >= 2 ? 1 : 0;
      const uint32_t subnormal = code == 0 ? 0
                                           : (static_cast<uint32_t>(127 + leading - 9) << 23) |
                                                 ((static_cast<uint32_t>(code) << (23 - leading)) & 0x007fffff);
      const uint32_t bits = code < 8 ? subnormal : (static_cast<uint32_t>(code) << 20) + (120u << 23);
      high[code] = static_cast<uint8_t>(bits >> 24);
      low[code] = static_cast<uint8_t>(bits >> 16);
    }
    for (int q = 0; q < 4; ++q) {
      for (int n = 0; n < 2; ++n) {
        for (int i = 0; i < 4; ++i) {
          pick[16 * q + 8 * n + 2 * i] = static_cast<uint8_t>(8 * (4 * q + i) + n);
          pick[16 * q + 8 * n + 2 * i + 1] = static_cast<uint8_t>(8 * (4 * q + i) + 4 + n);
        }
      }
    }
  }
};
constexpr F8Tables kF8Tables;

struct F8Words {
  static constexpr int64_t kChunkBytes = 128;
  static constexpr bool kWholeRows = false;
  __m512i high0, high1, low0, low1, first, second;

  DEEPINFER_INLINE F8Words() {
    high0 = _mm512_load_si512(kF8Tables.high);
    high1 = _mm512_load_si512(kF8Tables.high + 64);
    low0 = _mm512_load_si512(kF8Tables.low);
    low1 = _mm512_load_si512(kF8Tables.low + 64);
    first = _mm512_load_si512(kF8Tables.pick);
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
  static constexpr bool kWholeRows = true;
  __m512i table;

  DEEPINFER_INLINE F4Words() {
    alignas(64) static constexpr uint16_t kValues[32] = {
        0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80,
        0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0, 0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040,
        0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
    table = _mm512_load_si512(kValues);
  }
  DEEPINFER_INLINE void Decode(const uint8_t* chunk, __m512i* w) const {
    __m512i nibbles = _mm512_loadu_si512(chunk);
    asm("" : "+v"(nibbles));  // one load, not one in each of its uses
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

// The same tree for four vectors side by side.
DEEPINFER_INLINE __m128 ReduceFour(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
  // One 128-bit quarter each: lanes 0..3 of a, b, c, d.
  const __m512 four = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  const __m512 two = _mm512_add_ps(four, _mm512_shuffle_ps(four, four, 0x4e));
  const __m512 one = _mm512_add_ps(two, _mm512_shuffle_ps(two, two, 0xb1));
  return _mm512_castps512_ps128(
      _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12), one));
}

// One weight row as chunks; the last, incomplete one is a zero-padded copy.
template <class Words>
struct RowChunks {
  alignas(64) uint8_t tail[Words::kChunkBytes];
  const uint8_t* data;
  const uint8_t* scales;
  int64_t full;
  bool tailed;
  uint8_t tail_scales[4];

  DEEPINFER_INLINE void Init(const WeightMatrix& weight, int64_t row) {
    const int64_t row_bytes = weight.columns * Words::kChunkBytes / kChunk;
    const int64_t scale_bytes = weight.columns / 32;
    data = weight.data + row * row_bytes;
    scales = weight.scale + (weight.format == WeightFormat::kF8Block32 ? row / 32 : row) * scale_bytes;
    full = weight.columns / kChunk;
    const int64_t rest = weight.columns % kChunk;
    tailed = rest != 0;
    if (tailed) {
      // Masked moves: a copy of variable size would cost more than the chunk's products.
      const uint8_t* from = data + full * Words::kChunkBytes;
      const int64_t bytes = rest * Words::kChunkBytes / kChunk;
      for (int64_t line = 0; line < Words::kChunkBytes; line += 64) {
        const int64_t left = bytes - line;
        const __mmask64 mask = left >= 64 ? ~0ull : left > 0 ? (1ull << left) - 1 : 0;
        _mm512_store_si512(tail + line, _mm512_maskz_loadu_epi8(mask, from + line));
      }
      const uint8_t* last = scales + full * 4;
      for (int64_t i = 0; i < 4; ++i) tail_scales[i] = i < rest / 32 ? last[i] : 127;
    }
  }
  DEEPINFER_INLINE const uint8_t* chunk(int64_t c) const { return c < full ? data + c * Words::kChunkBytes : tail; }
  DEEPINFER_INLINE const uint8_t* scale(int64_t c) const { return c < full ? scales + c * 4 : tail_scales; }
};

// One chunk of a weight row against R activation rows; x is their columns of this chunk.
template <class Words, int R>
DEEPINFER_INLINE void StreamChunk(const Words& words, const uint8_t* data, const uint8_t* scales, const uint16_t* x,
                                  int64_t x_stride, __m512* sum) {
  __m512i w[4];
  words.Decode(data, w);
  const __m512 scale = ScaleLanes(scales);
  DEEPINFER_UNROLL
  for (int r = 0; r < R; ++r) {
    const uint16_t* xr = x + r * x_stride;
    __m512 partial = Dot(_mm512_setzero_ps(), w[0], xr);
    DEEPINFER_UNROLL
    for (int n = 1; n < 4; ++n) partial = Dot(partial, w[n], xr + 32 * n);
    sum[r] = _mm512_fmadd_ps(partial, scale, sum[r]);
  }
}

// The whole chunks of a weight row from `first` on; fetches what lies `distance` further on.
template <class Words, int R>
DEEPINFER_INLINE void StreamChunks(const Words& words, const RowChunks<Words>& row, const uint16_t* x, int64_t x_stride,
                                   int64_t first, int64_t distance, __m512* sum) {
  const uint8_t* ahead = row.data + first * Words::kChunkBytes + distance;
  for (int64_t chunk = first; chunk < row.full; ++chunk) {
    for (int64_t line = 0; line < Words::kChunkBytes; line += 64) __builtin_prefetch(ahead + line);
    ahead += Words::kChunkBytes;
    StreamChunk<Words, R>(words, row.data + chunk * Words::kChunkBytes, row.scales + chunk * 4,
                          x + chunk * kWordsPerChunk, x_stride, sum);
  }
}

// kStreamBlock chunks at once: one burst of fetches, and no branch between the chunks, which keeps more of them in
// flight than a loop does.
template <class Words, int R>
DEEPINFER_INLINE void StreamBlock(const Words& words, const RowChunks<Words>& row, const uint16_t* x, int64_t x_stride,
                                  int64_t first, int64_t distance, __m512* sum) {
  const uint8_t* data = row.data + first * Words::kChunkBytes;
  const uint8_t* scales = row.scales + first * 4;
  for (int64_t line = 0; line < kStreamBlock * Words::kChunkBytes; line += 64) {
    __builtin_prefetch(data + distance + line);
  }
  DEEPINFER_UNROLL
  for (int64_t i = 0; i < kStreamBlock; ++i) {
    StreamChunk<Words, R>(words, data + i * Words::kChunkBytes, scales + i * 4, x + (first + i) * kWordsPerChunk,
                          x_stride, sum);
  }
}

template <int R>
DEEPINFER_INLINE void StoreOutputs(const __m512* sum, float* out, int64_t out_stride) {
  int r = 0;
  DEEPINFER_UNROLL
  for (; r + 4 <= R; r += 4) {
    alignas(16) float four[4];
    _mm_store_ps(four, ReduceFour(sum[r], sum[r + 1], sum[r + 2], sum[r + 3]));
    DEEPINFER_UNROLL
    for (int i = 0; i < 4; ++i) out[(r + i) * out_stride] = four[i];
  }
  DEEPINFER_UNROLL
  for (; r < R; ++r) out[r * out_stride] = ReduceLanes(sum[r]);
}

// What is left of a weight row from chunk `first` on, and its outputs.
template <class Words, int R>
DEEPINFER_INLINE void StreamEnd(const Words& words, const RowChunks<Words>& row, const uint16_t* x, int64_t x_stride,
                                int64_t first, int64_t distance, __m512* sum, float* out, int64_t out_stride) {
  StreamChunks<Words, R>(words, row, x, x_stride, first, distance, sum);
  if (row.tailed) {
    StreamChunk<Words, R>(words, row.tail, row.tail_scales, x + row.full * kWordsPerChunk, x_stride, sum);
  }
  StoreOutputs<R>(sum, out, out_stride);
}

// R activation rows against `outputs` <= kStreamGroup weight rows, one after the other.
template <class Words, int R>
void StreamRows(const Words& words, const LinearSlice& slice, const RowChunks<Words>* rows, const uint16_t* x,
                int64_t distance, int64_t outputs, float* out) {
  for (int64_t c = 0; c < outputs; ++c) {
    __m512 sum[R];
    DEEPINFER_UNROLL
    for (int r = 0; r < R; ++r) sum[r] = _mm512_setzero_ps();
    StreamEnd<Words, R>(words, rows[c], x, slice.x_stride, 0, distance, sum, out + c, slice.out_stride);
  }
}

// The same in blocks of kStreamBlock chunks: the weight rows take turns, `accumulators` [kStreamGroup][R][16] keep
// their sums, and each fetches its place in the next group.
template <class Words, int R>
void StreamTurns(const Words& words, const LinearSlice& slice, const RowChunks<Words>* rows, const uint16_t* x,
                 int64_t distance, int64_t outputs, float* out) {
  const int64_t blocks = rows[0].full / kStreamBlock;
  const auto load = [&](int64_t c, bool first, __m512* sum) __attribute__((always_inline)) {
    DEEPINFER_UNROLL
    for (int r = 0; r < R; ++r) {
      sum[r] = first ? _mm512_setzero_ps() : _mm512_load_ps(slice.accumulators + (c * R + r) * 16);
    }
  };
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t c = 0; c < outputs; ++c) {
      __m512 sum[R];
      load(c, block == 0, sum);
      StreamBlock<Words, R>(words, rows[c], x, slice.x_stride, block * kStreamBlock, distance, sum);
      DEEPINFER_UNROLL
      for (int r = 0; r < R; ++r) _mm512_store_ps(slice.accumulators + (c * R + r) * 16, sum[r]);
    }
  }
  // Apart from the loop above, whose registers it would take.
  for (int64_t c = 0; c < outputs; ++c) {
    __m512 sum[R];
    load(c, blocks == 0, sum);
    StreamEnd<Words, R>(words, rows[c], x, slice.x_stride, blocks * kStreamBlock, distance, sum, out + c,
                        slice.out_stride);
  }
}

template <class Words, int R>
void StreamGroup(const Words& words, const LinearSlice& slice, const RowChunks<Words>* rows, int64_t first_row,
                 int64_t output, int64_t outputs) {
  const int64_t chunks = (slice.weight.columns + kChunk - 1) / kChunk;
  const uint16_t* x = static_cast<const uint16_t*>(slice.x) + first_row * slice.x_stride;
  float* out = slice.out + first_row * slice.out_stride + output;
  const int64_t group_bytes = kStreamGroup * slice.weight.columns * Words::kChunkBytes / kChunk;
  if (Words::kWholeRows && chunks * R * kWordsPerChunk * 2 <= kStreamCacheBytes) {
    StreamRows<Words, R>(words, slice, rows, x, kStreamAhead, outputs, out);
  } else {
    StreamTurns<Words, R>(words, slice, rows, x, group_bytes, outputs, out);
  }
}

template <class Words>
void StreamSlice(const LinearSlice& slice) {
  const Words words;
  // FP4 scales, one row of them per weight row, are a second stream that the hardware prefetcher takes away from the
  // first; a burst for the next few rows keeps them apart.
  const int64_t scale_bytes = slice.weight.format == WeightFormat::kF4Row32 ? slice.weight.columns / 32 : 0;
  const int64_t tiles = (slice.rows + kStreamTile - 1) / kStreamTile;
  for (int64_t output = slice.begin; output < slice.end; output += kStreamGroup) {
    const int64_t outputs = slice.end - output < kStreamGroup ? slice.end - output : kStreamGroup;
    const uint8_t* scales = slice.weight.scale + (output + kStreamGroup) * scale_bytes;
    for (int64_t line = 0; line < kStreamGroup * scale_bytes; line += 64) __builtin_prefetch(scales + line);
    RowChunks<Words> rows[kStreamGroup];
    for (int64_t c = 0; c < outputs; ++c) rows[c].Init(slice.weight, output + c);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = slice.rows * tile / tiles;
      WithTileRows(
          slice.rows * (tile + 1) / tiles - row, [&](auto count) __attribute__((always_inline)) {
            StreamGroup<Words, decltype(count)::value>(words, slice, rows, row, output, outputs);
          });
    }
  }
}

// What the tiles of one column block of a panel share.
struct PanelBlock {
  const uint8_t* panel;
  int64_t stride;  // bytes from one panel row to the next
  int64_t chunks;
  bool first;  // sums start from zero
  bool last;   // sums are folded into outputs
};

// R activation rows against C panel rows over the block's chunks; running sums [row][sum_rows][16] stay in memory.
template <int R, int C>
DEEPINFER_INLINE void BlockTile(const PanelBlock& block, const uint16_t* x, int64_t x_stride, const uint8_t* panel,
                                float* sums, int64_t sum_rows, float* out, int64_t out_stride) {
  __m512 sum[R][C];
  DEEPINFER_UNROLL
  for (int r = 0; r < R; ++r) {
    DEEPINFER_UNROLL
    for (int c = 0; c < C; ++c) {
      sum[r][c] = block.first ? _mm512_setzero_ps() : _mm512_load_ps(sums + (r * sum_rows + c) * 16);
    }
  }
  for (int64_t chunk = 0; chunk < block.chunks; ++chunk) {
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
        __m512i w = _mm512_load_si512(wc + c * block.stride + 64 * n);
        asm("" : "+v"(w));  // one load, not one in each of its uses
        DEEPINFER_UNROLL
        for (int r = 0; r < R; ++r) {
          partial[r][c] = _mm512_dpbf16_ps(n == 0 ? _mm512_setzero_ps() : partial[r][c], (__m512bh)w, (__m512bh)xs[r]);
        }
      }
    }
    DEEPINFER_UNROLL
    for (int c = 0; c < C; ++c) {
      const __m512 scale = _mm512_load_ps(wc + c * block.stride + 2 * kWordsPerChunk);
      DEEPINFER_UNROLL
      for (int r = 0; r < R; ++r) sum[r][c] = _mm512_fmadd_ps(partial[r][c], scale, sum[r][c]);
    }
  }
  DEEPINFER_UNROLL
  for (int r = 0; r < R; ++r) {
    if (!block.last) {
      DEEPINFER_UNROLL
      for (int c = 0; c < C; ++c) _mm512_store_ps(sums + (r * sum_rows + c) * 16, sum[r][c]);
    } else if constexpr (C == 4) {
      _mm_storeu_ps(out + r * out_stride, ReduceFour(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
    } else {
      DEEPINFER_UNROLL
      for (int c = 0; c < C; ++c) out[r * out_stride + c] = ReduceLanes(sum[r][c]);
    }
  }
}

template <class Words>
void BlockSlice(const LinearSlice& slice) {
  const Words words;
  const int64_t chunks = (slice.weight.columns + kChunk - 1) / kChunk;
  const int64_t row_bytes = slice.weight.columns * Words::kChunkBytes / kChunk;
  const int64_t scale_bytes = slice.weight.format == WeightFormat::kF4Row32 ? slice.weight.columns / 32 : 0;
  const PanelShape shape = ChoosePanelBf16(slice.rows, chunks);
  uint8_t* panel = reinterpret_cast<uint8_t*>(slice.panel);
  for (int64_t output = slice.begin; output < slice.end; output += shape.rows) {
    const int64_t outputs = slice.end - output < shape.rows ? slice.end - output : shape.rows;
    RowChunks<Words> rows[kPanelRows];
    for (int64_t c = 0; c < outputs; ++c) rows[c].Init(slice.weight, output + c);
    const uint8_t* scales = slice.weight.scale + (output + shape.rows) * scale_bytes;
    for (int64_t line = 0; line < shape.rows * scale_bytes; line += 64) __builtin_prefetch(scales + line);
    const uint8_t* ahead = rows[0].data + shape.rows * row_bytes;
    for (int64_t first = 0; first < chunks; first += shape.chunks) {
      const int64_t count = chunks - first < shape.chunks ? chunks - first : shape.chunks;
      const PanelBlock block{panel, count * kPanelChunkBytes, count, first == 0, first + count == chunks};
      for (int64_t c = 0; c < outputs; ++c) {
        for (int64_t chunk = 0; chunk < count; ++chunk) {
          for (int64_t line = 0; line < Words::kChunkBytes; line += 64) __builtin_prefetch(ahead + line, 0, 2);
          ahead += Words::kChunkBytes;
          uint8_t* to = panel + c * block.stride + chunk * kPanelChunkBytes;
          __m512i w[4];
          words.Decode(rows[c].chunk(first + chunk), w);
          for (int n = 0; n < 4; ++n) _mm512_store_si512(to + 64 * n, w[n]);
          _mm512_store_ps(to + 2 * kWordsPerChunk, ScaleLanes(rows[c].scale(first + chunk)));
        }
      }
      const uint16_t* x = static_cast<const uint16_t*>(slice.x) + first * kWordsPerChunk;
      for (int64_t row = 0; row < slice.rows;) {
        const int64_t height = BlockTileHeight(slice.rows - row);
        const auto run = [&](auto tile) __attribute__((always_inline)) {
          constexpr int kRows = decltype(tile)::value;
          const uint16_t* xr = x + row * slice.x_stride;
          float* sums = slice.accumulators + row * shape.rows * 16;
          float* out = slice.out + row * slice.out_stride + output;
          int64_t c = 0;
          for (; c + 4 <= outputs; c += 4) {
            BlockTile<kRows, 4>(block, xr, slice.x_stride, panel + c * block.stride, sums + c * 16, shape.rows, out + c,
                                slice.out_stride);
          }
          for (; c < outputs; ++c) {
            BlockTile<kRows, 1>(block, xr, slice.x_stride, panel + c * block.stride, sums + c * 16, shape.rows, out + c,
                                slice.out_stride);
          }
        };
        if (height == 3) {
          run(TileRows<3>());
        } else if (height == 2) {
          run(TileRows<2>());
        } else {
          run(TileRows<1>());
        }
        row += height;
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
    // Four lanes' pairs n = 0..3 of each register, then the registers' 128-bit quarters transposed.
    alignas(64) static constexpr uint16_t kPairs[32] = {0, 4, 8,  12, 16, 20, 24, 28, 1, 5, 9,  13, 17, 21, 25, 29,
                                                        2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31};
    const __m512i pairs = _mm512_load_si512(kPairs);
    const __m512i a = _mm512_permutexvar_epi16(pairs, _mm512_load_si512(words));
    const __m512i b = _mm512_permutexvar_epi16(pairs, _mm512_load_si512(words + 32));
    const __m512i c = _mm512_permutexvar_epi16(pairs, _mm512_load_si512(words + 64));
    const __m512i d = _mm512_permutexvar_epi16(pairs, _mm512_load_si512(words + 96));
    const __m512i ab01 = _mm512_shuffle_i64x2(a, b, 0x44), ab23 = _mm512_shuffle_i64x2(a, b, 0xee);
    const __m512i cd01 = _mm512_shuffle_i64x2(c, d, 0x44), cd23 = _mm512_shuffle_i64x2(c, d, 0xee);
    uint16_t* to = ordered + begin;
    _mm512_store_si512(to, _mm512_shuffle_i64x2(ab01, cd01, 0x88));
    _mm512_store_si512(to + 32, _mm512_shuffle_i64x2(ab01, cd01, 0xdd));
    _mm512_store_si512(to + 64, _mm512_shuffle_i64x2(ab23, cd23, 0x88));
    _mm512_store_si512(to + 96, _mm512_shuffle_i64x2(ab23, cd23, 0xdd));
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
