#include "ops/cpu/sampling_kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ops/sampling_order.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/sampling_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
constexpr int64_t kFloats = static_cast<int64_t>(hn::MaxLanes(FloatTag()));
using DoubleTag = hn::CappedTag<double, 8>;
using DoubleVec = hn::Vec<DoubleTag>;
constexpr int64_t kDoubles = static_cast<int64_t>(hn::MaxLanes(DoubleTag()));

// Calls body(ids, logits) for runs of `kCount` ids; the last run is padded with barred ones.
template <int64_t kCount, class Body>
HWY_INLINE void ForRuns(const float* logits, int64_t vocabulary, const Body& body) {
  int64_t id = 0;
  for (; id + kCount <= vocabulary; id += kCount) body(id, logits + id);
  if (id == vocabulary) return;
  HWY_ALIGN float padded[kCount];
  std::fill_n(padded, kCount, -kInfinity);
  std::memcpy(padded, logits + id, static_cast<size_t>(vocabulary - id) * sizeof(float));
  body(id, padded);
}

int32_t Likeliest(const float* logits, int64_t vocabulary) {
  constexpr int64_t kRun = 4 * kFloats;
  const FloatTag d;
  FloatVec largest[4];
  for (FloatVec& each : largest) each = hn::Set(d, -kInfinity);
  auto numbers = hn::Eq(largest[0], largest[0]);
  ForRuns<kRun>(logits, vocabulary, [&](int64_t, const float* run) HWY_ATTR {
    for (int64_t i = 0; i < 4; ++i) {
      const auto z = hn::LoadU(d, run + i * kFloats);
      numbers = hn::And(numbers, hn::Lt(z, hn::Set(d, kInfinity)));
      largest[i] = hn::Max(largest[i], z);
    }
  });
  if (!hn::AllTrue(d, numbers)) return -1;
  const auto all = hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3]));
  const float value = hn::GetLane(hn::MaxOfLanes(d, all));
  if (value == -kInfinity) return -1;
  int64_t id = 0;
  for (const auto wanted = hn::Set(d, value); id + kFloats <= vocabulary; id += kFloats) {
    const auto found = hn::Eq(hn::LoadU(d, logits + id), wanted);
    if (!hn::AllFalse(d, found)) return static_cast<int32_t>(id + hn::FindFirstTrue(d, found));
  }
  while (logits[id] != value) ++id;
  return static_cast<int32_t>(id);
}

bool CopyAllowed(const float* logits, int64_t vocabulary, const uint32_t* allowed, float* out) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> d32;
  const auto lane_bits = hn::Shl(hn::Set(d32, 1u), hn::Iota(d32, 0));
  const auto barred = hn::Set(d, -kInfinity);
  auto numbers = hn::Eq(barred, barred);
  ForRuns<kFloats>(logits, vocabulary, [&](int64_t id, const float* run) HWY_ATTR {
    auto z = hn::LoadU(d, run);
    numbers = hn::And(numbers, hn::Lt(z, hn::Set(d, kInfinity)));
    if (allowed != nullptr) {
      const auto word = hn::Set(d32, allowed[id / 32] >> (id % 32));
      z = hn::IfThenElse(hn::RebindMask(d, hn::TestBit(word, lane_bits)), z, barred);
    }
    if (id + kFloats <= vocabulary) {
      hn::StoreU(z, d, out + id);
    } else {
      HWY_ALIGN float last[kFloats];
      hn::Store(z, d, last);
      std::memcpy(out + id, last, static_cast<size_t>(vocabulary - id) * sizeof(float));
    }
  });
  return hn::AllTrue(d, numbers);
}

// Calls body(lane) for the lanes of `mask`, ascending.
template <class Mask, class Body>
HWY_INLINE void ForLanes(Mask mask, const Body& body) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(FloatTag(), mask, bytes);
  for (uint32_t bits = bytes[0] | static_cast<uint32_t>(bytes[1]) << 8; bits != 0; bits &= bits - 1) {
    body(std::countr_zero(bits));
  }
}

int64_t CollectBand(const float* logits, int64_t vocabulary, float low, float high, uint64_t* keys) {
  const FloatTag d;
  int64_t count = 0;
  ForRuns<kFloats>(logits, vocabulary, [&](int64_t id, const float* run) HWY_ATTR {
    const auto z = hn::LoadU(d, run);
    const auto inside = hn::And(hn::Ge(z, hn::Set(d, low)), hn::Lt(z, hn::Set(d, high)));
    if (hn::AllFalse(d, inside)) return;
    ForLanes(inside, [&](int lane) { keys[count++] = RankKey(run[lane], static_cast<int32_t>(id + lane)); });
  });
  return count;
}

// sampling::ExpNonPositive, lane by lane.
HWY_INLINE DoubleVec Exp(DoubleVec x) {
  const DoubleTag d;
  const hn::RebindToUnsigned<DoubleTag> d64;
  const auto rounder = hn::Set(d, sampling::kRounder);
  const auto shifted = hn::Add(hn::Mul(x, hn::Set(d, sampling::kLog2E)), rounder);
  const auto n = hn::Sub(shifted, rounder);
  const auto r =
      hn::Sub(hn::Sub(x, hn::Mul(n, hn::Set(d, sampling::kLn2High))), hn::Mul(n, hn::Set(d, sampling::kLn2Low)));
  auto sum = hn::Set(d, sampling::kExpTerms[0]);
  for (size_t i = 1; i < std::size(sampling::kExpTerms); ++i) {
    sum = hn::Add(hn::Mul(sum, r), hn::Set(d, sampling::kExpTerms[i]));
  }
  const auto power = hn::ShiftLeft<52>(hn::BitCast(d64, shifted));
  const auto result = hn::BitCast(d, hn::Add(hn::BitCast(d64, sum), power));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, sampling::kExpLowest)), result);
}

// Calls body(id, lane, weights) for vectors of kDoubles ids; `lane` is the first one's lane of the order of sums. Runs
// of kWeightLanes ids with nothing kept are left out: they add zeros only.
template <class Body>
HWY_INLINE void ForWeights(const RowLaw& law, const Body& body) {
  const DoubleTag d;
  const hn::Rebind<float, DoubleTag> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto value = hn::Set(df, law.cut.value);
  const auto last = hn::Set(di, law.cut.id);
  const auto from_zero = hn::Iota(di, 0);  // built in memory: not for loops
  const auto largest = hn::Set(d, static_cast<double>(law.largest));
  const auto temperature = hn::Set(d, law.temperature);
  const bool divide = law.temperature != 1;
  ForRuns<sampling::kWeightLanes>(law.logits, law.vocabulary, [&](int64_t id, const float* run) HWY_ATTR {
    const FloatTag whole;
    auto any = hn::Ge(hn::LoadU(whole, run), hn::Set(whole, law.cut.value));
    for (int64_t i = kFloats; i < sampling::kWeightLanes; i += kFloats) {
      any = hn::Or(any, hn::Ge(hn::LoadU(whole, run + i), hn::Set(whole, law.cut.value)));
    }
    if (hn::AllFalse(whole, any)) return;
    for (int64_t lane = 0; lane < sampling::kWeightLanes; lane += kDoubles) {
      const auto z = hn::LoadU(df, run + lane);
      const auto ids = hn::Add(hn::Set(di, static_cast<int32_t>(id + lane)), from_zero);
      const auto tied = hn::AndNot(hn::RebindMask(df, hn::Gt(ids, last)), hn::Eq(z, value));
      const auto kept = hn::IfThenElse(hn::Or(hn::Gt(z, value), tied), z, hn::Set(df, -kInfinity));
      auto score = hn::Sub(hn::PromoteTo(d, kept), largest);
      if (divide) score = hn::Div(score, temperature);
      body(id + lane, lane, Exp(score));
    }
  });
}

double SumWeights(const RowLaw& law) {
  const DoubleTag d;
  constexpr int64_t kVectors = sampling::kWeightLanes / kDoubles;
  DoubleVec sums[kVectors];
  for (DoubleVec& sum : sums) sum = hn::Zero(d);
  ForWeights(law, [&](int64_t, int64_t lane, DoubleVec weights)
                      HWY_ATTR { sums[lane / kDoubles] = hn::Add(sums[lane / kDoubles], weights); });
  HWY_ALIGN double lanes[sampling::kWeightLanes];
  for (int64_t i = 0; i < kVectors; ++i) hn::Store(sums[i], d, lanes + i * kDoubles);
  return sampling::FoldLanes(lanes);
}

void FillProbabilities(const RowLaw& law, double total, double* probabilities) {
  const DoubleTag d;
  std::fill_n(probabilities, law.vocabulary, 0.0);
  ForWeights(law, [&](int64_t id, int64_t, DoubleVec weights) HWY_ATTR {
    const auto shares = hn::Div(weights, hn::Set(d, total));
    if (id + kDoubles <= law.vocabulary) {
      hn::StoreU(shares, d, probabilities + id);
    } else if (id < law.vocabulary) {
      HWY_ALIGN double last[kDoubles];
      hn::Store(shares, d, last);
      std::memcpy(probabilities + id, last, static_cast<size_t>(law.vocabulary - id) * sizeof(double));
    }
  });
}

double Subtract(double* HWY_RESTRICT p, const double* HWY_RESTRICT q, int64_t vocabulary) {
  const DoubleTag d;
  constexpr int64_t kVectors = sampling::kWeightLanes / kDoubles;
  DoubleVec sums[kVectors];
  for (DoubleVec& sum : sums) sum = hn::Zero(d);
  int64_t id = 0;
  for (; id + sampling::kWeightLanes <= vocabulary; id += sampling::kWeightLanes) {
    for (int64_t i = 0; i < kVectors; ++i) {
      const int64_t at = id + i * kDoubles;
      const auto rest = hn::Max(hn::Sub(hn::LoadU(d, p + at), hn::LoadU(d, q + at)), hn::Zero(d));
      hn::StoreU(rest, d, p + at);
      sums[i] = hn::Add(sums[i], rest);
    }
  }
  HWY_ALIGN double lanes[sampling::kWeightLanes];
  for (int64_t i = 0; i < kVectors; ++i) hn::Store(sums[i], d, lanes + i * kDoubles);
  for (int64_t lane = 0; id < vocabulary; ++id, ++lane) {
    p[id] = std::max(p[id] - q[id], 0.0);
    lanes[lane] += p[id];
  }
  return sampling::FoldLanes(lanes);
}

#if HWY_TARGET != HWY_SCALAR

// Upper bounds of the noise of 2 * lanes neighbouring ids: Philox4x32-10 (base/counter_rng.h), without the words that
// a bound does not need.
//
// The noise is -log(-log u) <= -log(1 - u). With h the top 32 of the random bits, 1 - u > (~h >> 8) / 2^24 =: f / 2^24,
// and the bits of f as F32, read as an integer, are 2^23 times a lower bound of log2(f) + 127 (linear between powers of
// two). So no logarithm is taken.
class NoiseBounds {
 public:
  using WordTag = hn::Repartition<uint32_t, DoubleTag>;
  using ProductTag = hn::RebindToUnsigned<DoubleTag>;
  using BoundTag = hn::Repartition<float, DoubleTag>;
  static constexpr int64_t kIds = 2 * kDoubles;
  /// Of any id: more than -log(-log(1 - 2^-53)).
  static constexpr float kMost = 36.75f;
  /// More than what F32 rounds away in the sums that a bound is part of, where they matter.
  static constexpr float kSlack = 1e-3f;

  explicit NoiseBounds(const TokenRule& rule) {
    const uint64_t position = static_cast<uint64_t>(rule.position);
    uint32_t keys[2] = {static_cast<uint32_t>(rule.seed), static_cast<uint32_t>(rule.seed >> 32)};
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < 2; ++i) keys_[round][i] = hn::Set(ProductTag(), keys[i]);
      keys[0] += 0x9E3779B9;
      keys[1] += 0xBB67AE85;
    }
    position_low_ = hn::Set(ProductTag(), position & 0xffffffff);
    position_high_ = hn::Set(ProductTag(), position >> 32);
    purpose_ = hn::Set(ProductTag(), static_cast<uint32_t>(rule.purpose));
    from_zero_ = hn::Iota(ProductTag(), 0);
  }

  /// Those of ids first, first + 1, ...; `first` is even.
  HWY_INLINE hn::Vec<BoundTag> Of(int64_t first) const {
    const ProductTag d;
    // Words sit in the lower halves of 64-bit lanes; the upper halves are whatever came up and are never read.
    auto c0 = hn::Add(hn::Set(d, static_cast<uint64_t>(first / 2)), from_zero_);
    auto c1 = position_low_;
    auto c2 = position_high_;
    auto c3 = purpose_;
    for (int round = 0; round < kRounds; ++round) {
      const auto left = Multiply(c0, 0xD2511F53);
      const auto right = Multiply(c2, 0xCD9E8D57);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(right), c1), keys_[round][0]);
      c1 = right;
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(left), c3), keys_[round][1]);
      c3 = left;
    }
    const WordTag words;
    const BoundTag bounds;
    const hn::RebindToSigned<WordTag> integers;
    const auto high = hn::OddEven(hn::BitCast(words, hn::ShiftLeft<32>(c3)), hn::BitCast(words, c1));
    const auto rest = hn::ConvertTo(bounds, hn::BitCast(integers, hn::ShiftRight<8>(hn::Not(high))));
    const auto logarithm = hn::ConvertTo(bounds, hn::BitCast(integers, rest));
    constexpr float kLog2 = 0.69314718f;
    return hn::NegMulAdd(logarithm, hn::Set(bounds, kLog2 * 0x1p-23f), hn::Set(bounds, kLog2 * (24 + 127)));
  }

 private:
  static constexpr int kRounds = 10;
  using Product = hn::Vec<ProductTag>;
  static HWY_INLINE Product Multiply(Product a, uint32_t factor) {
    return hn::MulEven(hn::BitCast(WordTag(), a), hn::Set(WordTag(), factor));
  }

  Product keys_[kRounds][2];
  Product position_low_;
  Product position_high_;
  Product purpose_;
  Product from_zero_;
};

#endif  // HWY_TARGET != HWY_SCALAR

int32_t Draw(const RowLaw& law, int32_t likeliest, const TokenRule& rule) {
  double best = -std::numeric_limits<double>::infinity();
  int32_t choice = likeliest;
  const auto offer = [&](int32_t id, float logit) {
    if (!law.cut.Keeps(logit, id)) return;
    const double score = (static_cast<double>(logit) - law.largest) / law.temperature;
    const uint64_t bits =
        CounterBits(rule.seed, static_cast<uint64_t>(rule.position), static_cast<uint32_t>(id), rule.purpose);
    if (score + GumbelBound(bits) < best) return;
    const double noisy = score + Gumbel(bits);
    if (noisy > best || (noisy == best && id < choice)) {
      best = noisy;
      choice = id;
    }
  };
  offer(likeliest, law.largest);

#if HWY_TARGET == HWY_SCALAR
  for (int64_t id = 0; id < law.vocabulary; ++id) offer(static_cast<int32_t>(id), law.logits[id]);
#else
  const NoiseBounds::BoundTag d;
  static_assert(NoiseBounds::kIds == kFloats);
  const NoiseBounds noise(rule);
  // A temperature near 0 makes this infinite and the scores of the largest logits NaN, so comparisons below are such
  // that NaN stays in.
  const auto inverse = hn::Set(d, static_cast<float>(1 / law.temperature));
  auto least = hn::Set(d, static_cast<float>(best) - NoiseBounds::kSlack);
  ForRuns<kFloats>(law.logits, law.vocabulary, [&](int64_t id, const float* run) HWY_ATTR {
    const auto z = hn::LoadU(d, run);
    const auto kept = hn::Ge(z, hn::Set(d, law.cut.value));
    const auto score = hn::Mul(hn::Sub(z, hn::Set(d, law.largest)), inverse);
    const auto hopeless = hn::Lt(hn::Add(score, hn::Set(d, NoiseBounds::kMost)), least);
    if (hn::AllFalse(d, hn::AndNot(hopeless, kept))) return;
    const auto beaten = hn::Lt(hn::Add(score, noise.Of(id)), least);
    const auto open = hn::AndNot(beaten, kept);
    if (HWY_LIKELY(hn::AllFalse(d, open))) return;
    ForLanes(open, [&](int lane) { offer(static_cast<int32_t>(id + lane), run[lane]); });
    least = hn::Set(d, static_cast<float>(best) - NoiseBounds::kSlack);
  });
#endif
  return choice;
}

const SamplingKernels* Kernels() {
  static constexpr SamplingKernels kKernels = {Likeliest,         CopyAllowed, CollectBand, SumWeights,
                                               FillProbabilities, Subtract,    Draw};
  return &kKernels;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deepinfer::cpu {

HWY_EXPORT(Kernels);

const SamplingKernels& GetSamplingKernels() { return *HWY_DYNAMIC_DISPATCH(Kernels)(); }

uint64_t RankKey(float logit, int32_t id) {
  constexpr uint32_t kSign = 0x80000000;
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  const uint32_t ascending = (bits & kSign) != 0 ? ~bits : bits | kSign;
  return static_cast<uint64_t>(~ascending) << 32 | static_cast<uint32_t>(id);
}

float LogitOfKey(uint64_t key) {
  constexpr uint32_t kSign = 0x80000000;
  const uint32_t ascending = ~static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>((ascending & kSign) != 0 ? ascending & ~kSign : ~ascending);
}

}  // namespace deepinfer::cpu
#endif  // HWY_ONCE
