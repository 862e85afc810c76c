// Router and experts: who is picked, what weight it gets and where that weight multiplies (spec c.9).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "ops/ops.h"
#include "ops_test_util.h"

namespace deepinfer::test {
namespace {

class MoeTest : public OpsTest {};

struct Routing {
  std::vector<std::vector<int32_t>> picks;
  Tensor weights;
};

Routing RunRoute(Ops& ops, const Tensor& x, const WeightMatrix& gate, const WeightVector& bias, int64_t count,
                 bool normalise, float scaling) {
  std::vector<int32_t> picks(static_cast<size_t>(x.rows() * count), -1);
  Routing routing{{}, Tensor(x.rows(), count)};
  ops.Route(x, gate, bias, normalise, scaling, TensorView<int32_t>(picks.data(), x.rows(), count), routing.weights);
  EXPECT_TRUE(routing.weights.GapsUntouched());
  for (int64_t t = 0; t < x.rows(); ++t) {
    routing.picks.emplace_back(picks.begin() + t * count, picks.begin() + (t + 1) * count);
  }
  return routing;
}

// A gate whose logits for x = (1, 0, ...) are given.
OwnedWeight GateWithLogits(const std::vector<float>& logits) {
  OwnedWeight gate = ZeroWeight(WeightFormat::kBF16, static_cast<int64_t>(logits.size()), 32);
  for (size_t e = 0; e < logits.size(); ++e) gate.Set(static_cast<int64_t>(e), 0, logits[e]);
  return gate;
}
Tensor OneHot() {
  Tensor x(1, 32);
  x.Fill(0);
  x.row(0)[0] = 1;
  return x;
}
double Score(double logit) { return std::sqrt(std::log1p(std::exp(logit))); }

TEST_P(MoeTest, RouteByHand) {
  const OwnedWeight gate = GateWithLogits({1, 3, -2, 2});
  const OwnedVector no_bias({0, 0, 0, 0}, false);
  const Routing plain = RunRoute(ops(), OneHot(), gate, no_bias, 2, false, 1.5f);
  EXPECT_EQ(plain.picks[0], (std::vector<int32_t>{1, 3}));  // ascending ids
  EXPECT_NEAR(plain.weights.row(0)[0], 1.5 * Score(3), 1e-6);
  EXPECT_NEAR(plain.weights.row(0)[1], 1.5 * Score(2), 1e-6);
  const Routing normalised = RunRoute(ops(), OneHot(), gate, no_bias, 2, true, 1.5f);
  EXPECT_NEAR(normalised.weights.row(0)[0], 1.5 * Score(3) / (Score(3) + Score(2)), 1e-6);
  EXPECT_NEAR(normalised.weights.row(0)[1], 1.5 * Score(2) / (Score(3) + Score(2)), 1e-6);
}

TEST_P(MoeTest, BiasPicksButDoesNotWeigh) {
  const OwnedWeight gate = GateWithLogits({1, 3, -2, 2});
  const OwnedVector bias({0, -10, 5, 0}, false);
  const Routing routing = RunRoute(ops(), OneHot(), gate, bias, 2, true, 1);
  EXPECT_EQ(routing.picks[0], (std::vector<int32_t>{2, 3}));
  EXPECT_NEAR(routing.weights.row(0)[0], Score(-2) / (Score(-2) + Score(2)), 1e-6);
}

TEST_P(MoeTest, RouteTiesGoToTheLowestId) {
  const OwnedVector no_bias(std::vector<float>(6, 0.0f), false);
  EXPECT_EQ(RunRoute(ops(), OneHot(), GateWithLogits({1, 1, 1, 1, 1, 1}), no_bias, 3, true, 1).picks[0],
            (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(RunRoute(ops(), OneHot(), GateWithLogits({1, 2, 1, 1, 2, 1}), no_bias, 3, true, 1).picks[0],
            (std::vector<int32_t>{0, 1, 4}));
}

TEST_P(MoeTest, RouteKeepsExtremeLogitsFinite) {
  const OwnedVector no_bias({0, 0, 0}, false);
  const Routing routing = RunRoute(ops(), OneHot(), GateWithLogits({400, -400, 0}), no_bias, 3, false, 1);
  EXPECT_NEAR(routing.weights.row(0)[0], 20, 1e-5);
  EXPECT_NEAR(routing.weights.row(0)[1], 0, 1e-18);
  EXPECT_NEAR(routing.weights.row(0)[2], std::sqrt(std::log(2.0)), 1e-6);
}

TEST_P(MoeTest, RouteLikeReferenceAndIndependent) {
  Random random(1);
  for (const WeightFormat format : {WeightFormat::kBF16, WeightFormat::kF32}) {
    for (const int64_t experts : {8, 12, 64}) {
      const OwnedWeight gate = RandomWeight(format, experts, 96, random);
      const OwnedVector bias = RandomVector(experts, false, random, 0, 0.1f);
      for (const int64_t count : {1, 2, 6}) {
        const bool normalise = count != 2;
        const Tensor x = RandomTensor(19, 96, random);
        const Routing expected = RunRoute(reference(), x, gate, bias, count, normalise, 1.5f);
        const Routing actual = RunRoute(ops(), x, gate, bias, count, normalise, 1.5f);
        ASSERT_EQ(actual.picks, expected.picks);
        ASSERT_TRUE(Near(actual.weights, expected.weights, 2e-6f));
        ASSERT_TRUE(RunRoute(ops(), Tensor(0, 96), gate, bias, count, normalise, 1.5f).picks.empty());
        ExpectRowIndependence(ops(), peer(), 19, [&](Ops& each, const std::vector<int64_t>& rows) {
          const Routing part = RunRoute(each, x.Gather(rows), gate, bias, count, normalise, 1.5f);
          for (size_t i = 0; i < rows.size(); ++i) {
            EXPECT_EQ(part.picks[i], actual.picks[static_cast<size_t>(rows[i])]);
          }
          return part.weights.Gather([&] {
            std::vector<int64_t> all(rows.size());
            for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
            return all;
          }());
        });
      }
    }
  }
}

// Experts that own their weights.
struct OwnedExperts {
  OwnedExperts(WeightFormat format, int64_t count, int64_t width, int64_t inner, Random& random) {
    for (int64_t e = 0; e < count; ++e) {
      w1.push_back(RandomWeight(format, inner, width, random));
      w2.push_back(RandomWeight(format, width, inner, random));
      w3.push_back(RandomWeight(format, inner, width, random));
    }
  }
  std::vector<ExpertWeights> view() const {
    std::vector<ExpertWeights> views;
    for (size_t e = 0; e < w1.size(); ++e) views.push_back({w1[e], w2[e], w3[e]});
    return views;
  }
  std::vector<OwnedWeight> w1, w2, w3;
};

struct Task {
  Tensor x;
  std::vector<int32_t> picks;
  Tensor weights;
};

Task RandomTask(int64_t rows, int64_t width, int64_t per_token, int64_t experts, Random& random) {
  Task task{RandomTensor(rows, width, random), {}, Tensor(rows, per_token)};
  for (int64_t t = 0; t < rows; ++t) {
    std::vector<int32_t> ids;
    for (int32_t e = 0; e < experts; ++e) ids.push_back(e);
    for (int64_t k = 0; k < per_token; ++k) std::swap(ids[static_cast<size_t>(k)], ids[k + random.Below(experts - k)]);
    std::sort(ids.begin(), ids.begin() + per_token);
    task.picks.insert(task.picks.end(), ids.begin(), ids.begin() + per_token);
    for (int64_t k = 0; k < per_token; ++k) task.weights.row(t)[k] = random.Uniform(0.05f, 1.5f);
  }
  return task;
}

Tensor RunExperts(Ops& ops, const Task& task, const std::vector<int64_t>& rows, const OwnedExperts& experts,
                  float limit, ActivationFormat activation) {
  const int64_t per_token = task.weights.columns();
  std::vector<int32_t> picks;
  for (const int64_t row : rows) {
    picks.insert(picks.end(), task.picks.begin() + row * per_token, task.picks.begin() + (row + 1) * per_token);
  }
  Tensor out(static_cast<int64_t>(rows.size()), task.x.columns());
  ops.Experts(task.x.Gather(rows), TensorView<const int32_t>(picks.data(), out.rows(), per_token),
              task.weights.Gather(rows), experts.view(), limit, activation, out);
  EXPECT_TRUE(out.GapsUntouched());
  return out;
}

std::vector<int64_t> All(int64_t rows) {
  std::vector<int64_t> all(static_cast<size_t>(rows));
  for (int64_t t = 0; t < rows; ++t) all[static_cast<size_t>(t)] = t;
  return all;
}

// Gates far above the limit 32: silu(32) is exactly 32, so no backend's exponential shows and the products alone decide
// the bits.
TEST_P(MoeTest, ExpertProductsHaveCanonicalBits) {
  Random random(2);
  for (const WeightFormat format : {WeightFormat::kF4Row32, WeightFormat::kF8Block32}) {
    for (const ActivationFormat activation : {ActivationFormat::kExact, ActivationFormat::kFp8Groups32}) {
      for (const auto& [width, inner] : {std::pair{32, 32}, {96, 64}, {160, 288}}) {
        OwnedExperts experts(format, 9, width, inner, random);
        for (OwnedWeight& w1 : experts.w1) {
          std::fill_n(w1.scale(), w1.view().total_bytes() - inner * w1.view().row_bytes(), uint8_t{120});
          for (int64_t i = 0; i < inner; ++i) w1.Set(i, 0, 0x1p-6f);
        }
        for (const int64_t rows : {0, 1, 2, 13}) {
          Task task = RandomTask(rows, width, 3, 9, random);
          for (int64_t t = 0; t < rows; ++t) task.x.row(t)[0] = 0x1p20f;
          const Tensor expected = RunExperts(reference(), task, All(rows), experts, 32, activation);
          const Tensor actual = RunExperts(ops(), task, All(rows), experts, 32, activation);
          if (fused()) {
            ASSERT_TRUE(SameBits(actual, expected)) << "width " << width << " inner " << inner << " rows " << rows;
          } else {
            // As below: an ulp of a hidden value can be one step of E4M3.
            ASSERT_TRUE(Near(actual, expected, activation == ActivationFormat::kExact ? 1e-5f : 2e-2f));
          }
        }
      }
    }
  }
}

TEST_P(MoeTest, ExpertsAndSpreadAreTheThreeOps) {
  constexpr int64_t kPerToken = 3;
  Random random(8);
  for (const auto& [width, inner] : {std::pair<int64_t, int64_t>{96, 160}, {256, 128}}) {
    const OwnedExperts experts(WeightFormat::kF4Row32, 8, width, inner, random);
    const std::vector<ExpertWeights> views = experts.view();
    for (const int64_t rows : {0, 1, 5, 64, 65}) {
      for (const int n : {1, 4, 7}) {
        if (rows > 5 && n != 4) continue;
        const Task task = RandomTask(rows, width, kPerToken, 8, random);
        const TensorView<const int32_t> picks(task.picks.data(), rows, kPerToken);
        const Tensor shared = RandomTensor(rows, width, random), mix = RandomTensor(rows, (2 + n) * n, random);
        Tensor expected = RandomTensor(rows, n * width, random), sum(rows, width), out(rows, width);
        Tensor actual = expected;
        const ActivationFormat activation = ActivationFormat::kFp8Groups32;
        ops().Experts(task.x, picks, task.weights, views, 10, activation, sum);
        ops().Add(shared, sum);
        ops().SpreadStreams(sum, mix, n, expected);
        ops().ExpertsAndSpread(task.x, picks, task.weights, views, 10, activation, shared, out, mix, n, actual);
        ASSERT_TRUE(SameBits(out, sum)) << rows << " rows of " << width << ", streams " << n;
        ASSERT_TRUE(SameBits(actual, expected)) << rows << " rows of " << width << ", streams " << n;
        ASSERT_TRUE(actual.GapsUntouched());
      }
    }
  }
}

// Ordinary gates: exponentials differ by a few ulp between backends.
TEST_P(MoeTest, ExpertsLikeReference) {
  Random random(3);
  for (const int64_t per_token : {1, 2, 6}) {
    const OwnedExperts experts(WeightFormat::kF4Row32, 8, 96, 160, random);
    for (const int64_t rows : {0, 1, 5, 19}) {
      const Task task = RandomTask(rows, 96, per_token, 8, random);
      for (const float limit : {0.0f, 10.0f}) {
        ASSERT_TRUE(Near(RunExperts(ops(), task, All(rows), experts, limit, ActivationFormat::kExact),
                         RunExperts(reference(), task, All(rows), experts, limit, ActivationFormat::kExact), 1e-5f));
        // An ulp of the hidden vector can move it across a rounding boundary of E4M3: one step of one channel.
        ASSERT_TRUE(Near(RunExperts(ops(), task, All(rows), experts, limit, ActivationFormat::kFp8Groups32),
                         RunExperts(reference(), task, All(rows), experts, limit, ActivationFormat::kFp8Groups32),
                         2e-2f));
      }
    }
  }
}

TEST_P(MoeTest, ExpertRowsAreIndependent) {
  Random random(4);
  for (const WeightFormat format : {WeightFormat::kF4Row32, WeightFormat::kF8Block32}) {
    for (const ActivationFormat activation : {ActivationFormat::kExact, ActivationFormat::kFp8Groups32}) {
      const OwnedExperts experts(format, 6, 96, 64, random);
      const Task task = RandomTask(30, 96, 3, 6, random);
      ExpectRowIndependence(ops(), peer(), 30, [&](Ops& each, const std::vector<int64_t>& rows) {
        return RunExperts(each, task, rows, experts, 10, activation);
      });
    }
  }
}

// All tokens at one expert, far more than at the others.
TEST_P(MoeTest, UnevenLoadKeepsTheBits) {
  Random random(5);
  const OwnedExperts experts(WeightFormat::kF4Row32, 5, 64, 96, random);
  Task task = RandomTask(150, 64, 2, 5, random);
  for (int64_t t = 0; t < 150; ++t) {
    task.picks[static_cast<size_t>(2 * t)] = 1;
    task.picks[static_cast<size_t>(2 * t + 1)] = t % 50 == 7 ? 4 : 2;
  }
  const Tensor whole = RunExperts(ops(), task, All(150), experts, 10, ActivationFormat::kFp8Groups32);
  for (const int64_t t : {0, 7, 57, 100, 149}) {
    ASSERT_TRUE(SameBits(RunExperts(peer(), task, {t}, experts, 10, ActivationFormat::kFp8Groups32),
                         whole.view().RowRange(t, t + 1)));
  }
}

// One expert with w2 = identity shows its hidden vector: 32 * clamp(u) * weight, then E4M3 with one scale per 32.
TEST_P(MoeTest, RoutingWeightMultipliesBeforeQuantisation) {
  Random random(6);
  OwnedExperts experts(WeightFormat::kF4Row32, 1, 32, 32, random);
  experts.w1[0] = ZeroWeight(WeightFormat::kF4Row32, 32, 32);
  experts.w2[0] = ZeroWeight(WeightFormat::kF4Row32, 32, 32);
  experts.w3[0] = ZeroWeight(WeightFormat::kF4Row32, 32, 32);
  for (int64_t i = 0; i < 32; ++i) {
    experts.w1[0].Set(i, 0, 4);
    experts.w2[0].Set(i, i, 1);
  }
  experts.w3[0].Set(0, 0, 1);
  experts.w3[0].Set(1, 0, -6);
  experts.w3[0].Set(2, 0, 0.5f);
  Task task{Tensor(1, 32), {0}, Tensor(1, 1)};
  task.x.Fill(0);
  task.x.row(0)[0] = 8;                 // g = 32, u = 8, -48, 4
  task.weights.row(0)[0] = 17.0f / 16;  // h = 272, -1632, 136 without the clamp at 32
  const Tensor exact = RunExperts(ops(), task, {0}, experts, 0, ActivationFormat::kExact);
  EXPECT_EQ(exact.row(0)[0], 272);
  EXPECT_EQ(exact.row(0)[1], -1632);
  EXPECT_EQ(exact.row(0)[2], 136);
  // amax 1632 / 448 rounds up to scale 4: 68, 408, 34 in steps of 8, 32, 4: ties to 64, and 416, and 32 + 0 (tie at
  // 34).
  const Tensor quantised = RunExperts(ops(), task, {0}, experts, 0, ActivationFormat::kFp8Groups32);
  EXPECT_EQ(quantised.row(0)[0], 4 * 64);
  EXPECT_EQ(quantised.row(0)[1], -4 * 416);
  EXPECT_EQ(quantised.row(0)[2], 4 * 32);
  // With the weight after w2 the outputs would be 17/16 * (256, -1536, 128).
  const Tensor clamped = RunExperts(ops(), task, {0}, experts, 32, ActivationFormat::kExact);
  EXPECT_EQ(clamped.row(0)[1], -32 * 32 * 17.0f / 16);
}

// Picks are ascending. 2^24 + 1 - 2^24 loses the 1; 2^24 - 2^24 + 1 keeps it.
TEST_P(MoeTest, PicksAreAddedInOrder) {
  Random random(7);
  OwnedExperts experts(WeightFormat::kF4Row32, 4, 32, 32, random);
  for (size_t e = 0; e < 4; ++e) {
    experts.w1[e] = ZeroWeight(WeightFormat::kF4Row32, 32, 32);
    experts.w2[e] = ZeroWeight(WeightFormat::kF4Row32, 32, 32);
    experts.w3[e] = ZeroWeight(WeightFormat::kF4Row32, 32, 32);
    experts.w1[e].Set(0, 0, 4);
    experts.w2[e].Set(0, 0, e == 2 ? -1 : 1);
    experts.w3[e].Set(0, 0, 4);
  }
  Task task{Tensor(2, 32), {0, 1, 2, 0, 2, 3}, Tensor(2, 3)};
  task.x.Fill(0);
  task.x.row(0)[0] = 8;  // every hidden is 32 * 32 * weight
  task.x.row(1)[0] = 8;
  std::copy_n(std::vector<float>{0x1p14f, 0x1p-10f, 0x1p14f}.data(), 3, task.weights.row(0));
  std::copy_n(std::vector<float>{0x1p14f, 0x1p14f, 0x1p-10f}.data(), 3, task.weights.row(1));
  const Tensor out = RunExperts(ops(), task, {0, 1}, experts, 0, ActivationFormat::kExact);
  EXPECT_EQ(out.row(0)[0], 0);
  EXPECT_EQ(out.row(1)[0], 1);
}

DEEPINFER_INSTANTIATE_BACKENDS(MoeTest);

}  // namespace
}  // namespace deepinfer::test
