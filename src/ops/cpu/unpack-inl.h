// De-quantising packed cache rows to F32 on Highway vectors, exactly (spec c.7).
//
// Split order: within each 32 channels the even ones come first, then the odd ones (0, 2, .. 30, 1, 3, .. 31). Packed
// bytes hold neighbours side by side, so this is the order in which they unpack without shuffles; whoever writes a
// result back restores the natural order once per row with an interleaving store.
//
// Both value formats go through half precision: their bits, shifted into place, are the half with the same mantissa and
// an exponent that is too small by a constant, and the hardware's half-to-single conversion handles subnormals. The
// constant is folded into the scale: 2^8 for E4M3 (exponent bias 15 - 7), 2^14 for E2M1 (15 - 1).
//
// Contract: `d` is a float tag of at most 16 lanes. Rows hold no NaN codes (StoreRows writes none for finite input); as
// values they would read as +-480 times the scale, as scales as a large power of two. Thread-safety: pure functions.
// Include from a file that foreach_target.h compiles once per instruction set.
#if defined(DEEPINFER_OPS_CPU_UNPACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_OPS_CPU_UNPACK_INL_H_
#undef DEEPINFER_OPS_CPU_UNPACK_INL_H_
#else
#define DEEPINFER_OPS_CPU_UNPACK_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/dtype.h"
#include "hwy/highway.h"
#include "ops/packed_rows.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer {
namespace cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

/// One row of `width` channels (a multiple of 32) to `out` in split order.
template <class D>
void UnpackRow(D /*d*/, RowFormat format, const uint8_t* values, const uint8_t* scales, int64_t width, float* out) {
  for (int64_t c = 0; c < width; ++c) {
    float* to = out + c / 32 * 32 + c % 32 / 2 + c % 2 * 16;
    const float e2m1 = E2m1ToFloat(static_cast<uint8_t>(c % 2 == 0 ? values[c / 2] & 15 : values[c / 2] >> 4));
    switch (format) {
      case RowFormat::kWindowFp8:
        *to = E4m3ToFloat(values[c]) * E8m0ToFloat(scales[c / 32]);
        break;
      case RowFormat::kCompressedFp4:
        *to = e2m1 * E4m3ToFloat(scales[c / 16]);
        break;
      case RowFormat::kIndexFp4:
        *to = e2m1 * E8m0ToFloat(scales[c / 32]);
        break;
    }
  }
}

#else

/// 2^(byte - 127 + shift) as F32; results beyond the format's range become its largest power of two.
HWY_INLINE float ShiftedE8m0(uint8_t byte, uint32_t shift) {
  return std::bit_cast<float>(std::min<uint32_t>(byte + shift, 254) << 23);
}

/// Halves of sign and exponent-mantissa bits that stand at the top of each 16-bit lane: `kDrop` zero exponent bits are
/// inserted below the sign. kKeep masks what belongs to the element.
template <int kDrop, uint16_t kKeep, class D, class V16>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> WidenTopBits(D d, V16 top) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<int16_t, D> di16;
  const hn::Rebind<hwy::float16_t, D> dh;
  const auto half = hn::And(hn::ShiftRight<kDrop>(hn::BitCast(di16, top)), hn::Set(di16, static_cast<int16_t>(kKeep)));
  return hn::PromoteTo(d, hn::BitCast(dh, half));
}

/// 32 E4M3 channels, all times `scale` (which includes 2^8).
template <class D>
HWY_INLINE void UnpackE4m3Block(D d, const uint8_t* HWY_RESTRICT bytes, float scale, float* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<uint16_t, D> d16;
  const hn::Repartition<uint8_t, decltype(d16)> d8;
  constexpr size_t kLanes = hn::MaxLanes(D());
  const auto factor = hn::Set(d, scale);
  for (size_t i = 0; i < 16; i += kLanes) {
    const auto pairs = hn::BitCast(d16, hn::LoadU(d8, bytes + 2 * i));
    hn::Store(hn::Mul(WidenTopBits<1, 0xbf80>(d, hn::ShiftLeft<8>(pairs)), factor), d, out + i);
    hn::Store(hn::Mul(WidenTopBits<1, 0xbf80>(d, pairs), factor), d, out + 16 + i);
  }
}

/// 32 E2M1 channels: bytes 0..7 (channels 0..15) times `low`, the rest times `high` (which include 2^14).
template <class D>
HWY_INLINE void UnpackE2m1Block(D d, const uint8_t* HWY_RESTRICT bytes, float low, float high,
                                float* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint8_t, D> d8;
  constexpr size_t kLanes = hn::MaxLanes(D());
  for (size_t i = 0; i < 16; i += kLanes) {
    auto factor = hn::Set(d, i < 8 ? low : high);
    if constexpr (kLanes == 16) factor = hn::ConcatUpperLower(d, hn::Set(d, high), factor);
    const auto pairs = hn::PromoteTo(d16, hn::LoadU(d8, bytes + i));
    hn::Store(hn::Mul(WidenTopBits<3, 0x8e00>(d, hn::ShiftLeft<12>(pairs)), factor), d, out + i);
    hn::Store(hn::Mul(WidenTopBits<3, 0x8e00>(d, hn::ShiftLeft<8>(pairs)), factor), d, out + 16 + i);
  }
}

/// 16 E4M3 values times 2^14, the scales of 256 channels of kCompressedFp4.
template <class D>
HWY_INLINE void WidenE4m3Scales(D d, const uint8_t* HWY_RESTRICT bytes, float* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint8_t, D> d8;
  for (size_t i = 0; i < 16; i += hn::Lanes(d)) {
    const auto top = hn::ShiftLeft<8>(hn::PromoteTo(d16, hn::LoadU(d8, bytes + i)));
    hn::Store(hn::Mul(WidenTopBits<1, 0xbf80>(d, top), hn::Set(d, 4194304.0f)), d, out + i);  // 2^(8 + 14)
  }
}

/// One row of `width` channels (a multiple of 32) to `out` in split order; `out` is 64-byte aligned.
template <class D>
HWY_INLINE void UnpackRow(D d, RowFormat format, const uint8_t* HWY_RESTRICT values,
                          const uint8_t* HWY_RESTRICT scale_bytes, int64_t width, float* HWY_RESTRICT out) {
  switch (format) {
    case RowFormat::kWindowFp8:
      for (int64_t c = 0; c < width; c += 32) {
        UnpackE4m3Block(d, values + c, ShiftedE8m0(scale_bytes[c / 32], 8), out + c);
      }
      return;
    case RowFormat::kCompressedFp4:
      for (int64_t first = 0; first < width; first += 256) {
        const int64_t end = std::min(first + 256, width);
        uint8_t bytes[16] = {};
        HWY_ALIGN float scales[16];
        if (end - first == 256) {
          WidenE4m3Scales(d, scale_bytes + first / 16, scales);
        } else {
          for (int64_t i = 0; i < (end - first) / 16; ++i) bytes[i] = scale_bytes[first / 16 + i];
          WidenE4m3Scales(d, bytes, scales);
        }
        for (int64_t c = first; c < end; c += 32) {
          UnpackE2m1Block(d, values + c / 2, scales[(c - first) / 16], scales[(c - first) / 16 + 1], out + c);
        }
      }
      return;
    case RowFormat::kIndexFp4:
      for (int64_t c = 0; c < width; c += 32) {
        const float scale = ShiftedE8m0(scale_bytes[c / 32], 14);
        UnpackE2m1Block(d, values + c / 2, scale, scale, out + c);
      }
      return;
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace deepinfer
HWY_AFTER_NAMESPACE();

#endif  // DEEPINFER_OPS_CPU_UNPACK_INL_H_
