// Every instruction set that the CPU kernels are compiled for and this machine has: vector mathematics against F64,
// number formats and row ops against the reference, and equal bits wherever multiply-adds are fused.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../tests/ops/targets_test.cc"  // from src/
#include "hwy/foreach_target.h"                            // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "ops/cpu/math-inl.h"
#include "ops/cpu/quantise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace deepinfer::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// `count` is a multiple of 16.
void Apply(int function, const float* x, float* out, int64_t count) {
  const hn::CappedTag<float, 16> d;
  for (int64_t i = 0; i < count; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto v = hn::LoadU(d, x + i);
    hn::StoreU(function == 0   ? ExpNonPositive(d, v)
               : function == 1 ? Log1pOfUnit(d, v)
               : function == 2 ? Sigmoid(d, v)
               : function == 3 ? Silu(d, v)
                               : Softplus(d, v),
               d, out + i);
  }
}

void QuantiseFp8(const float* x, float* out, int64_t columns) {
  FakeQuantiseFp8(hn::CappedTag<float, 16>(), x, out, columns);
}

void QuantiseIndex(const float* x, float* out, int64_t columns) {
  FakeQuantiseIndexFp4(hn::CappedTag<float, 16>(), x, out, columns);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace deepinfer::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/reference/quantise.h"
#include "ops_test_util.h"

namespace deepinfer::cpu {
namespace {

HWY_EXPORT(Apply);
HWY_EXPORT(QuantiseFp8);
HWY_EXPORT(QuantiseIndex);

void CallApply(int function, const float* x, float* out, int64_t count) {
  HWY_DYNAMIC_DISPATCH(Apply)(function, x, out, count);
}
void CallQuantiseFp8(const float* x, float* out, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(QuantiseFp8)(x, out, columns);
}
void CallQuantiseIndex(const float* x, float* out, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(QuantiseIndex)(x, out, columns);
}

}  // namespace
}  // namespace deepinfer::cpu

namespace deepinfer::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class TargetsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

INSTANTIATE_TEST_SUITE_P(Targets, TargetsTest, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const ::testing::TestParamInfo<int64_t>& info) {
                           return std::string(hwy::TargetName(info.param));
                         });

float Apply1(int function, float x) {
  const std::vector<float> in(16, x);
  std::vector<float> out(16);
  cpu::CallApply(function, in.data(), out.data(), 16);
  for (const float value : out) EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(out[0]));
  return out[0];
}

TEST_P(TargetsTest, MathematicsIsAccurate) {
  struct Case {
    const char* name;
    double (*exact)(double);
    float low, high;
    double ulps;
  };
  const Case cases[] = {
      {"exp", [](double x) { return std::exp(x); }, -87.3f, 0, 1.1},
      {"log1p", [](double x) { return std::log1p(x); }, 0, 1, 1.6},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -87, 87, 2.5},
      {"silu", [](double x) { return x / (1 + std::exp(-x)); }, -83, 83, 3.2},
      {"softplus", [](double x) { return std::log1p(std::exp(x)); }, -87, 87, 2.0},
  };
  Random random(1);
  constexpr int64_t kCount = 1 << 18;
  std::vector<float> x(kCount);
  std::vector<float> y(kCount);
  for (int function = 0; function < 5; ++function) {
    const Case& c = cases[function];
    for (float& value : x) {  // half of the points near zero
      value = random.Uniform(c.low, c.high) * (random.Below(2) == 0 ? 1.0f : std::exp2(-random.Uniform(0, 12)));
    }
    cpu::CallApply(function, x.data(), y.data(), kCount);
    double worst = 0;
    float where = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = c.exact(x[i]);
      if (exact == 0) continue;
      const double ulp = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
      const double error = std::fabs(y[i] - exact) / ulp;
      if (!(error <= worst)) {
        worst = error;
        where = x[i];
      }
    }
    EXPECT_LE(worst, c.ulps) << c.name << " at " << where;
  }
}

TEST_P(TargetsTest, MathematicsAtTheEnds) {
  EXPECT_EQ(Apply1(0, 0.0f), 1);
  EXPECT_EQ(Apply1(0, -0.0f), 1);
  EXPECT_EQ(Apply1(0, -88.0f), 0);
  EXPECT_EQ(Apply1(0, -3e38f), 0);
  EXPECT_EQ(Apply1(0, -kInfinity), 0);
  EXPECT_EQ(Apply1(1, 0.0f), 0);
  EXPECT_EQ(Apply1(2, 0.0f), 0.5f);
  EXPECT_EQ(Apply1(2, kInfinity), 1);
  EXPECT_EQ(Apply1(2, -kInfinity), 0);
  EXPECT_EQ(Apply1(3, 1e30f), 1e30f);
  EXPECT_EQ(Apply1(3, -1e30f), 0);
  EXPECT_EQ(Apply1(4, 1e30f), 1e30f);
  EXPECT_EQ(Apply1(4, -kInfinity), 0);
  for (int function = 0; function < 5; ++function) {
    for (const uint32_t bits : {0x7fc00000u, 0x7fffffffu, 0xffffffffu}) {
      EXPECT_TRUE(std::isnan(Apply1(function, std::bit_cast<float>(bits)))) << function;
    }
  }
}

// Values that sit on and next to ties, scale boundaries and floors of all the formats.
std::vector<float> HardValues(int64_t count, Random& random) {
  std::vector<float> x(static_cast<size_t>(count));
  const int kinds = 6;
  for (int64_t group = 0; group < count; group += 32) {
    const int64_t kind = random.Below(kinds);
    const float magnitude = std::ldexp(1.0f, static_cast<int>(random.Below(80)) - 40);
    for (int64_t i = group; i < std::min(group + 32, count); ++i) {
      float value = 0;
      if (kind == 0) {
        value = random.Normal() * magnitude;
      } else if (kind == 1) {  // multiples of half steps: ties
        value = static_cast<float>(random.Below(129) - 64) * 0.25f * magnitude;
      } else if (kind == 2) {  // multiples of the largest value: amax on a scale boundary
        value = (random.Below(2) == 0 ? 448.0f : 6.0f) * magnitude * (random.Below(2) == 0 ? 1.0f : -0.01f);
        if (random.Below(3) == 0) value = std::nextafter(value, value * 2);
      } else if (kind == 3) {  // wide range inside a group
        value = random.Normal() * std::exp2(-random.Uniform(0, 24)) * magnitude;
      } else if (kind == 4) {  // around the floors
        value = random.Normal() * std::ldexp(1.0f, -8 - static_cast<int>(random.Below(130)));
      } else {
        value = random.Below(2) == 0 ? 0.0f : -0.0f;
      }
      x[static_cast<size_t>(i)] = value;
    }
  }
  return x;
}

TEST_P(TargetsTest, ActivationRoundingIsExact) {
  Random random(2);
  const std::vector<float> x = HardValues(1 << 17, random);
  const int64_t count = static_cast<int64_t>(x.size());
  std::vector<float> actual(x.size());
  std::vector<float> expected(x.size());
  cpu::CallQuantiseFp8(x.data(), actual.data(), count);
  reference::QuantiseActivations(x.data(), count, expected.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(actual[i], expected[i]) << "fp8 of " << x[i] << " at " << i;
  cpu::CallQuantiseIndex(x.data(), actual.data(), count);
  reference::QuantiseIndexQuery(x.data(), count, expected.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(actual[i], expected[i]) << "fp4 of " << x[i] << " at " << i;
}

std::unique_ptr<Ops> ReservedCpuOps(int threads) {
  std::unique_ptr<Ops> ops = MakeCpuOps(threads);
  const Status status =
      ops->Reserve({.rows = 64, .columns = 4400, .outputs = 64, .experts_per_token = 8, .experts = 96});
  EXPECT_TRUE(status.ok()) << status.message();
  return ops;
}

TEST_P(TargetsTest, PackedRowsAreExact) {
  Random random(3);
  const std::unique_ptr<Ops> ops = ReservedCpuOps(1);
  const std::unique_ptr<Ops> reference = MakeReferenceOps();
  for (const RowFormat format : {RowFormat::kWindowFp8, RowFormat::kCompressedFp4, RowFormat::kIndexFp4}) {
    for (const int32_t channels : {32, 64, 512}) {
      const int64_t rows = 200;
      std::vector<float> x = HardValues(rows * channels, random);
      std::vector<int64_t> destination;
      for (int64_t t = 0; t < rows; ++t) destination.push_back((t * 7 + 3) % rows);
      const OwnedRows actual(format, channels, rows, 6);
      const OwnedRows expected(format, channels, rows, 6);
      ops->StoreRows({x.data(), rows, channels}, actual, destination);
      reference->StoreRows({x.data(), rows, channels}, expected, destination);
      ASSERT_EQ(actual.pages(), expected.pages()) << "format " << static_cast<int>(format) << " of " << channels;
    }
  }
}

TEST_P(TargetsTest, RopeTableIsAccurateAtEveryPosition) {
  Random random(4);
  const int64_t pairs = 21;  // whole vectors and a rest
  std::vector<float> frequencies;
  for (int64_t i = 0; i < pairs; ++i) {
    frequencies.push_back(std::pow(160000.0f, -static_cast<float>(i) / static_cast<float>(pairs)));
  }
  std::vector<int64_t> positions = {0, 1, 2, 3, 11, 355, 710, 103993, 1048575, int64_t{1} << 40};
  while (positions.size() < 2000) positions.push_back(random.Below(1048576));
  const int64_t rows = static_cast<int64_t>(positions.size());
  const std::unique_ptr<Ops> ops = ReservedCpuOps(2);
  Tensor table(rows, 2 * pairs);
  ops->RopeTable(positions, frequencies, table);
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < pairs; ++i) {
      const float angle = static_cast<float>(positions[static_cast<size_t>(t)]) * frequencies[static_cast<size_t>(i)];
      const double exact[2] = {std::cos(static_cast<double>(angle)), std::sin(static_cast<double>(angle))};
      for (int which = 0; which < 2; ++which) {
        const double ulp = std::ldexp(1.0, exact[which] == 0 ? -149 : std::ilogb(exact[which]) - 23);
        ASSERT_LE(std::fabs(table.row(t)[which * pairs + i] - exact[which]), 0.51 * ulp) << "angle " << angle;
      }
    }
  }
}

struct Named {
  std::string name;
  Tensor tensor;
  float tolerance;  // against the reference
};

// All row ops on the same inputs, large enough that several workers share them.
std::vector<Named> RunRowOps(Ops& ops, int64_t rows, int64_t width, int n) {
  Random random(static_cast<uint64_t>(rows * 1000 + width + n));
  std::vector<Named> results;
  const auto add = [&](const char* name, const Tensor& tensor, float tolerance) {
    EXPECT_TRUE(tensor.GapsUntouched()) << name;
    results.push_back({name, tensor, tolerance});
  };
  const Tensor streams = RandomTensor(rows, n * width, random);
  const Tensor y = RandomTensor(rows, width, random);
  const Tensor z = RandomTensor(rows, width, random);
  for (const bool as_bf16 : {false, true}) {
    const OwnedVector weight = RandomVector(width, as_bf16, random, 1, 0.2f);
    Tensor normed(rows, width);
    ops.RmsNorm(y, weight, 1e-20f, normed);
    add("RmsNorm", normed, 1e-6f);
    Tensor in_place = y;
    ops.RmsNorm(in_place, weight, 1e-20f, in_place);
    EXPECT_TRUE(SameBits(in_place, normed));

    const OwnedWeight table = RandomWeight(as_bf16 ? WeightFormat::kBF16 : WeightFormat::kF32, 20, width, random);
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < rows; ++t) ids.push_back(static_cast<int32_t>(random.Below(20)));
    Tensor embedded(rows, width);
    ops.Embed(table, ids, embedded);
    add("Embed", embedded, 0);

    const Tensor kv = RandomTensor(rows, (n + 1) * width, random);
    const OwnedVector q = RandomVector(n * width, as_bf16, random, 1, 0.2f);
    const OwnedVector k = RandomVector(n * width, !as_bf16, random, 1, 0.2f);
    Tensor injected = streams;
    ops.EngramInject(kv, q, k, n, 1e-20f, injected);
    add("EngramInject", injected, 1e-5f);
  }

  const OwnedWeight fn = RandomWeight(WeightFormat::kF32, (2 + n) * n, n * width, random);
  const OwnedVector base = RandomVector((2 + n) * n, false, random);
  const OwnedVector scale = RandomVector(3, false, random, 0.5f, 0.1f);
  Tensor mix(rows, (2 + n) * n);
  ops.MixStreams(streams, n, fn, base, scale, 20, 1e-6f, 1e-20f, mix);
  add("MixStreams", mix, 1e-5f);
  Tensor spread = streams;
  ops.SpreadStreams(y, mix, n, spread);
  add("SpreadStreams", spread, 1e-5f);
  Tensor mean(rows, width);
  ops.MeanStreams(streams, n, mean);
  add("MeanStreams", mean, 1e-6f);
  const OwnedVector norm_weight = RandomVector(width, true, random, 1, 0.2f);
  Tensor normed(rows, width);
  Tensor collapsed(rows, width);
  ops.CollapseNorm(streams, n, mix, norm_weight, 1e-20f, normed, collapsed);
  add("CollapseNorm normed", normed, 1e-5f);
  add("CollapseNorm collapsed", collapsed, 1e-5f);
  Tensor normed_only(rows, width);
  ops.CollapseNorm(streams, n, mix, norm_weight, 1e-20f, normed_only, {});
  EXPECT_TRUE(SameBits(normed_only, normed));

  for (const float limit : {0.0f, 2.5f}) {
    Tensor hidden(rows, width);
    ops.SwiGlu(y, z, limit, hidden);
    add("SwiGlu", hidden, 1e-6f);
  }
  Tensor sum = y;
  ops.Add(z, sum);
  add("Add", sum, 0);

  const int heads = 3;
  const int64_t head_width = width / heads;
  const int64_t rotary = std::min<int64_t>(head_width / 2 * 2, 150);
  std::vector<int64_t> positions;
  for (int64_t t = 0; t < rows; ++t) positions.push_back(random.Below(1000000));
  std::vector<float> frequencies;
  for (int64_t i = 0; i < rotary / 2; ++i) frequencies.push_back(std::exp2(-random.Uniform(0, 14)));
  Tensor cos_sin(rows, rotary);
  ops.RopeTable(positions, frequencies, cos_sin);
  add("RopeTable", cos_sin, 1e-6f);
  for (const bool inverse : {false, true}) {
    Tensor rotated = RandomTensor(rows, heads * head_width, random);
    ops.Rope(rotated, heads, cos_sin, inverse);
    add("Rope", rotated, 1e-6f);
  }

  const OwnedWeight hash_table = RandomWeight(WeightFormat::kF8Row32, 50, 64, random);
  std::vector<int64_t> hashes;
  for (int64_t i = 0; i < rows * 5; ++i) hashes.push_back(random.Below(50));
  Tensor gathered(rows, 5 * 64);
  ops.GatherRows(hash_table, {hashes.data(), rows, 5}, gathered);
  add("GatherRows", gathered, 0);

  const int64_t experts = 37;
  const int64_t picked = 5;
  const Tensor normal = [&] {
    Tensor x(rows, width);
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t c = 0; c < width; ++c) x.row(t)[c] = random.Normal() / std::sqrt(static_cast<float>(width));
    }
    return x;
  }();
  const OwnedWeight gate = RandomWeight(WeightFormat::kBF16, experts, width, random);
  const OwnedVector bias = RandomVector(experts, false, random, 0, 0.1f);
  for (const bool normalise : {false, true}) {
    std::vector<int32_t> picks(static_cast<size_t>(rows * picked), -1);
    Tensor weights(rows, picked);
    ops.Route(normal, gate, bias, normalise, 1.5f, {picks.data(), rows, picked}, weights);
    add("Route", weights, 1e-5f);
    Tensor ids(rows, picked);
    for (int64_t i = 0; i < rows * picked; ++i) {
      ids.row(i / picked)[i % picked] = static_cast<float>(picks[static_cast<size_t>(i)]);
    }
    add("Route picks", ids, 0);
  }
  return results;
}

TEST_P(TargetsTest, RowOpsLikeReference) {
  struct Shape {
    int64_t rows, width;
    int n;
  };
  for (const Shape shape : {Shape{0, 64, 4}, {1, 64, 4}, {2, 33, 2}, {3, 7, 3}, {5, 130, 1}, {37, 1096, 4}}) {
    SCOPED_TRACE(::testing::Message() << shape.rows << " rows of " << shape.width << ", " << shape.n << " streams");
    const std::vector<Named> actual = RunRowOps(*ReservedCpuOps(2), shape.rows, shape.width, shape.n);
    const std::unique_ptr<Ops> reference = MakeReferenceOps();
    const std::vector<Named> expected = RunRowOps(*reference, shape.rows, shape.width, shape.n);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(Near(actual[i].tensor, expected[i].tensor, expected[i].tolerance)) << expected[i].name;
    }
    for (const int threads : {1, 3}) {
      const std::vector<Named> other = RunRowOps(*ReservedCpuOps(threads), shape.rows, shape.width, shape.n);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(SameBits(other[i].tensor, actual[i].tensor)) << expected[i].name << " on " << threads << " threads";
      }
    }
  }
}

TEST(TargetsTogetherTest, FusedTargetsHaveTheSameBits) {
  std::vector<Named> first;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target == HWY_SCALAR || target == HWY_EMU128) continue;
    hwy::SetSupportedTargetsForTest(target);
    std::vector<Named> results = RunRowOps(*ReservedCpuOps(2), 9, 200, 4);
    if (first.empty()) first = std::move(results);
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(SameBits(results[i].tensor, first[i].tensor)) << first[i].name << " " << hwy::TargetName(target);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace deepinfer::test

#endif  // HWY_ONCE
