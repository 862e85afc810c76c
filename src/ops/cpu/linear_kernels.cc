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
constexpr int kBlockTileRows = 3;
constexpr int kBlockTileColumns = kParts == 1 ? 4 : 2;

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
    if (weight.columns % kChunk != 0) {
      std::memset(tail, 0, sizeof(tail));
      std::memcpy(tail, data + full * Decoder::kChunkBytes,
                  static_cast<size_t>(weight.row_bytes() - full * Decoder::kChunkBytes));
      if (Decoder::kScaled) {
        std::memset(tail_scales, 127, 4);
        std::memcpy(tail_scales, scales + full * 4, static_cast<size_t>(weight.columns % kChunk / 32));
      }
    }
  }
  HWY_INLINE const uint8_t* chunk(int64_t c) const { return c < full ? data + c * Decoder::kChunkBytes : tail; }
  HWY_INLINE const uint8_t* scale(int64_t c) const { return c < full ? scales + c * 4 : tail_scales; }
};

// R activation rows against one weight row, decoded in registers: a single sequential stream of weights.
template <class Decoder, int R>
HWY_INLINE void StreamTile(const Decoder& decoder, const LinearSlice& slice, int64_t first_row, int64_t output) {
  const LaneTag d;
  RowChunks<Decoder> row;
  row.Init(slice.weight, output);
  const float* x = static_cast<const float*>(slice.x) + first_row * slice.x_stride;
  LaneVec sum[R][kParts];
  DEEPINFER_UNROLL
  for (int r = 0; r < R; ++r) {
    for (int part = 0; part < kParts; ++part) sum[r][part] = hn::Zero(d);
  }
  const int64_t chunks = PaddedColumns(slice.weight.columns) / kChunk;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const uint8_t* data = row.chunk(chunk);
    for (int64_t line = 0; line < Decoder::kChunkBytes; line += 64) __builtin_prefetch(data + kPrefetchBytes + line);
    typename Decoder::Staged staged;
    Decoder::Stage(data, staged);
    for (int part = 0; part < kParts; ++part) {
      LaneVec w[8];
      decoder.Decode(d, staged, part, w);
      LaneVec scale = hn::Zero(d);
      if constexpr (Decoder::kScaled) scale = ScaleLanes(d, row.scale(chunk), part, Decoder::kFactor);
      DEEPINFER_UNROLL
      for (int r = 0; r < R; ++r) {
        const float* xr = x + r * slice.x_stride + chunk * kChunk + part * kLanes;
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
  DEEPINFER_UNROLL
  for (int r = 0; r < R; ++r) slice.out[(first_row + r) * slice.out_stride + output] = ReduceLanes(sum[r]);
}

template <class Decoder>
void StreamSlice(const LinearSlice& slice) {
  const Decoder decoder;
  for (int64_t output = slice.begin; output < slice.end; ++output) {
    int64_t row = 0;
    for (; row + 4 <= slice.rows; row += 4) StreamTile<Decoder, 4>(decoder, slice, row, output);
    for (; row + 2 <= slice.rows; row += 2) StreamTile<Decoder, 2>(decoder, slice, row, output);
    if (row < slice.rows) StreamTile<Decoder, 1>(decoder, slice, row, output);
  }
}

// Decodes `chunks` chunks of one weight row from chunk `first` on: 128 weights and 16 scale lanes each.
template <class Decoder>
HWY_INLINE void FillPanelRow(const Decoder& decoder, const RowChunks<Decoder>& row, int64_t first, int64_t chunks,
                             float* HWY_RESTRICT panel) {
  const LaneTag d;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    float* to = panel + chunk * kPanelChunkFloats;
    typename Decoder::Staged staged;
    Decoder::Stage(row.chunk(first + chunk), staged);
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

// R activation rows against C panel rows over the panel's chunks; running sums [row][kPanelRows][16] stay in memory.
template <int R, int C>
HWY_INLINE void BlockTile(const float* HWY_RESTRICT x, int64_t x_stride, const float* HWY_RESTRICT panel,
                          int64_t panel_stride, int64_t chunks, float* HWY_RESTRICT sums) {
  const LaneTag d;
  for (int part = 0; part < kParts; ++part) {
    LaneVec sum[R][C];
    DEEPINFER_UNROLL
    for (int r = 0; r < R; ++r) {
      DEEPINFER_UNROLL
      for (int c = 0; c < C; ++c) sum[r][c] = hn::Load(d, sums + (r * kPanelRows + c) * 16 + part * kLanes);
    }
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
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
          LaneVec w = hn::Load(d, wc + c * panel_stride + 16 * s);
          KeepInRegister(w);
          DEEPINFER_UNROLL
          for (int r = 0; r < R; ++r) {
            partial[r][c] = s == 0 ? hn::Mul(w, xs[r]) : hn::MulAdd(w, xs[r], partial[r][c]);
          }
        }
      }
      DEEPINFER_UNROLL
      for (int c = 0; c < C; ++c) {
        const LaneVec scale = hn::Load(d, wc + c * panel_stride + kChunk);
        DEEPINFER_UNROLL
        for (int r = 0; r < R; ++r) sum[r][c] = hn::MulAdd(partial[r][c], scale, sum[r][c]);
      }
    }
    DEEPINFER_UNROLL
    for (int r = 0; r < R; ++r) {
      DEEPINFER_UNROLL
      for (int c = 0; c < C; ++c) hn::Store(sum[r][c], d, sums + (r * kPanelRows + c) * 16 + part * kLanes);
    }
  }
}

template <int R>
HWY_INLINE void BlockTileRow(const float* x, int64_t x_stride, const float* panel, int64_t panel_stride, int64_t chunks,
                             int64_t outputs, float* sums) {
  int64_t c = 0;
  for (; c + kBlockTileColumns <= outputs; c += kBlockTileColumns) {
    BlockTile<R, kBlockTileColumns>(x, x_stride, panel + c * panel_stride, panel_stride, chunks, sums + c * 16);
  }
  for (; c < outputs; ++c) BlockTile<R, 1>(x, x_stride, panel + c * panel_stride, panel_stride, chunks, sums + c * 16);
}

template <class Decoder>
void BlockSlice(const LinearSlice& slice) {
  const Decoder decoder;
  const LaneTag d;
  const int64_t chunks = PaddedColumns(slice.weight.columns) / kChunk;
  constexpr int64_t kBlockChunks = kPanelColumns / kChunk;
  constexpr int64_t kPanelStride = kBlockChunks * kPanelChunkFloats;
  for (int64_t output = slice.begin; output < slice.end; output += kPanelRows) {
    const int64_t outputs = HWY_MIN(kPanelRows, slice.end - output);
    RowChunks<Decoder> rows[kPanelRows];
    for (int64_t c = 0; c < outputs; ++c) rows[c].Init(slice.weight, output + c);
    std::memset(slice.accumulators, 0, static_cast<size_t>(slice.rows * kPanelRows * 16) * sizeof(float));
    for (int64_t first = 0; first < chunks; first += kBlockChunks) {
      const int64_t count = HWY_MIN(kBlockChunks, chunks - first);
      for (int64_t c = 0; c < outputs; ++c) {
        FillPanelRow(decoder, rows[c], first, count, slice.panel + c * kPanelStride);
      }
      const float* x = static_cast<const float*>(slice.x) + first * kChunk;
      int64_t row = 0;
      for (; row + kBlockTileRows <= slice.rows; row += kBlockTileRows) {
        BlockTileRow<kBlockTileRows>(x + row * slice.x_stride, slice.x_stride, slice.panel, kPanelStride, count,
                                     outputs, slice.accumulators + row * kPanelRows * 16);
      }
      for (; row < slice.rows; ++row) {
        BlockTileRow<1>(x + row * slice.x_stride, slice.x_stride, slice.panel, kPanelStride, count, outputs,
                        slice.accumulators + row * kPanelRows * 16);
      }
    }
    for (int64_t row = 0; row < slice.rows; ++row) {
      for (int64_t c = 0; c < outputs; ++c) {
        LaneVec parts[kParts];
        const float* sums = slice.accumulators + (row * kPanelRows + c) * 16;
        for (int part = 0; part < kParts; ++part) parts[part] = hn::Load(d, sums + part * kLanes);
        slice.out[row * slice.out_stride + output + c] = ReduceLanes(parts);
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
  HWY_ALIGN float chunk[kChunk];
  for (int64_t begin = 0; begin < columns; begin += kChunk) {
    const int64_t count = HWY_MIN(kChunk, columns - begin);
    const float* from = x + begin;
    if (quantise) {
      FakeQuantiseFp8(hn::ScalableTag<float>(), from, chunk, count);
    } else {
      std::memcpy(chunk, from, static_cast<size_t>(count) * sizeof(float));
    }
    std::memset(chunk + count, 0, static_cast<size_t>(kChunk - count) * sizeof(float));
    for (int s = 0; s < 8; ++s) {
      for (int l = 0; l < 16; ++l) ordered[begin + 16 * s + l] = chunk[8 * l + kDotColumnOrder[s]];
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
