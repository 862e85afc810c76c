#include "ops/cpu/pack.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/pack.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/cpu/quantise-inl.h"
#include "ops/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using WordTag = hn::RebindToUnsigned<RowTag>;

// The E8M0 byte of a power of two.
HWY_INLINE uint8_t PowerByte(RowVec power) {
  return static_cast<uint8_t>(hn::GetLane(hn::ShiftRight<23>(hn::BitCast(WordTag(), power))));
}

// 1 / power for a normal power of two whose inverse is normal too.
HWY_INLINE RowVec InversePower(RowVec power) {
  const WordTag du;
  return hn::BitCast(RowTag(), hn::Sub(hn::Set(du, 254u << 23), hn::BitCast(du, power)));
}

// Codes of a small float format with `kMantissaBits` and exponent bias `kBias`: x (of at most its largest value, up to
// rounding) to sign bit kSign and magnitude code, in 32-bit lanes.
template <int kMantissaBits, int kBias, uint32_t kSign>
HWY_INLINE hn::Vec<WordTag> Codes(RowVec x) {
  const RowTag d;
  const WordTag du;
  const hn::RebindToSigned<RowTag> di;
  constexpr uint32_t kSmallestBits = static_cast<uint32_t>(127 + 1 - kBias) << 23;  // 2^(1 - bias): smallest normal
  const auto smallest = hn::BitCast(d, hn::Set(du, kSmallestBits));
  const auto rounded = hn::Abs(RoundToGrid<kMantissaBits>(d, x, smallest));
  // From the smallest normal on the code is the F32's top bits, re-biased; below, a count of steps.
  const auto normal = hn::Sub(hn::ShiftRight<23 - kMantissaBits>(hn::BitCast(du, rounded)),
                              hn::Set(du, static_cast<uint32_t>(127 - kBias) << kMantissaBits));
  constexpr float kStepsPerUnit = static_cast<float>(1 << (kBias - 1 + kMantissaBits));
  const auto steps = hn::BitCast(du, hn::ConvertTo(di, hn::Mul(rounded, hn::Set(d, kStepsPerUnit))));
  const auto is_normal = hn::RebindMask(du, hn::Ge(rounded, smallest));
  const auto negative = hn::ShiftRight<31>(hn::BitCast(du, x));
  return hn::Or(hn::IfThenElse(is_normal, normal, steps), hn::Mul(negative, hn::Set(du, kSign)));
}
HWY_INLINE hn::Vec<WordTag> E4m3Codes(RowVec x) { return Codes<3, 7, 0x80>(x); }
HWY_INLINE hn::Vec<WordTag> E2m1Codes(RowVec x) { return Codes<1, 1, 8>(x); }

HWY_INLINE void StoreBytes(hn::Vec<WordTag> codes, uint8_t* bytes) {
  const hn::RebindToSigned<RowTag> di;
  const hn::Rebind<uint8_t, RowTag> d8;
  hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di, codes)), d8, bytes);
}

// 16 nibbles, one per byte, to 8 bytes; element 2i goes to the low nibble of byte i.
HWY_INLINE void StoreNibbles(const uint8_t* codes, uint8_t* values) {
  for (int half = 0; half < 2; ++half) {
    uint64_t w;
    std::memcpy(&w, codes + 8 * half, 8);
    w = (w | w >> 4) & 0x00ff00ff00ff00ffull;
    w = (w | w >> 8) & 0x0000ffff0000ffffull;
    const uint32_t packed = static_cast<uint32_t>(w | w >> 16);
    std::memcpy(values + 4 * half, &packed, 4);
  }
}

void PackWindowRow(const float* HWY_RESTRICT x, int64_t channels, uint8_t* values, uint8_t* scales) {
  const RowTag d;
  for (int64_t group = 0; group < channels; group += 32) {
    const RowVec scale = Fp8GroupScale(d, GroupAbsMax<32>(d, x + group));
    const RowVec inverse = InversePower(scale);
    scales[group / 32] = PowerByte(scale);
    for (int64_t c = group; c < group + 32; c += kRowLanes) {
      StoreBytes(E4m3Codes(hn::Mul(hn::LoadU(d, x + c), inverse)), values + c);
    }
  }
}

void PackIndexRow(const float* HWY_RESTRICT x, int64_t channels, uint8_t* values, uint8_t* scales) {
  const RowTag d;
  for (int64_t group = 0; group < channels; group += 32) {
    const RowVec scale = IndexGroupScale(d, GroupAbsMax<32>(d, x + group));
    const RowVec inverse = InversePower(scale);
    scales[group / 32] = PowerByte(scale);
    HWY_ALIGN uint8_t codes[32];
    for (int64_t c = 0; c < 32; c += kRowLanes) {
      StoreBytes(E2m1Codes(hn::Mul(hn::LoadU(d, x + group + c), inverse)), codes + c);
    }
    StoreNibbles(codes, values + group / 2);
    StoreNibbles(codes + 16, values + group / 2 + 8);
  }
}

void PackCompressedRow(const float* HWY_RESTRICT x, int64_t channels, uint8_t* values, uint8_t* scales) {
  const RowTag d;
  const RowVec six = hn::Set(d, 6.0f);
  for (int64_t group = 0; group < channels; group += 16) {
    const RowVec amax = GroupAbsMax<16>(d, x + group);
    const RowVec wanted = hn::Div(hn::Max(amax, hn::Set(d, 6.0f * 0x1p-9f)), six);
    const RowVec clamped = hn::Min(wanted, hn::Set(d, 448.0f));
    const RowVec scale = RoundToGrid<3>(d, clamped, hn::Set(d, 0x1p-6f));
    scales[group / 16] = static_cast<uint8_t>(hn::GetLane(E4m3Codes(clamped)));
    HWY_ALIGN uint8_t codes[16];
    for (int64_t c = 0; c < 16; c += kRowLanes) {
      // The scale may have been rounded down, or have met its largest value: hence the clamp.
      const RowVec ratio = hn::Div(hn::LoadU(d, x + group + c), scale);
      StoreBytes(E2m1Codes(hn::Min(hn::Max(ratio, hn::Neg(six)), six)), codes + c);
    }
    StoreNibbles(codes, values + group / 2);
  }
}

void PackRow(const float* x, const PackedRows& rows, int64_t row) {
  switch (rows.format) {
    case RowFormat::kWindowFp8:
      return PackWindowRow(x, rows.channels, rows.values(row), rows.scales(row));
    case RowFormat::kCompressedFp4:
      return PackCompressedRow(x, rows.channels, rows.values(row), rows.scales(row));
    case RowFormat::kIndexFp4:
      return PackIndexRow(x, rows.channels, rows.values(row), rows.scales(row));
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(PackRow);

void StoreRows(ConstFloatView x, const PackedRows& rows, std::span<const int64_t> destination) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(PackRow);
  for (int64_t t = 0; t < x.rows; ++t) kernel(x.row(t), rows, destination[static_cast<size_t>(t)]);
}

void CopyRows(const PackedRows& from, std::span<const int64_t> source, const PackedRows& to,
              std::span<const int64_t> destination) {
  const RowBytes bytes = PackedRowBytes(from.format, from.channels);
  for (size_t i = 0; i < source.size(); ++i) {
    std::memmove(to.values(destination[i]), from.values(source[i]), static_cast<size_t>(bytes.values));
    std::memmove(to.scales(destination[i]), from.scales(source[i]), static_cast<size_t>(bytes.scales));
  }
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
