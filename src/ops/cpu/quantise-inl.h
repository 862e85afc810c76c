// Rounding to the small float formats on Highway vectors, exact per spec c.1 and c.7.
//
// All scales of c.1 are powers of two, so quantising and de-quantising commute with them: instead of dividing, rounding
// and multiplying back, a value is rounded in place on the grid of its own binade, whose step never falls below the
// scale's smallest step. Rounding itself is one addition: x + 1.5 * 2^k has a unit in the last place of the wanted
// step, and the addition rounds to nearest even.
//
// Contract: `d` is a float tag of at most 16 lanes. Thread-safety: pure functions. Include from a file that
// foreach_target.h compiles once per instruction set.
#if defined(DEEPINFER_OPS_CPU_QUANTISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_OPS_CPU_QUANTISE_INL_H_
#undef DEEPINFER_OPS_CPU_QUANTISE_INL_H_
#else
#define DEEPINFER_OPS_CPU_QUANTISE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer {
namespace cpu {
namespace HWY_NAMESPACE {

/// The largest |x| of `kGroup` consecutive values, in every lane.
template <int kGroup, class D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> GroupAbsMax(D d, const float* HWY_RESTRICT x) {
  namespace hn = hwy::HWY_NAMESPACE;
  static_assert(kGroup % hn::MaxLanes(D()) == 0, "whole vectors only");
  auto amax = hn::Abs(hn::LoadU(d, x));
  for (size_t i = hn::Lanes(d); i < kGroup; i += hn::Lanes(d)) amax = hn::Max(amax, hn::Abs(hn::LoadU(d, x + i)));
  return hn::MaxOfLanes(d, amax);
}

/// 2^ceil(log2(x)) for normal x > 0 (spec c.1: exponent + (mantissa != 0)).
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V CeilPowerOfTwo(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::Add(hn::BitCast(du, x), hn::Set(du, 0x007fffffu));
  return hn::BitCast(d, hn::And(bits, hn::Set(du, 0x7f800000u)));
}

/// Rounds x to `kMantissaBits` explicit mantissa bits, ties to even, on a grid whose binades end at the power of two
/// `smallest` (below it the step stays). Zero loses its sign. |x| < 2^100.
template <int kMantissaBits, class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V RoundToGrid(D d, V x, V smallest) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<D> du;
  const V binade = hn::BitCast(d, hn::And(hn::BitCast(du, x), hn::Set(du, 0x7f800000u)));
  const V shifter =
      hn::Mul(hn::Max(binade, smallest), hn::Set(d, 1.5f * static_cast<float>(1 << (23 - kMantissaBits))));
  return hn::Sub(hn::Add(x, shifter), shifter);
}

/// The scale of one group of c.1: 2^ceil(log2(max(amax, 1e-4) / 448)), the quotient as F32(amax * (1/448)).
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Fp8GroupScale(D d, V amax) {
  namespace hn = hwy::HWY_NAMESPACE;
  return CeilPowerOfTwo(d, hn::Mul(hn::Max(amax, hn::Set(d, 1e-4f)), hn::Set(d, 1.0f / 448)));
}

/// The scale of one group of index vectors (spec c.7, fake_fp4_32): 2^ceil(log2(max(amax, 6 * 2^-126) / 6)).
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V IndexGroupScale(D d, V amax) {
  namespace hn = hwy::HWY_NAMESPACE;
  return CeilPowerOfTwo(d, hn::Mul(hn::Max(amax, hn::Set(d, 6.0f * 0x1p-126f)), hn::Set(d, 1.0f / 6)));
}

/// out = x through E2M1 with one power-of-two scale per 32 columns (spec c.7, fake_fp4_32), as F32 values. columns is a
/// multiple of 32. out may be x. A negative value that rounds to zero becomes +0.
template <class D>
HWY_INLINE void FakeQuantiseIndexFp4(D d, const float* x, float* out, int64_t columns) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kGroup = 32;
  for (int64_t column = 0; column < columns; column += kGroup) {
    // E2M1 binades end at 1. No clamp: scale >= amax / 6 up to F32 rounding, and 6 * (1 + 2^-23) still rounds to 6.
    const auto scale = IndexGroupScale(d, GroupAbsMax<kGroup>(d, x + column));
    for (size_t i = 0; i < kGroup; i += hn::Lanes(d)) {
      hn::StoreU(RoundToGrid<1>(d, hn::LoadU(d, x + column + i), scale), d, out + column + i);
    }
  }
}

/// out = x through E4M3 with one power-of-two scale per 32 columns (spec c.1, "q" times its scale), as F32 values.
/// columns is a multiple of 32. out may be x. A negative value that rounds to zero becomes +0.
template <class D>
HWY_INLINE void FakeQuantiseFp8(D d, const float* x, float* out, int64_t columns) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kGroup = 32;
  for (int64_t column = 0; column < columns; column += kGroup) {
    const auto scale = Fp8GroupScale(d, GroupAbsMax<kGroup>(d, x + column));
    // No clamp: scale >= amax / 448 up to F32 rounding, and 448 * (1 + 2^-23) still rounds to 448.
    const auto smallest = hn::Mul(scale, hn::Set(d, 1.0f / 64));  // E4M3 binades end at 2^-6
    for (size_t i = 0; i < kGroup; i += hn::Lanes(d)) {
      hn::StoreU(RoundToGrid<3>(d, hn::LoadU(d, x + column + i), smallest), d, out + column + i);
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace deepinfer
HWY_AFTER_NAMESPACE();

#endif  // DEEPINFER_OPS_CPU_QUANTISE_INL_H_
