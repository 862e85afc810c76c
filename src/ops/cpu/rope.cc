#include "ops/cpu/rope.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/rows_split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/rope.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Largest angle for which its multiple of pi / 2 times the 33-bit head of pi / 2 is exact in F64.
constexpr float kLargestReducedAngle = 1.6e6f;

// Cosine and sine of F32 angles below kLargestReducedAngle through F64: nearly always the nearest F32.
template <class DF>
HWY_INLINE void CosSin(DF df, hn::Vec<DF> angle, hn::Vec<DF>& cosine, hn::Vec<DF>& sine) {
  const hn::Rebind<double, DF> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  using V = hn::Vec<decltype(d)>;
  const V x = hn::PromoteTo(d, angle);
  // Adding 1.5 * 2^52 leaves the number of quarter turns in the low mantissa bits.
  const V shifter = hn::Set(d, 6755399441055744.0);
  const V shifted = hn::MulAdd(x, hn::Set(d, 0.63661977236758134308), shifter);
  const V turns = hn::Sub(shifted, shifter);
  V r = hn::NegMulAdd(turns, hn::Set(d, 1.57079632673412561417), x);  // pi / 2 in two parts, the first with 33 bits
  r = hn::NegMulAdd(turns, hn::Set(d, 6.07710050650619224932e-11), r);
  // Taylor to r^11 and r^12: |r| <= pi / 4 leaves 7e-12.
  const V s = hn::Mul(r, r);
  V odd = hn::MulAdd(s, hn::Set(d, -1.0 / 39916800), hn::Set(d, 1.0 / 362880));
  odd = hn::MulAdd(odd, s, hn::Set(d, -1.0 / 5040));
  odd = hn::MulAdd(odd, s, hn::Set(d, 1.0 / 120));
  odd = hn::MulAdd(odd, s, hn::Set(d, -1.0 / 6));
  odd = hn::MulAdd(hn::Mul(odd, s), r, r);
  V even = hn::MulAdd(s, hn::Set(d, 1.0 / 479001600), hn::Set(d, -1.0 / 3628800));
  even = hn::MulAdd(even, s, hn::Set(d, 1.0 / 40320));
  even = hn::MulAdd(even, s, hn::Set(d, -1.0 / 720));
  even = hn::MulAdd(even, s, hn::Set(d, 1.0 / 24));
  even = hn::MulAdd(even, s, hn::Set(d, -0.5));
  even = hn::MulAdd(even, s, hn::Set(d, 1.0));

  const auto quarter = hn::BitCast(du, shifted);
  const auto one = hn::Set(du, 1);
  const auto two = hn::Set(du, 2);
  const auto swapped = hn::RebindMask(d, hn::Eq(hn::And(quarter, one), one));
  const V sine_sign = hn::BitCast(d, hn::ShiftLeft<62>(hn::And(quarter, two)));
  const V cosine_sign = hn::BitCast(d, hn::ShiftLeft<62>(hn::And(hn::Add(quarter, one), two)));
  cosine = hn::DemoteTo(df, hn::Xor(hn::IfThenElse(swapped, odd, even), cosine_sign));
  sine = hn::DemoteTo(df, hn::Xor(hn::IfThenElse(swapped, even, odd), sine_sign));
}

void RopeTableRow(float position, const float* HWY_RESTRICT frequencies, int64_t pairs, float* HWY_RESTRICT cos_sin) {
  const auto body = [&](auto df, int64_t i) HWY_ATTR {
    const auto angle = hn::Mul(hn::Set(df, position), hn::LoadU(df, frequencies + i));
    auto cosine = angle, sine = angle;
    CosSin(df, angle, cosine, sine);
    hn::StoreU(cosine, df, cos_sin + i);
    hn::StoreU(sine, df, cos_sin + pairs + i);
  };
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> wide;
  const hn::Rebind<float, hn::CappedTag<double, 1>> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= pairs; i += lanes) body(wide, i);
  for (; i < pairs; ++i) body(narrow, i);
  for (i = 0; i < pairs; ++i) {
    const float angle = position * frequencies[i];
    if (std::fabs(angle) > kLargestReducedAngle) {
      cos_sin[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      cos_sin[pairs + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

// Rotates `heads` vectors, `width` apart, of which x is the first one's first rotated channel. Products and sums round
// separately, as in the reference and in PyTorch: what follows is often rounded to FP8, where a last bit can show.
void RopeRow(float* HWY_RESTRICT x, int heads, int64_t width, const float* HWY_RESTRICT cos_sin, int64_t pairs,
             bool inverse) {
  const float* cosine = cos_sin;
  const float* sine = cos_sin + pairs;
  // Pairs as (c, c) and (-s, s), so that a rotation is x * c + swapped(x) * s.
  constexpr int64_t kPairs = 64;
  HWY_ALIGN float c[2 * kPairs];
  HWY_ALIGN float s[2 * kPairs];
  for (int64_t first = 0; first < pairs; first += kPairs) {
    const int64_t count = std::min(kPairs, pairs - first);
    for (int64_t i = 0; i < count; ++i) {
      const float turned = inverse ? -sine[first + i] : sine[first + i];
      c[2 * i] = c[2 * i + 1] = cosine[first + i];
      s[2 * i] = -turned;
      s[2 * i + 1] = turned;
    }
    for (int head = 0; head < heads; ++head) {
      float* vector = x + head * width + 2 * first;
      int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
      const RowTag d;
      for (; i + kRowLanes <= 2 * count; i += kRowLanes) {
        const auto v = hn::LoadU(d, vector + i);
        const auto turned = hn::Mul(hn::Shuffle2301(v), hn::Load(d, s + i));
        hn::StoreU(hn::Add(hn::Mul(v, hn::Load(d, c + i)), turned), d, vector + i);
      }
#endif
      const hn::CappedTag<float, 1> one;
      for (; i < 2 * count; i += 2) {
        const auto a = hn::LoadU(one, vector + i), b = hn::LoadU(one, vector + i + 1);
        const auto turned_b = hn::Mul(b, hn::Set(one, s[i])), turned_a = hn::Mul(a, hn::Set(one, s[i + 1]));
        hn::StoreU(hn::Add(hn::Mul(a, hn::Set(one, c[i])), turned_b), one, vector + i);
        hn::StoreU(hn::Add(hn::Mul(b, hn::Set(one, c[i + 1])), turned_a), one, vector + i + 1);
      }
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(RopeTableRow);
HWY_EXPORT(RopeRow);

void RopeTable(ThreadPool& pool, std::span<const int64_t> positions, std::span<const float> frequencies,
               FloatView cos_sin) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(RopeTableRow);
  const int64_t pairs = static_cast<int64_t>(frequencies.size());
  // A cosine and a sine take some ten times the time of their traffic.
  ForRows(pool, cos_sin.rows, 10 * 8 * pairs, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      kernel(static_cast<float>(positions[static_cast<size_t>(t)]), frequencies.data(), pairs, cos_sin.row(t));
    }
  });
}

void Rope(ThreadPool& pool, FloatView x, int heads, ConstFloatView cos_sin, bool inverse) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(RopeRow);
  const int64_t width = x.columns / heads;
  const int64_t rotary = cos_sin.columns;
  ForRows(pool, x.rows, 8 * heads * rotary, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      kernel(x.row(t) + width - rotary, heads, width, cos_sin.row(t), rotary / 2, inverse);
    }
  });
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
