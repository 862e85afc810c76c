#include "ops/cpu/route.h"

#include <cassert>
#include <limits>

#include "ops/cpu/rows_split.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/route.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Puts `expert` into the `count` best ones so far (best first) when it beats one of them or a place is free. Experts
// come in ascending order, so that of equal ones the lowest id stays.
HWY_INLINE void Offer(int32_t expert, float value, int64_t places, int64_t& count, int32_t* HWY_RESTRICT picks,
                      float* HWY_RESTRICT values) {
  if (count == places && !(value > values[places - 1])) return;
  int64_t at = count < places ? count++ : places - 1;
  for (; at > 0 && value > values[at - 1]; --at) {
    values[at] = values[at - 1];
    picks[at] = picks[at - 1];
  }
  values[at] = value;
  picks[at] = expert;
}

// scores holds gate * x on entry and is overwritten.
void RouteRow(float* HWY_RESTRICT scores, int64_t experts, const WeightVector& bias, bool normalise, float scaling,
              int64_t places, int32_t* HWY_RESTRICT picks, float* HWY_RESTRICT weights) {
  ForColumns(0, experts, [&](auto d, int64_t e) HWY_ATTR {
    hn::StoreU(hn::Sqrt(Softplus(d, hn::LoadU(d, scores + e))), d, scores + e);
  });
  int64_t count = 0;
  WithStored(bias.data, bias.is_bf16, [&](auto stored) HWY_ATTR {
    ForColumns(0, experts, [&](auto d, int64_t e) HWY_ATTR {
      HWY_ALIGN float biased[kRowLanes];
      const auto value = hn::Add(hn::LoadU(d, scores + e), stored.Load(d, e));
      // Not a number ranks last, so that a pick is always a valid expert.
      const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
      const auto ranked = hn::IfThenElse(hn::Eq(value, value), value, lowest);
      const bool full = count == places;
      if (full && hn::AllFalse(d, hn::Gt(ranked, hn::Set(d, weights[places - 1])))) return;
      hn::Store(ranked, d, biased);
      for (int64_t i = 0; i < static_cast<int64_t>(hn::Lanes(d)); ++i) {
        Offer(static_cast<int32_t>(e + i), biased[i], places, count, picks, weights);
      }
    });
  });
  for (int64_t i = 1; i < places; ++i) {  // by ascending id
    const int32_t pick = picks[i];
    int64_t at = i;
    for (; at > 0 && picks[at - 1] > pick; --at) picks[at] = picks[at - 1];
    picks[at] = pick;
  }
  float sum = 0;
  for (int64_t i = 0; i < places; ++i) sum += weights[i] = scores[picks[i]];
  const float divisor = normalise ? sum + 1e-20f : 1.0f;
  for (int64_t i = 0; i < places; ++i) weights[i] = weights[i] / divisor * scaling;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(RouteRow);

Status RouteScratch::Reserve(const ScratchLimits& limits) {
  if (!scores.Allocate(limits.rows * limits.experts)) {
    return Status::ResourceExhausted("no memory for the router's scores");
  }
  return Status::Ok();
}

void Route(ThreadPool& pool, LinearScratch& linear, RouteScratch& scratch, ConstFloatView x, const WeightMatrix& gate,
           const WeightVector& bias, bool normalise, float scaling, TensorView<int32_t> picks, FloatView weights) {
  assert(x.rows * gate.rows <= scratch.scores.size());
  const FloatView scores(scratch.scores.data(), x.rows, gate.rows);
  Linear(pool, linear, x, gate, ActivationFormat::kExact, 1, scores);
  const auto kernel = HWY_DYNAMIC_DISPATCH(RouteRow);
  // About a nanosecond per expert: some eight times the time of its traffic.
  ForRows(pool, x.rows, 8 * 4 * gate.rows, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      kernel(scores.row(t), gate.rows, bias, normalise, scaling, picks.columns, picks.row(t), weights.row(t));
    }
  });
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
