// Decoding one dot-order chunk (128 columns of one weight row) into registers, per target and format.
//
// Per-target header: included by HWY_FOREACH_TARGET sources. A decoder's Stage() prepares the 16 lanes of a chunk once;
// Decode() then yields, for a "part" of them (Lanes(d) lanes starting at part * Lanes(d)), eight vectors in dot order:
// vector s holds column 8l + kDotColumnOrder[s] of lane l, divided by the decoder's constant power of two kFactor.
// ScaleLanes() yields the power-of-two factor of each lane. The E4M3 codes 0x7f and 0xff, NaN in that format and absent
// from sound checkpoints, decode to +-480.
//
// Thread-safety: pure functions; a decoder object is read-only once made.
#include "hwy/highway.h"

#if defined(DEEPINFER_OPS_CPU_WEIGHT_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_OPS_CPU_WEIGHT_DECODE_INL_H_
#undef DEEPINFER_OPS_CPU_WEIGHT_DECODE_INL_H_
#else
#define DEEPINFER_OPS_CPU_WEIGHT_DECODE_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "base/weight_matrix.h"
#include "ops/dot_order.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sixteen logical lanes on any vector width; wider vectors are capped.
using LaneTag = hn::CappedTag<float, 16>;
using LaneVec = hn::Vec<LaneTag>;

#undef DEEPINFER_WIDE_PERMUTE
#undef DEEPINFER_BYTE_TABLES
#if HWY_TARGET <= HWY_AVX3
#define DEEPINFER_WIDE_PERMUTE 1
#else
#define DEEPINFER_WIDE_PERMUTE 0
#endif
#if HWY_TARGET <= HWY_AVX3_DL
#define DEEPINFER_BYTE_TABLES 1
#else
#define DEEPINFER_BYTE_TABLES 0
#endif

// 2^(byte - 127) * 2^shift for the four scale bytes of a chunk, spread over lanes 4g..4g+3. Byte 0 is 2^-127.
template <class D>
HWY_INLINE hn::Vec<D> ScaleLanes(D d, const uint8_t* scales, int part, float factor) {
  const hn::Rebind<int32_t, D> di;
  const size_t N = hn::Lanes(d);
#if DEEPINFER_WIDE_PERMUTE
  (void)part;
  (void)N;
  int four;
  std::memcpy(&four, scales, 4);
  // Byte g rotated to the exponent field of lanes 4g..4g+3.
  const __m512i rotate = _mm512_setr_epi32(23, 23, 23, 23, 15, 15, 15, 15, 7, 7, 7, 7, 31, 31, 31, 31);
  const __m512i bits =
      _mm512_and_si512(_mm512_rolv_epi32(_mm512_set1_epi32(four), rotate), _mm512_set1_epi32(0x7f800000));
  const hn::Vec<D> scale = hn::BitCast(d, hn::Vec<decltype(di)>{_mm512_max_epi32(bits, _mm512_set1_epi32(0x00400000))});
#else
  HWY_ALIGN int32_t lanes[16];
  for (size_t i = 0; i < N; ++i) {
    const int32_t bits = static_cast<int32_t>(scales[(static_cast<size_t>(part) * N + i) / 4]) << 23;
    lanes[i] = bits != 0 ? bits : 0x00400000;
  }
  const hn::Vec<D> scale = hn::BitCast(d, hn::Load(di, lanes));
#endif
  return factor == 1.0f ? scale : hn::Mul(scale, hn::Set(d, factor));
}

// Formats that are decoded straight from memory.
struct Unstaged {
  const uint8_t* chunk;
};

struct F32Decoder {
  using Staged = Unstaged;
  static HWY_INLINE void Stage(const uint8_t* chunk, Staged& staged) { staged.chunk = chunk; }
  static constexpr int64_t kChunkBytes = 512;
  static constexpr bool kScaled = false;
  static constexpr float kFactor = 1.0f;
  template <class D>
  static HWY_INLINE void Decode(D d, const Staged& staged, int part, hn::Vec<D>* HWY_RESTRICT w) {
    const uint8_t* chunk = staged.chunk;
    const size_t N = hn::Lanes(d);
#if DEEPINFER_WIDE_PERMUTE
    (void)part;
    (void)N;
    // Lane l owns eight floats: a 16 x 8 transpose. First four columns of four lanes side by side, then 4x4 blocks of
    // 128 bits.
    const __m512i low = _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(4));
    __m512 columns[8];
    for (int half = 0; half < 2; ++half) {
      __m512 lanes4[4];  // 128-bit block b: column 4 * half + b of lanes 4i .. 4i+3
      for (int i = 0; i < 4; ++i) {
        lanes4[i] = _mm512_permutex2var_ps(_mm512_loadu_ps(chunk + 128 * i), half == 0 ? low : high,
                                           _mm512_loadu_ps(chunk + 128 * i + 64));
      }
      const __m512 a = _mm512_shuffle_f32x4(lanes4[0], lanes4[1], 0x44);
      const __m512 b = _mm512_shuffle_f32x4(lanes4[2], lanes4[3], 0x44);
      const __m512 c = _mm512_shuffle_f32x4(lanes4[0], lanes4[1], 0xee);
      const __m512 e = _mm512_shuffle_f32x4(lanes4[2], lanes4[3], 0xee);
      columns[4 * half] = _mm512_shuffle_f32x4(a, b, 0x88);
      columns[4 * half + 1] = _mm512_shuffle_f32x4(a, b, 0xdd);
      columns[4 * half + 2] = _mm512_shuffle_f32x4(c, e, 0x88);
      columns[4 * half + 3] = _mm512_shuffle_f32x4(c, e, 0xdd);
    }
    for (int s = 0; s < 8; ++s) w[s] = hn::Vec<D>{columns[kDotColumnOrder[s]]};
#else
    HWY_ALIGN float lanes[16];
    for (int s = 0; s < 8; ++s) {
      for (size_t i = 0; i < N; ++i) {
        std::memcpy(&lanes[i], chunk + 4 * (8 * (static_cast<size_t>(part) * N + i) + kDotColumnOrder[s]), 4);
      }
      w[s] = hn::Load(d, lanes);
    }
#endif
  }
};

struct Bf16Decoder {
  using Staged = Unstaged;
  static HWY_INLINE void Stage(const uint8_t* chunk, Staged& staged) { staged.chunk = chunk; }
  static constexpr int64_t kChunkBytes = 256;
  static constexpr bool kScaled = false;
  static constexpr float kFactor = 1.0f;
  template <class D>
  static HWY_INLINE void Decode(D d, const Staged& staged, int part, hn::Vec<D>* HWY_RESTRICT w) {
    const uint8_t* chunk = staged.chunk;
    const size_t N = hn::Lanes(d);
#if DEEPINFER_WIDE_PERMUTE
    (void)part;
    (void)N;
    // Lane l owns 16 bytes. Gather dword j (columns 8l+2j, 8l+2j+1) of all lanes from the four registers: a 4x4
    // transpose in two rounds of two-source permutes.
    const __m512i a = _mm512_loadu_si512(chunk);
    const __m512i b = _mm512_loadu_si512(chunk + 64);
    const __m512i c = _mm512_loadu_si512(chunk + 128);
    const __m512i e = _mm512_loadu_si512(chunk + 192);
    // Dwords j of lanes 0..7 sit at 4l + j in a, b.
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(2));
    const __m512i ab01 = _mm512_permutex2var_epi32(a, first, b);
    const __m512i ab23 = _mm512_permutex2var_epi32(a, second, b);
    const __m512i ce01 = _mm512_permutex2var_epi32(c, first, e);
    const __m512i ce23 = _mm512_permutex2var_epi32(c, second, e);
    const __m512i j[4] = {_mm512_shuffle_i64x2(ab01, ce01, 0x44), _mm512_shuffle_i64x2(ab01, ce01, 0xee),
                          _mm512_shuffle_i64x2(ab23, ce23, 0x44), _mm512_shuffle_i64x2(ab23, ce23, 0xee)};
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    for (int s = 0; s < 8; ++s) {
      const int column = kDotColumnOrder[s];
      const __m512i pair = j[column / 2];
      w[s] =
          hn::Vec<D>{_mm512_castsi512_ps(column % 2 == 0 ? _mm512_slli_epi32(pair, 16) : _mm512_and_si512(pair, high))};
    }
#else
    const hn::Rebind<int32_t, D> di;
    HWY_ALIGN int32_t lanes[16];
    for (int s = 0; s < 8; ++s) {
      for (size_t i = 0; i < N; ++i) {
        uint16_t bits;
        std::memcpy(&bits, chunk + 2 * (8 * (static_cast<size_t>(part) * N + i) + kDotColumnOrder[s]), 2);
        lanes[i] = static_cast<int32_t>(static_cast<uint32_t>(bits) << 16);
      }
      w[s] = hn::BitCast(d, hn::Load(di, lanes));
    }
#endif
  }
};

// E4M3 bytes. With byte tables: the two high bytes of the F32 are looked up. Otherwise through F16, whose exponent
// field holds E4M3's (value * 2^-8), which also makes subnormals exact.
struct F8Decoder {
  static constexpr int64_t kChunkBytes = 128;
  static constexpr bool kScaled = true;
#if DEEPINFER_BYTE_TABLES
  static constexpr float kFactor = 1.0f;
  // High and low bytes of the F32 values, [0] of columns 8l+4 .. 8l+7 of lane l, [1] of 8l .. 8l+3. In each 128-bit
  // block: the first two columns of its four lanes, then the other two.
  struct Staged {
    __m512i high[2], low[2];
  };
  __m512i high0, high1, low0, low1;
  HWY_INLINE F8Decoder() {
    alignas(64) uint8_t high[128];
    alignas(64) uint8_t low[128];
    for (int code = 0; code < 128; ++code) {
      uint32_t bits = 0;
      if (code >= 8) {
        bits = (static_cast<uint32_t>(code) << 20) + (120u << 23);
      } else if (code != 0) {
        const float value = static_cast<float>(code) * 0x1p-9f;
        std::memcpy(&bits, &value, 4);
      }
      high[code] = static_cast<uint8_t>(bits >> 24);
      low[code] = static_cast<uint8_t>(bits >> 16);
    }
    high0 = _mm512_load_si512(high);
    high1 = _mm512_load_si512(high + 64);
    low0 = _mm512_load_si512(low);
    low1 = _mm512_load_si512(low + 64);
  }
  HWY_INLINE void Stage(const uint8_t* chunk, Staged& staged) const {
    const __m512i a = _mm512_loadu_si512(chunk);
    const __m512i b = _mm512_loadu_si512(chunk + 64);
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i pairs = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    for (int half = 0; half < 2; ++half) {
      const __m512i codes = _mm512_shuffle_epi8(_mm512_permutex2var_epi32(a, half == 0 ? odd : even, b), pairs);
      staged.low[half] = _mm512_permutex2var_epi8(low0, codes, low1);
      // high | (codes & 0x80)
      staged.high[half] =
          _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(high0, codes, high1), codes, _mm512_set1_epi8(-128), 0xf8);
    }
  }
  template <class D>
  HWY_INLINE void Decode(D, const Staged& staged, int, hn::Vec<D>* HWY_RESTRICT w) const {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    for (int half = 0; half < 2; ++half) {
      // Interleaved bytes: two columns of a lane in its dword.
      const __m512i first = _mm512_unpacklo_epi8(staged.low[half], staged.high[half]);
      const __m512i second = _mm512_unpackhi_epi8(staged.low[half], staged.high[half]);
      w[half] = hn::Vec<D>{_mm512_castsi512_ps(_mm512_slli_epi32(first, 16))};
      w[half + 2] = hn::Vec<D>{_mm512_castsi512_ps(_mm512_and_si512(first, upper))};
      w[half + 4] = hn::Vec<D>{_mm512_castsi512_ps(_mm512_slli_epi32(second, 16))};
      w[half + 6] = hn::Vec<D>{_mm512_castsi512_ps(_mm512_and_si512(second, upper))};
    }
  }
#else
  static constexpr float kFactor = 256.0f;
  struct Staged {
    HWY_ALIGN uint16_t half[8][16];  // F16 bits of column 8l + k of lane l
  };
  static HWY_INLINE void Stage(const uint8_t* chunk, Staged& staged) {
#if HWY_TARGET == HWY_SCALAR
    for (size_t i = 0; i < 16; ++i) {
      for (size_t k = 0; k < 8; ++k) {
        const uint32_t byte = chunk[8 * i + k];
        staged.half[k][i] = static_cast<uint16_t>(((byte & 0x80) << 8) | ((byte & 0x7f) << 7));
      }
    }
#else
    // Byte k of each lane's even dword and byte k of its odd dword form one 16-bit lane after a stride-4 load.
    const hn::CappedTag<uint8_t, 32> d8;
    const hn::Repartition<int16_t, decltype(d8)> d16;
    const auto mask = hn::Set(d16, static_cast<int16_t>(0xbf80));
    for (size_t i = 0; i < 16; i += hn::Lanes(d16)) {
      hn::Vec<decltype(d8)> v[4];
      hn::LoadInterleaved4(d8, chunk + 8 * i, v[0], v[1], v[2], v[3]);
      for (size_t k = 0; k < 4; ++k) {
        const auto both = hn::BitCast(d16, v[k]);
        hn::Store(hn::And(hn::ShiftRight<1>(hn::ShiftLeft<8>(both)), mask), d16,
                  reinterpret_cast<int16_t*>(&staged.half[k][i]));
        hn::Store(hn::And(hn::ShiftRight<1>(both), mask), d16, reinterpret_cast<int16_t*>(&staged.half[k + 4][i]));
      }
    }
#endif
  }
  template <class D>
  HWY_INLINE void Decode(D d, const Staged& staged, int part, hn::Vec<D>* HWY_RESTRICT w) const {
    const hn::Rebind<hwy::float16_t, D> dh;
    const size_t first = static_cast<size_t>(part) * hn::Lanes(d);
    for (int s = 0; s < 8; ++s) {
      w[s] = hn::PromoteTo(
          d, hn::Load(dh, reinterpret_cast<const hwy::float16_t*>(&staged.half[kDotColumnOrder[s]][first])));
    }
  }
#endif
};

// E2M1 nibbles. With 16-lane permutes the value is one table look-up by the nibble; otherwise twice the value is looked
// up as a byte and converted.
struct F4Decoder {
  static constexpr int64_t kChunkBytes = 64;
  static constexpr bool kScaled = true;
#if DEEPINFER_WIDE_PERMUTE
  static constexpr float kFactor = 1.0f;
  using Staged = Unstaged;
  static HWY_INLINE void Stage(const uint8_t* chunk, Staged& staged) { staged.chunk = chunk; }
  template <class D>
  HWY_INLINE void Decode(D, const Staged& staged, int, hn::Vec<D>* HWY_RESTRICT w) const {
    const uint8_t* chunk = staged.chunk;
    const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f,
                                        -2.0f, -3.0f, -4.0f, -6.0f);
    const __m512i nibbles = _mm512_loadu_si512(chunk);
    for (int s = 0; s < 8; ++s) {
      const __m512i index = _mm512_srli_epi32(nibbles, static_cast<unsigned>(4 * kDotColumnOrder[s]));
      w[s] = hn::Vec<D>{_mm512_permutexvar_ps(index, table)};  // reads the low four bits of each index
    }
  }
#else
  static constexpr float kFactor = 0.5f;
  struct Staged {
    HWY_ALIGN int8_t twice[8][16];  // twice the value of column 8l + k of lane l
  };
  static HWY_INLINE void Stage(const uint8_t* chunk, Staged& staged) {
    HWY_ALIGN static constexpr int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
#if HWY_TARGET == HWY_SCALAR
    for (size_t i = 0; i < 16; ++i) {
      for (size_t j = 0; j < 4; ++j) {
        staged.twice[2 * j][i] = kTwice[chunk[4 * i + j] & 15];
        staged.twice[2 * j + 1][i] = kTwice[chunk[4 * i + j] >> 4];
      }
    }
#else
    const hn::FixedTag<uint8_t, 16> d8;
    const hn::FixedTag<int8_t, 16> s8;
    const auto table = hn::Load(s8, kTwice);
    const auto low = hn::Set(d8, 15);
    hn::Vec<decltype(d8)> v[4];
    hn::LoadInterleaved4(d8, chunk, v[0], v[1], v[2], v[3]);
    for (size_t j = 0; j < 4; ++j) {
      hn::Store(hn::TableLookupBytes(table, hn::BitCast(s8, hn::And(v[j], low))), s8, staged.twice[2 * j]);
      hn::Store(hn::TableLookupBytes(table, hn::BitCast(s8, hn::ShiftRight<4>(v[j]))), s8, staged.twice[2 * j + 1]);
    }
#endif
  }
  template <class D>
  HWY_INLINE void Decode(D d, const Staged& staged, int part, hn::Vec<D>* HWY_RESTRICT w) const {
    const hn::Rebind<int32_t, D> di;
    const hn::Rebind<int8_t, D> db;
    const size_t first = static_cast<size_t>(part) * hn::Lanes(d);
    for (int s = 0; s < 8; ++s) {
      w[s] = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(db, &staged.twice[kDotColumnOrder[s]][first])));
    }
  }
#endif
};

}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DEEPINFER_OPS_CPU_WEIGHT_DECODE_INL_H_
