#include "ops/cpu/index_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/dtype.h"
#include "ops/cpu/index_top_k.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/index_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/cpu/quantise-inl.h"

#ifndef DEEPINFER_OPS_CPU_INDEX_KERNELS_LAYOUT
#define DEEPINFER_OPS_CPU_INDEX_KERNELS_LAYOUT
namespace deepinfer::cpu {
namespace {

constexpr int64_t kGroup = 32;      // channels that share a scale
constexpr int64_t kGroupQuads = 8;  // dwords of four channels in a group
constexpr int kOffset = 12;         // of doubled E2M1 values, to make them unsigned
constexpr int64_t kHeadPadding = 4;

constexpr int64_t PaddedIndexHeads(int64_t heads) { return (heads + kHeadPadding - 1) / kHeadPadding * kHeadPadding; }

// A query: [heads, quads, 2] dwords (the second of a pair is used without 8-bit products only), then per head and group
// the start value of its sums and its scale, then the head weights.
template <typename Byte>
struct QueryLayout {
  template <typename T>
  using Pointer = std::conditional_t<std::is_const_v<Byte>, const T*, T*>;

  QueryLayout(Byte* memory, int64_t heads, int64_t width) {
    const int64_t padded = PaddedIndexHeads(heads);
    const int64_t groups = width / kGroup;
    quads = reinterpret_cast<Pointer<int32_t>>(memory);
    starts = quads + padded * groups * kGroupQuads * 2;
    scales = reinterpret_cast<Pointer<float>>(starts + padded * groups);
    weights = scales + padded * groups;
  }
  static constexpr int64_t Bytes(int64_t heads, int64_t width) {
    return PaddedIndexHeads(heads) * (width / kGroup * (kGroupQuads * 2 + 2) + 1) * 4;
  }
  Pointer<int32_t> quads;
  Pointer<int32_t> starts;
  Pointer<float> scales;
  Pointer<float> weights;
};

}  // namespace
}  // namespace deepinfer::cpu
#endif  // DEEPINFER_OPS_CPU_INDEX_KERNELS_LAYOUT

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using TagI32 = hn::RebindToSigned<Tag>;
using TagU32 = hn::RebindToUnsigned<Tag>;
#if HWY_TARGET != HWY_SCALAR
using TagI16 = hn::Repartition<int16_t, Tag>;
using TagU8 = hn::Repartition<uint8_t, Tag>;
#endif
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag()));

// Register tile: kTileHeads * kTileVectors integer sums and as many dot products.
constexpr int kTileVectors = kLanes == 16 ? 3 : 2;
constexpr int kTileHeads = kLanes == 16 || HWY_ARCH_ARM_A64 ? 4 : 2;
constexpr int64_t kTileKeys = kTileVectors * kLanes;
static_assert(kIndexPanelKeys % kTileKeys == 0 && kHeadPadding % kTileHeads == 0);

// Bytes of a tile: its quads, then its scales.
constexpr int64_t TileBytes(int64_t width) { return kTileKeys * (width + width / kGroup * 4); }

// Sums of the four channels of a quad for one head, a lane per key: 16-bit halves of products of channels 0, 1 and of
// channels 2, 3, added up over the eight quads of a group (at most 16 * 24 * 12 in size), then joined to 32 bits.
#if HWY_TARGET == HWY_AVX3_DL
using PairSums = hn::Vec<TagI32>;

struct KeyQuads {
  HWY_INLINE explicit KeyQuads(const uint8_t* bytes) : keys(hn::Load(TagU8(), bytes)) {}
  // VPDPBUSD adds all four products of a lane. Highway 1.0.3 checks for AVX512_VNNI before it picks this target but
  // does not enable the intrinsic in it.
  HWY_INLINE PairSums AddTo(PairSums sums, const int32_t* quad) const {
    const auto query = hn::Set(TagI32(), quad[0]);
    asm("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(keys.raw), "v"(query.raw));
    return sums;
  }
  hn::Vec<TagU8> keys;
};
HWY_INLINE PairSums StartSums(int32_t start) {
  return hn::Set(TagI32(), (start >> 16) + static_cast<int16_t>(start & 0xffff));
}
HWY_INLINE hn::Vec<TagI32> JoinPairs(PairSums sums) { return sums; }

#elif HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
using PairSums = hn::Vec<TagI16>;

#if HWY_TARGET == HWY_AVX2
HWY_INLINE PairSums MultiplyPairs(hn::Vec<TagU8> keys, hn::Vec<TagI32> quad) {
  return PairSums{_mm256_maddubs_epi16(keys.raw, quad.raw)};
}
HWY_INLINE hn::Vec<TagI32> JoinPairs(PairSums sums) {
  return hn::Vec<TagI32>{_mm256_madd_epi16(sums.raw, _mm256_set1_epi16(1))};
}
#else
HWY_INLINE PairSums MultiplyPairs(hn::Vec<TagU8> keys, hn::Vec<TagI32> quad) {
  return PairSums{_mm512_maddubs_epi16(keys.raw, quad.raw)};
}
HWY_INLINE hn::Vec<TagI32> JoinPairs(PairSums sums) {
  return hn::Vec<TagI32>{_mm512_madd_epi16(sums.raw, _mm512_set1_epi16(1))};
}
#endif

struct KeyQuads {
  HWY_INLINE explicit KeyQuads(const uint8_t* bytes) : keys(hn::Load(TagU8(), bytes)) {}
  HWY_INLINE PairSums AddTo(PairSums sums, const int32_t* quad) const {
    return hn::Add(sums, MultiplyPairs(keys, hn::Set(TagI32(), quad[0])));
  }
  hn::Vec<TagU8> keys;
};
HWY_INLINE PairSums StartSums(int32_t start) { return hn::BitCast(TagI16(), hn::Set(TagI32(), start)); }

#elif HWY_TARGET == HWY_SCALAR
using PairSums = hn::Vec<TagI32>;

struct KeyQuads {
  HWY_INLINE explicit KeyQuads(const uint8_t* from) : bytes(from) {}
  HWY_INLINE PairSums AddTo(PairSums sums, const int32_t* quad) const {
    int8_t query[4];
    std::memcpy(query, quad, sizeof(query));
    int32_t sum = 0;
    for (int i = 0; i < 4; ++i) sum += bytes[i] * query[i];
    return hn::Add(sums, hn::Set(TagI32(), sum));
  }
  const uint8_t* bytes;
};
HWY_INLINE PairSums StartSums(int32_t start) {
  return hn::Set(TagI32(), (start >> 16) + static_cast<int16_t>(start & 0xffff));
}
HWY_INLINE hn::Vec<TagI32> JoinPairs(PairSums sums) { return sums; }

#else
using PairSums = hn::Vec<TagI16>;

// 16-bit products of the even and of the odd channels; the query holds both as pairs of 16-bit values.
struct KeyQuads {
  HWY_INLINE explicit KeyQuads(const uint8_t* bytes) {
    const auto both = hn::BitCast(hn::RebindToUnsigned<TagI16>(), hn::Load(TagU8(), bytes));
    even = hn::BitCast(TagI16(), hn::And(both, hn::Set(hn::RebindToUnsigned<TagI16>(), 0xff)));
    odd = hn::BitCast(TagI16(), hn::ShiftRight<8>(both));
  }
  HWY_INLINE PairSums AddTo(PairSums sums, const int32_t* quad) const {
    const auto query_even = hn::BitCast(TagI16(), hn::Set(TagI32(), quad[0]));
    const auto query_odd = hn::BitCast(TagI16(), hn::Set(TagI32(), quad[1]));
    return hn::Add(hn::Add(sums, hn::Mul(even, query_even)), hn::Mul(odd, query_odd));
  }
  hn::Vec<TagI16> even;
  hn::Vec<TagI16> odd;
};
HWY_INLINE PairSums StartSums(int32_t start) { return hn::BitCast(TagI16(), hn::Set(TagI32(), start)); }
HWY_INLINE hn::Vec<TagI32> JoinPairs(PairSums sums) {
  const auto both = hn::BitCast(TagI32(), sums);
  return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(both)), hn::ShiftRight<16>(both));
}
#endif

constexpr bool kBytePairs =
    HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_SCALAR;

#if HWY_TARGET == HWY_SCALAR

void FillTile(const KeyRow* rows, int64_t width, uint8_t* quads) {
  for (int64_t c = 0; c < width; ++c) {
    // Quad 2i of a packed dword i holds its low nibbles, quad 2i + 1 its high ones.
    const int64_t quad = c / 8 * 2 + c % 2;
    for (int64_t key = 0; key < kTileKeys; ++key) {
      const uint8_t byte = rows[key].values[c / 2];
      const float value = E2m1ToFloat(static_cast<uint8_t>(c % 2 == 0 ? byte & 15 : byte >> 4));
      quads[(quad * kTileKeys + key) * 4 + c % 8 / 2] = static_cast<uint8_t>(static_cast<int>(2 * value) + kOffset);
    }
  }
}

#else

// words[i, key] = packed dword i of a group of 32 channels, for four keys.
HWY_INLINE void GatherWords(const KeyRow* rows, int64_t group, uint32_t* words) {
  const hn::CappedTag<uint32_t, 4> d;
  const hn::CappedTag<uint64_t, 2> pair;
  const hn::CappedTag<uint8_t, 16> bytes;
  const auto key0 = hn::BitCast(d, hn::LoadU(bytes, rows[0].values + group * 16));
  const auto key1 = hn::BitCast(d, hn::LoadU(bytes, rows[1].values + group * 16));
  const auto key2 = hn::BitCast(d, hn::LoadU(bytes, rows[2].values + group * 16));
  const auto key3 = hn::BitCast(d, hn::LoadU(bytes, rows[3].values + group * 16));
  const auto low01 = hn::BitCast(pair, hn::InterleaveLower(d, key0, key1));
  const auto low23 = hn::BitCast(pair, hn::InterleaveLower(d, key2, key3));
  const auto high01 = hn::BitCast(pair, hn::InterleaveUpper(d, key0, key1));
  const auto high23 = hn::BitCast(pair, hn::InterleaveUpper(d, key2, key3));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pair, low01, low23)), d, words);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pair, low01, low23)), d, words + kTileKeys);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(pair, high01, high23)), d, words + 2 * kTileKeys);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(pair, high01, high23)), d, words + 3 * kTileKeys);
}

void FillTile(const KeyRow* rows, int64_t width, uint8_t* quads) {
  alignas(16) static constexpr uint8_t kDoubled[16] = {
      kOffset,     kOffset + 1, kOffset + 2, kOffset + 3, kOffset + 4, kOffset + 6, kOffset + 8, kOffset + 12,
      kOffset - 0, kOffset - 1, kOffset - 2, kOffset - 3, kOffset - 4, kOffset - 6, kOffset - 8, kOffset - 12};
  const TagU8 d8;
  const TagU32 d32;
  const auto table = hn::LoadDup128(d8, kDoubled);
  const auto nibble = hn::Set(d8, 15);
  HWY_ALIGN uint32_t words[4 * kTileKeys];
  for (int64_t group = 0; group < width / kGroup; ++group) {
    for (int64_t key = 0; key < kTileKeys; key += 4) GatherWords(rows + key, group, words + key);
    for (int64_t word = 0; word < 4; ++word) {
      for (int64_t key = 0; key < kTileKeys; key += kLanes) {
        const auto packed = hn::Load(d32, words + word * kTileKeys + key);
        const auto low = hn::And(hn::BitCast(d8, packed), nibble);
        const auto high = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(packed)), nibble);
        // Quad 2i of a packed dword i holds its low nibbles, quad 2i + 1 its high ones.
        uint8_t* to = quads + ((group * kGroupQuads + 2 * word) * kTileKeys + key) * 4;
        hn::Store(hn::TableLookupBytes(table, low), d8, to);
        hn::Store(hn::TableLookupBytes(table, high), d8, to + kTileKeys * 4);
      }
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

// scales [groups, kTileKeys]
void FillTileScales(const KeyRow* rows, int64_t groups, float* scales) {
  for (int64_t group = 0; group < groups; ++group) {
    for (int64_t key = 0; key < kTileKeys; ++key) {
      scales[group * kTileKeys + key] = std::bit_cast<float>(uint32_t{rows[key].scales[group]} << 23);
    }
  }
}

void FillIndexPanel(const KeyRow* HWY_RESTRICT rows, int64_t count, int64_t width, uint8_t* HWY_RESTRICT panel) {
  for (int64_t first = 0; first < count; first += kTileKeys, panel += TileBytes(width)) {
    const KeyRow* tile = rows + first;
    KeyRow rest[kTileKeys];
    if (first + kTileKeys > count) {
      // An incomplete tile repeats the last key; nobody reads those scores.
      for (int64_t key = 0; key < kTileKeys; ++key) rest[key] = rows[std::min(first + key, count - 1)];
      tile = rest;
    }
    FillTile(tile, width, panel);
    FillTileScales(tile, width / kGroup, reinterpret_cast<float*>(panel + kTileKeys * width));
  }
}

void FillIndexQuery(const float* HWY_RESTRICT q, const float* HWY_RESTRICT head_weights, int64_t heads, int64_t width,
                    uint8_t* HWY_RESTRICT query) {
  const Tag d;
  const TagI32 di;
  const TagU32 du;
  const QueryLayout<uint8_t> layout(query, heads, width);
  const int64_t groups = width / kGroup;
  std::memset(query, 0, static_cast<size_t>(layout.Bytes(heads, width)));
  std::copy_n(head_weights, heads, layout.weights);
  for (int64_t part = 0; part < heads * groups; ++part) {
    const float* x = q + part * kGroup;
    const auto smallest = hn::Set(d, 6.0f * 0x1p-126f);
    const auto amax = hn::Max(GroupAbsMax<kGroup>(d, x), smallest);
    const auto scale = CeilPowerOfTwo(d, hn::Mul(amax, hn::Set(d, 1.0f / 6)));
    // 1 / scale: the exponent byte mirrored at 127.
    const auto inverse = hn::BitCast(d, hn::Sub(hn::Set(du, 254u << 23), hn::BitCast(du, scale)));
    HWY_ALIGN int32_t doubled[kGroup];
    for (int64_t i = 0; i < kGroup; i += kLanes) {
      const auto value = hn::Mul(RoundToGrid<1>(d, hn::LoadU(d, x + i), scale), inverse);
      const auto integer = hn::ConvertTo(di, hn::Add(value, value));
      // The bounds matter to NaN and infinite input only.
      hn::Store(hn::Max(hn::Min(integer, hn::Set(di, 12)), hn::Set(di, -12)), di, doubled + i);
    }
    int32_t start[2] = {0, 0};
    int32_t* quads = layout.quads + part * kGroupQuads * 2;
    for (int64_t quad = 0; quad < kGroupQuads; ++quad) {
      const int32_t* from = doubled + quad / 2 * 8 + quad % 2;  // channels from[0], from[2], from[4], from[6]
      if (kBytePairs) {
        uint32_t bytes = 0;
        for (int i = 0; i < 4; ++i) bytes |= (static_cast<uint32_t>(from[2 * i]) & 0xff) << (8 * i);
        std::memcpy(quads + 2 * quad, &bytes, 4);
      } else {
        const uint32_t even = (static_cast<uint32_t>(from[0]) & 0xffff) | static_cast<uint32_t>(from[4]) << 16;
        const uint32_t odd = (static_cast<uint32_t>(from[2]) & 0xffff) | static_cast<uint32_t>(from[6]) << 16;
        std::memcpy(quads + 2 * quad, &even, 4);
        std::memcpy(quads + 2 * quad + 1, &odd, 4);
      }
      start[0] -= kOffset * (from[0] + from[2]);
      start[1] -= kOffset * (from[4] + from[6]);
    }
    const uint32_t both = (static_cast<uint32_t>(start[0]) & 0xffff) | static_cast<uint32_t>(start[1]) << 16;
    std::memcpy(layout.starts + part, &both, 4);
    layout.scales[part] = hn::GetLane(scale) * 0.25f;  // both sides were doubled
  }
}

// One tile of keys against all heads.
HWY_INLINE void ScoreTile(const uint8_t* HWY_RESTRICT tile, const QueryLayout<const uint8_t>& query, int64_t heads,
                          int64_t width, float* HWY_RESTRICT scores) {
  const Tag d;
  const int64_t groups = width / kGroup;
  const float* key_scales = reinterpret_cast<const float*>(tile + kTileKeys * width);
  hn::Vec<Tag> score[kTileVectors];
  for (int v = 0; v < kTileVectors; ++v) score[v] = hn::Zero(d);
  for (int64_t head = 0; head < heads; head += kTileHeads) {
    hn::Vec<Tag> dot[kTileHeads][kTileVectors];
    for (int h = 0; h < kTileHeads; ++h) {
      for (int v = 0; v < kTileVectors; ++v) dot[h][v] = hn::Zero(d);
    }
    for (int64_t group = 0; group < groups; ++group) {
      PairSums sums[kTileHeads][kTileVectors];
      for (int h = 0; h < kTileHeads; ++h) {
        const auto start = StartSums(query.starts[(head + h) * groups + group]);
        for (int v = 0; v < kTileVectors; ++v) sums[h][v] = start;
      }
      const uint8_t* quads = tile + group * kGroupQuads * kTileKeys * 4;
      const int32_t* query_quads = query.quads + (head * groups + group) * kGroupQuads * 2;
      for (int64_t quad = 0; quad < kGroupQuads; ++quad) {
        for (int v = 0; v < kTileVectors; ++v) {
          const KeyQuads keys(quads + (quad * kTileKeys + v * kLanes) * 4);
          for (int h = 0; h < kTileHeads; ++h) {
            sums[h][v] = keys.AddTo(sums[h][v], query_quads + (h * groups * kGroupQuads + quad) * 2);
          }
        }
      }
      for (int v = 0; v < kTileVectors; ++v) {
        const auto key_scale = hn::Load(d, key_scales + group * kTileKeys + v * kLanes);
        for (int h = 0; h < kTileHeads; ++h) {
          const auto scale = hn::Mul(key_scale, hn::Set(d, query.scales[(head + h) * groups + group]));
          dot[h][v] = hn::MulAdd(hn::ConvertTo(d, JoinPairs(sums[h][v])), scale, dot[h][v]);
        }
      }
    }
    for (int h = 0; h < kTileHeads; ++h) {
      const auto weight = hn::Set(d, query.weights[head + h]);
      for (int v = 0; v < kTileVectors; ++v) {
        score[v] = hn::Add(score[v], hn::Mul(weight, hn::Max(dot[h][v], hn::Zero(d))));
      }
    }
  }
  const auto lowest = hn::Set(d, std::numeric_limits<float>::lowest());
  for (int v = 0; v < kTileVectors; ++v) {
    hn::Store(hn::IfThenElse(hn::Gt(score[v], lowest), score[v], lowest), d, scores + v * kLanes);
  }
}

void ScoreIndexPanel(const uint8_t* HWY_RESTRICT panel, int64_t count, const uint8_t* HWY_RESTRICT query, int64_t heads,
                     int64_t width, float* HWY_RESTRICT scores) {
  const QueryLayout<const uint8_t> layout(query, heads, width);
  for (int64_t first = 0; first < count; first += kTileKeys, panel += TileBytes(width)) {
    ScoreTile(panel, layout, heads, width, scores + first);
  }
}

int64_t IndexPanelBytes(int64_t width) { return kIndexPanelKeys / kTileKeys * TileBytes(width); }

int64_t AppendAbove(const float* HWY_RESTRICT scores, int64_t count, float bar, const int32_t* HWY_RESTRICT rows,
                    int64_t first, uint64_t* HWY_RESTRICT entries) {
  const Tag d;
  const auto bars = hn::Set(d, bar);
  int64_t appended = 0;
  for (int64_t i = 0; i < count; i += kLanes) {
    // Reads past `count` stay inside the panel's scores and are masked away.
    const auto above = hn::And(hn::Gt(hn::Load(d, scores + i), bars), hn::FirstN(d, static_cast<size_t>(count - i)));
    if (hn::AllFalse(d, above)) continue;
    uint8_t bytes[8] = {};
    hn::StoreMaskBits(d, above, bytes);
    uint32_t bits = bytes[0] | static_cast<uint32_t>(bytes[1]) << 8;
    for (; bits != 0; bits &= bits - 1) {
      const int64_t at = i + std::countr_zero(bits);
      entries[appended++] = TopKList::Entry(scores[at], rows != nullptr ? rows[at] : first + at);
    }
  }
  return appended;
}

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {
namespace {

HWY_EXPORT(IndexPanelBytes);
HWY_EXPORT(FillIndexPanel);
HWY_EXPORT(FillIndexQuery);
HWY_EXPORT(ScoreIndexPanel);
HWY_EXPORT(AppendAbove);

}  // namespace

int64_t IndexPanelBytes(int64_t width) { return HWY_DYNAMIC_DISPATCH(IndexPanelBytes)(width); }

int64_t IndexQueryBytes(int64_t heads, int64_t width) { return QueryLayout<uint8_t>::Bytes(heads, width); }

void FillIndexPanel(const KeyRow* rows, int64_t count, int64_t width, uint8_t* panel) {
  HWY_DYNAMIC_DISPATCH(FillIndexPanel)(rows, count, width, panel);
}

void FillIndexQuery(const float* q, const float* head_weights, int64_t heads, int64_t width, uint8_t* query) {
  HWY_DYNAMIC_DISPATCH(FillIndexQuery)(q, head_weights, heads, width, query);
}

void ScoreIndexPanel(const uint8_t* panel, int64_t count, const uint8_t* query, int64_t heads, int64_t width,
                     float* scores) {
  HWY_DYNAMIC_DISPATCH(ScoreIndexPanel)(panel, count, query, heads, width, scores);
}

int64_t AppendAbove(const float* scores, int64_t count, float bar, const int32_t* rows, int64_t first,
                    uint64_t* entries) {
  return HWY_DYNAMIC_DISPATCH(AppendAbove)(scores, count, bar, rows, first, entries);
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
