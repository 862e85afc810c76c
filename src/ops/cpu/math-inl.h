// Transcendental functions on Highway vectors of F32, shared by the CPU kernels.
//
// Contract: `d` is a float tag of any lane count; results depend on the lane's value only, never on the lane or the
// lane count, so a row's tail may run through a narrower tag. Errors are the largest over the whole domain, found by
// tests/ops/targets_test.cc against double, with and without fused multiply-add. NaN gives NaN.
// Thread-safety: pure functions. Include from a file that foreach_target.h compiles once per instruction set.
// Sources: polynomial coefficients of Cephes expf and logf (S. Moshier).
#if defined(DEEPINFER_OPS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEEPINFER_OPS_CPU_MATH_INL_H_
#undef DEEPINFER_OPS_CPU_MATH_INL_H_
#else
#define DEEPINFER_OPS_CPU_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer {
namespace cpu {
namespace HWY_NAMESPACE {

/// e^x for x <= 0, at most 1.1 ulp off; exactly 0 below -87.3 (where F32 turns subnormal) and at -infinity.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V ExpNonPositive(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  // Adding 1.5 * 2^23 leaves round(x / ln 2) in the low mantissa bits, in two's complement.
  const V shifter = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), shifter);
  const V n = hn::Sub(shifted, shifter);
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);  // ln 2 in two parts, the first with nine bits
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::MulAdd(r, hn::Set(d, 1.9875691500e-4f), hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  // A product, not an addition to the exponent bits: NaN stays NaN.
  const V power = hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::BitCast(di, shifted)), hn::Set(di, 127 << 23)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3f)), hn::Mul(p, power));
}

/// log(1 + y) for 0 <= y <= 1, at most 1.6 ulp off.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Log1pOfUnit(D d, V y) {
  namespace hn = hwy::HWY_NAMESPACE;
  // 1 + y = (1 + f) * 2^k with 1 + f in [sqrt(1/2), sqrt(2)).
  const auto halve = hn::Ge(y, hn::Set(d, 0.41421356f));
  const V f = hn::IfThenElse(halve, hn::Mul(hn::Sub(y, hn::Set(d, 1.0f)), hn::Set(d, 0.5f)), y);
  V p = hn::MulAdd(f, hn::Set(d, 7.0376836292e-2f), hn::Set(d, -1.1514610310e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.1676998740e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -1.2420140846e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.4249322787e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -1.6668057665e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.0000714765e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -2.4999993993e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 3.3333331174e-1f));
  const V square = hn::Mul(f, f);
  const V tail = hn::Mul(square, hn::MulSub(p, f, hn::Set(d, 0.5f)));
  const V log2 = hn::IfThenElseZero(halve, hn::Set(d, 0.693147180559945f));
  return hn::Add(log2, hn::Add(f, tail));
}

/// 1 / (1 + e^-x), at most 2.5 ulp off; 0 below -87.3.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(d, 1.0f);
  const V e = ExpNonPositive(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Ge(x, hn::Zero(d)), one, e), hn::Add(one, e));
}

/// x * sigmoid(x), at most 3.2 ulp off.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Silu(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V e = ExpNonPositive(d, hn::Neg(hn::Abs(x)));
  const V numerator = hn::IfThenElse(hn::Ge(x, hn::Zero(d)), x, hn::Mul(x, e));
  return hn::Div(numerator, hn::Add(hn::Set(d, 1.0f), e));
}

/// log(1 + e^x), at most 2 ulp off; 0 below -87.3.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V Softplus(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V e = ExpNonPositive(d, hn::Neg(hn::Abs(x)));
  return hn::Add(hn::Max(x, hn::Zero(d)), Log1pOfUnit(d, e));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace deepinfer
HWY_AFTER_NAMESPACE();

#endif  // DEEPINFER_OPS_CPU_MATH_INL_H_
