#include "ops/cpu/linear_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/linear_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/cpu/linear_limits.h"
#include "ops/cpu/quantise-inl.h"
#include "ops/cpu/weight_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(LaneTag()));
constexpr int kParts = 16 / kLanes;
// Register tile of the block kernel: 32 registers with AVX-512, 16 elsewhere.
constexpr int kBlockTileColumns = kParts == 1 ? 4 : 2;
// Where a chunk takes one pass over the registers, a few chunks in a row are short enough to unroll.
#undef DEEPINFER_UNROLL_WIDE
#if DEEPINFER_WIDE_PERMUTE
#define DEEPINFER_UNROLL_WIDE DEEPINFER_UNROLL
#else
#define DEEPINFER_UNROLL_WIDE
#endif
// Activation rows of a stream tile.
constexpr int kTileRows = kParts == 1 ? kStreamTile : kStreamTile / 2;

// The fixed tree over 16 lanes: l += l + 8, then + 4, + 2, + 1.
HWY_INLINE float ReduceLanes(const LaneVec* HWY_RESTRICT parts) {
  const LaneTag d;
#if DEEPINFER_WIDE_PERMUTE
  const __m512 v = parts[0].raw;
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  (void)d;
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
#else
  HWY_ALIGN float lanes[16];
  for (int part = 0; part < kParts; ++part) hn::Store(parts[part], d, lanes + part * kLanes);
  for (int l = 0; l < 8; ++l) lanes[l] += lanes[l + 8];
  for (int l = 0; l < 4; ++l) lanes[l] += lanes[l + 4];
  for (int l = 0; l < 2; ++l) lanes[l] += lanes[l + 2];
  return lanes[0] + lanes[1];
#endif
}

// The same tree for four sums [4][kParts] side by side.
HWY_INLINE void ReduceFour(const LaneVec (*HWY_RESTRICT sums)[kParts], float* HWY_RESTRICT out) {
#if DEEPINFER_WIDE_PERMUTE
  const __m512 a = sums[0][0].raw, b = sums[1][0].raw, c = sums[2][0].raw, e = sums[3][0].raw;
  const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  const __m512 ce = _mm512_add_ps(_mm512_shuffle_f32x4(c, e, 0x44), _mm512_shuffle_f32x4(c, e, 0xee));
  // One 128-bit quarter each: lanes 0..3 of the four sums.
  const __m512 four = _mm512_add_ps(_mm512_shuffle_f32x4(ab, ce, 0x88), _mm512_shuffle_f32x4(ab, ce, 0xdd));
  const __m512 two = _mm512_add_ps(four, _mm512_shuffle_ps(four, four, 0x4e));
  const __m512 one = _mm512_add_ps(two, _mm512_shuffle_ps(two, two, 0xb1));
  const __m512i quarters = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(quarters, one)));
#else
  for (int i = 0; i < 4; ++i) out[i] = ReduceLanes(sums[i]);
#endif
}

// `bytes` bytes, then zeros. A library copy of variable size would cost more than a chunk's products.
template <int64_t kBytes>
HWY_INLINE void CopyPadded(const uint8_t* HWY_RESTRICT from, int64_t bytes, uint8_t (&to)[kBytes]) {
  const hn::CappedTag<uint8_t, 64> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t at = 0;
  for (; at + lanes <= bytes; at += lanes) hn::Store(hn::LoadU(d, from + at), d, to + at);
  int64_t zeros = at;
  for (; zeros < kBytes; zeros += lanes) hn::Store(hn::Zero(d), d, to + zeros);
  for (; at < bytes; ++at) to[at] = from[at];
}

// Calls body(chunk bytes, four scale bytes, chunk index) for every chunk of a weight row; the last, incomplete one is
// a zero-padded copy.
template <class Decoder>
struct RowChunks {
  alignas(64) uint8_t tail[Decoder::kChunkBytes];
  const uint8_t* data;
  const uint8_t* scales;
  int64_t full;
  uint8_t tail_scales[4];

  HWY_INLINE void Init(const WeightMatrix& weight, int64_t row) {
    data = weight.data + row * weight.row_bytes();
    scales = Decoder::kScaled ? weight.scale_row(row) : nullptr;
    full = weight.columns / kChunk;
    const int64_t rest = weight.columns % kChunk;
    if (rest != 0) {
      CopyPadded(data + full * Decoder::kChunkBytes, weight.row_bytes() - full * Decoder::kChunkBytes, tail);
      if (Decoder::kScaled) {
        const uint8_t* last = scales + full * 4;
        for (int64_t i = 0; i < 4; ++i) tail_scales[i] = i < rest / 32 ? last[i] : 127;
      }
    }
  }
  HWY_INLINE const uint8_t* chunk(int64_t c) const { return c < full ? data + c * Decoder::kChunkBytes : tail; }
  HWY_INLINE const uint8_t* scale(int64_t c) const { return c < full ? scales + c * 4 : tail_scales; }
};

// One staged chunk of a weight row against R activation rows; x is their columns of this chunk.
template <class Decoder, int R>
HWY_INLINE void StreamChunk(const Decoder& decoder, const typename Decoder::Staged& staged, const uint8_t* scales,
                            const float* HWY_RESTRICT x, int64_t x_stride, LaneVec (*HWY_RESTRICT sum)[kParts]) {
  const LaneTag d;
  DEEPINFER_UNROLL
  for (int part = 0; part < kParts; ++part) {
    LaneVec w[8];
    decoder.Decode(d, staged, part, w);
    LaneVec scale = hn::Zero(d);
    if constexpr (Decoder::kScaled) scale = ScaleLanes(d, scales, part, Decoder::kFactor);
    DEEPINFER_UNROLL
    for (int r = 0; r < R; ++r) {
      const float* xr = x + r * x_stride + part * kLanes;
      LaneVec partial = hn::Mul(w[0], hn::Load(d, xr));
      DEEPINFER_UNROLL
      for (int s = 1; s < 8; ++s) partial = hn::MulAdd(w[s], hn::Load(d, xr + 16 * s), partial);
      if constexpr (Decoder::kScaled) {
        sum[r][part] = hn::MulAdd(partial, scale, sum[r][part]);
      } else {
        sum[r][part] = hn::Add(sum[r][part], partial);
      }
    }
  }
}

// kCount whole chunks of a weight row from `first` on: one burst of fetches of what lies `distance` further on, and no
// branch between the chunks. Where staging takes registers only, each chunk is staged while the one before it is
// multiplied: `staged` holds the first one and receives the one at `next`, whose products come next.
template <class Decoder, int R, int kCount>
HWY_INLINE void StreamChunks(const Decoder& decoder, const RowChunks<Decoder>& row, const float* HWY_RESTRICT x,
                             int64_t x_stride, int64_t first, int64_t distance, const uint8_t* next,
                             typename Decoder::Staged& staged, LaneVec (*HWY_RESTRICT sum)[kParts]) {
  const uint8_t* data = row.data + first * Decoder::kChunkBytes;
  for (int64_t line = 0; line < kCount * Decoder::kChunkBytes; line += 64) __builtin_prefetch(data + distance + line);
  DEEPINFER_UNROLL_WIDE
  for (int i = 0; i < kCount; ++i) {
    typename Decoder::Staged after;
    if constexpr (kParts == 1) {
      decoder.Stage(i + 1 < kCount ? data + (i + 1) * Decoder::kChunkBytes : next, after);
    } else {
      decoder.Stage(data + i * Decoder::kChunkBytes, staged);
    }
    StreamChunk<Decoder, R>(decoder, staged, Decoder::kScaled ? row.scales + (first + i) * 4 : nullptr,
                            x + (first + i) * kChunk, x_stride, sum);
    if constexpr (kParts == 1) staged = after;
  }
}

template <int R>
HWY_INLINE void StoreOutputs(const LaneVec (*HWY_RESTRICT sum)[kParts], float* HWY_RESTRICT out, int64_t out_stride) {
  int r = 0;
  DEEPINFER_UNROLL
  for (; r + 4 <= R; r += 4) {
    HWY_ALIGN float four[4];
    ReduceFour(sum + r, four);
    DEEPINFER_UNROLL
    for (int i = 0; i < 4; ++i) out[(r + i) * out_stride] = four[i];
  }
  DEEPINFER_UNROLL
  for (; r < R; ++r) out[r * out_stride] = ReduceLanes(sum[r]);
}

// R activation rows against `outputs` <= kStreamGroup weight rows in blocks of 512 bytes: the weight rows take turns,
// `accumulators` [kStreamGroup][R][16] keep their sums, and each fetches its place in the next group.
template <class Decoder, int R>
void StreamGroup(const Decoder& decoder, const LinearSlice& slice, const RowChunks<Decoder>* rows, int64_t first_row,
                 int64_t output, int64_t outputs) {
  const LaneTag d;
  constexpr int kBlock = HWY_MAX(1, 512 / static_cast<int>(Decoder::kChunkBytes));
  const int64_t chunks = PaddedColumns(slice.weight.columns) / kChunk;
  const int64_t full = rows[0].full;
  const int64_t blocks = full / kBlock;
  const int64_t distance = kStreamGroup * slice.weight.row_bytes();
  const float* x = static_cast<const float*>(slice.x) + first_row * slice.x_stride;
  float* out = slice.out + first_row * slice.out_stride + output;
  const auto load = [&](int64_t c, bool first, LaneVec(*sum)[kParts]) HWY_ATTR {
    DEEPINFER_UNROLL
    for (int r = 0; r < R; ++r) {
      DEEPINFER_UNROLL
      for (int part = 0; part < kParts; ++part) {
        sum[r][part] = first ? hn::Zero(d) : hn::Load(d, slice.accumulators + (c * R + r) * 16 + part * kLanes);
      }
    }
  };
  typename Decoder::Staged staged;
  if (kParts == 1 && full > 0) decoder.Stage(rows[0].data, staged);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t c = 0; c < outputs; ++c) {
      LaneVec sum[R][kParts];
      load(c, block == 0, sum);
      const bool turn = c + 1 == outputs;
      const int64_t first = HWY_MIN(full - 1, (block + turn) * kBlock);
      StreamChunks<Decoder, R, kBlock>(decoder, rows[c], x, slice.x_stride, block * kBlock, distance,
                                       rows[turn ? 0 : c + 1].data + first * Decoder::kChunkBytes, staged, sum);
      DEEPINFER_UNROLL
      for (int r = 0; r < R; ++r) {
        DEEPINFER_UNROLL
        for (int part = 0; part < kParts; ++part) {
          hn::Store(sum[r][part], d, slice.accumulators + (c * R + r) * 16 + part * kLanes);
        }
      }
    }
  }
  // Apart from the loop above, whose registers it would take.
  for (int64_t c = 0; c < outputs; ++c) {
    LaneVec sum[R][kParts];
    load(c, blocks == 0, sum);
    for (int64_t chunk = blocks * kBlock; chunk < full; ++chunk) {
      const uint8_t* data = rows[c].data + chunk * Decoder::kChunkBytes;
      decoder.Stage(data, staged);
      StreamChunks<Decoder, R, 1>(decoder, rows[c], x, slice.x_stride, chunk, distance, data, staged, sum);
    }
    if (full < chunks) {
      decoder.Stage(rows[c].tail, staged);
      StreamChunk<Decoder, R>(decoder, staged, rows[c].tail_scales, x + full * kChunk, slice.x_stride, sum);
    }
    StoreOutputs<R>(sum, out + c, slice.out_stride);
  }
}

template <class Decoder>
void StreamSlice(const LinearSlice& slice) {
  const Decoder decoder;
  const int64_t tiles = (slice.rows + kTileRows - 1) / kTileRows;
  for (int64_t output = slice.begin; output < slice.end; output += kStreamGroup) {
    const int64_t outputs = HWY_MIN(kStreamGroup, slice.end - output);
    RowChunks<Decoder> rows[kStreamGroup];
    for (int64_t c = 0; c < outputs; ++c) rows[c].Init(slice.weight, output + c);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = slice.rows * tile / tiles;
      WithTileRows(slice.rows * (tile + 1) / tiles - row, [&](auto count) HWY_ATTR {
        constexpr int kRows = HWY_MIN(decltype(count)::value, kTileRows);
        StreamGroup<Decoder, kRows>(decoder, slice, rows, row, output, outputs);
      });
    }
  }
}

// Decodes `chunks` chunks of one weight row from chunk `first` on: 128 weights and 16 scale lanes each. `ahead` is
// where to prefetch.
template <class Decoder>
HWY_INLINE void FillPanelRow(const Decoder& decoder, const RowChunks<Decoder>& row, int64_t first, int64_t chunks,
                             const uint8_t* ahead, float* HWY_RESTRICT panel) {
  const LaneTag d;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    float* to = panel + chunk * kPanelChunkFloats;
    for (int64_t line = 0; line < Decoder::kChunkBytes; line += 64) __builtin_prefetch(ahead + line, 0, 2);
    ahead += Decoder::kChunkBytes;
    typename Decoder::Staged staged;
    decoder.Stage(row.chunk(first + chunk), staged);
    for (int part = 0; part < kParts; ++part) {
      LaneVec w[8];
      decoder.Decode(d, staged, part, w);
      for (int s = 0; s < 8; ++s) hn::Store(w[s], d, to + 16 * s + part * kLanes);
      LaneVec scale = hn::Set(d, 1.0f);
      if constexpr (Decoder::kScaled) scale = ScaleLanes(d, row.scale(first + chunk), part, Decoder::kFactor);
      hn::Store(scale, d, to + kChunk + part * kLanes);
    }
  }
}

// Keeps a loaded vector in a register: gcc 12 otherwise folds the load into each of its uses, and loads, one a cycle,
// become the limit.
HWY_INLINE void KeepInRegister(LaneVec& v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && !defined(__clang__)
  asm("" : "+v"(v.raw));
#else
  (void)v;
#endif
}

// What the tiles of one column block of a panel share.
struct PanelBlock {
  const float* panel;
  int64_t stride;  // floats from one panel row to the next
  int64_t chunks;
  bool first;  // sums start from zero
  bool last;   // sums are folded into outputs
};

// R activation rows against C panel rows over the block's chunks; running sums [row][sum_rows][16] stay in memory.
template <int R, int C>
HWY_INLINE void BlockTile(const PanelBlock& block, const float* HWY_RESTRICT x, int64_t x_stride,
                          const float* HWY_RESTRICT panel, float* HWY_RESTRICT sums, int64_t sum_rows,
                          float* HWY_RESTRICT out, int64_t out_stride) {
  const LaneTag d;
  LaneVec total[R][C][kParts];
  for (int part = 0; part < kParts; ++part) {
    LaneVec sum[R][C];
    DEEPINFER_UNROLL
    for (int r = 0; r < R; ++r) {
      DEEPINFER_UNROLL
      for (int c = 0; c < C; ++c) {
        sum[r][c] = block.first ? hn::Zero(d) : hn::Load(d, sums + (r * sum_rows + c) * 16 + part * kLanes);
      }
    }
    for (int64_t chunk = 0; chunk < block.chunks; ++chunk) {
      const float* xc = x + chunk * kChunk + part * kLanes;
      const float* wc = panel + chunk * kPanelChunkFloats + part * kLanes;
      LaneVec partial[R][C];
      DEEPINFER_UNROLL
      for (int s = 0; s < 8; ++s) {
        LaneVec xs[R];
        DEEPINFER_UNROLL
        for (int r = 0; r < R; ++r) {
          xs[r] = hn::Load(d, xc + r * x_stride + 16 * s);
          KeepInRegister(xs[r]);
        }
        DEEPINFER_UNROLL
        for (int c = 0; c < C; ++c) {
          LaneVec w = hn::Load(d, wc + c * block.stride + 16 * s);
          KeepInRegister(w);
          DEEPINFER_UNROLL
          for (int r = 0; r < R; ++r) {
            partial[r][c] = s == 0 ? hn::Mul(w, xs[r]) : hn::MulAdd(w, xs[r], partial[r][c]);
          }
        }
      }
      DEEPINFER_UNROLL
      for (int c = 0; c < C; ++c) {
        const LaneVec scale = hn::Load(d, wc + c * block.stride + kChunk);
        DEEPINFER_UNROLL
        for (int r = 0; r < R; ++r) sum[r][c] = hn::MulAdd(partial[r][c], scale, sum[r][c]);
      }
    }
    DEEPINFER_UNROLL
    for (int r = 0; r < R; ++r) {
      DEEPINFER_UNROLL
      for (int c = 0; c < C; ++c) {
        if (block.last) {
          total[r][c][part] = sum[r][c];
        } else {
          hn::Store(sum[r][c], d, sums + (r * sum_rows + c) * 16 + part * kLanes);
        }
      }
    }
  }
  if (!block.last) return;
  DEEPINFER_UNROLL
  for (int r = 0; r < R; ++r) {
    if constexpr (C == 4) {
      ReduceFour(total[r], out + r * out_stride);
    } else {
      DEEPINFER_UNROLL
      for (int c = 0; c < C; ++c) out[r * out_stride + c] = ReduceLanes(total[r][c]);
    }
  }
}

template <class Decoder>
void BlockSlice(const LinearSlice& slice) {
  const Decoder decoder;
  const int64_t chunks = PaddedColumns(slice.weight.columns) / kChunk;
  const PanelShape shape = ChoosePanelF32(chunks);
  for (int64_t output = slice.begin; output < slice.end; output += shape.rows) {
    const int64_t outputs = HWY_MIN(shape.rows, slice.end - output);
    RowChunks<Decoder> rows[kPanelRows];
    for (int64_t c = 0; c < outputs; ++c) rows[c].Init(slice.weight, output + c);
    const uint8_t* ahead = rows[0].data + shape.rows * slice.weight.row_bytes();
    for (int64_t first = 0; first < chunks; first += shape.chunks) {
      const int64_t count = HWY_MIN(shape.chunks, chunks - first);
      const PanelBlock block{slice.panel, count * kPanelChunkFloats, count, first == 0, first + count == chunks};
      for (int64_t c = 0; c < outputs; ++c) {
        FillPanelRow(decoder, rows[c], first, count, ahead, slice.panel + c * block.stride);
        ahead += count * Decoder::kChunkBytes;
      }
      const float* x = static_cast<const float*>(slice.x) + first * kChunk;
      for (int64_t row = 0; row < slice.rows;) {
        const int64_t height = BlockTileHeight(slice.rows - row);
        const auto run = [&](auto tile) HWY_ATTR {
          constexpr int kRows = decltype(tile)::value;
          const float* xr = x + row * slice.x_stride;
          float* sums = slice.accumulators + row * shape.rows * 16;
          float* out = slice.out + row * slice.out_stride + output;
          int64_t c = 0;
          for (; c + kBlockTileColumns <= outputs; c += kBlockTileColumns) {
            BlockTile<kRows, kBlockTileColumns>(block, xr, slice.x_stride, block.panel + c * block.stride,
                                                sums + c * 16, shape.rows, out + c, slice.out_stride);
          }
          for (; c < outputs; ++c) {
            BlockTile<kRows, 1>(block, xr, slice.x_stride, block.panel + c * block.stride, sums + c * 16, shape.rows,
                                out + c, slice.out_stride);
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

void StreamAny(const LinearSlice& slice) {
  switch (slice.weight.format) {
    case WeightFormat::kF32:
      return StreamSlice<F32Decoder>(slice);
    case WeightFormat::kBF16:
      return StreamSlice<Bf16Decoder>(slice);
    case WeightFormat::kF8Block32:
    case WeightFormat::kF8Row32:
      return StreamSlice<F8Decoder>(slice);
    case WeightFormat::kF4Row32:
      return StreamSlice<F4Decoder>(slice);
  }
}

void BlockAny(const LinearSlice& slice) {
  switch (slice.weight.format) {
    case WeightFormat::kF32:
      return BlockSlice<F32Decoder>(slice);
    case WeightFormat::kBF16:
      return BlockSlice<Bf16Decoder>(slice);
    case WeightFormat::kF8Block32:
    case WeightFormat::kF8Row32:
      return BlockSlice<F8Decoder>(slice);
    case WeightFormat::kF4Row32:
      return BlockSlice<F4Decoder>(slice);
  }
}

void OrderRow(const float* x, int64_t columns, bool quantise, float* HWY_RESTRICT ordered) {
  const LaneTag d;
  HWY_ALIGN float chunk[kChunk];
  for (int64_t begin = 0; begin < columns; begin += kChunk) {
    const int64_t count = HWY_MIN(kChunk, columns - begin);
    const float* from = x + begin;
    if (quantise) {
      FakeQuantiseFp8(hn::ScalableTag<float>(), from, chunk, count);
      for (int64_t c = count; c < kChunk; ++c) chunk[c] = 0;
      from = chunk;
    } else if (count < kChunk) {
      for (int64_t c = 0; c < kChunk; ++c) chunk[c] = c < count ? from[c] : 0;
      from = chunk;
    }
    F32Decoder::Staged staged;
    F32Decoder::Stage(reinterpret_cast<const uint8_t*>(from), staged);
    for (int part = 0; part < kParts; ++part) {
      LaneVec lanes[8];
      F32Decoder::Decode(d, staged, part, lanes);
      for (int s = 0; s < 8; ++s) hn::Store(lanes[s], d, ordered + begin + 16 * s + part * kLanes);
    }
  }
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(OrderRow);
HWY_EXPORT(StreamAny);
HWY_EXPORT(BlockAny);

void OrderRowF32(const float* x, int64_t columns, bool quantise, float* ordered) {
  HWY_DYNAMIC_DISPATCH(OrderRow)(x, columns, quantise, ordered);
}
void StreamSliceF32(const LinearSlice& slice) { HWY_DYNAMIC_DISPATCH(StreamAny)(slice); }
void BlockSliceF32(const LinearSlice& slice) { HWY_DYNAMIC_DISPATCH(BlockAny)(slice); }

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
