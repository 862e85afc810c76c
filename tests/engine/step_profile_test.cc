#include "engine/step_profile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/counter_rng.h"

namespace deepinfer {
namespace {

CostCurve Curve(const std::vector<CostPoint>& points) {
  Result<CostCurve> curve = CostCurve::Create(points);
  EXPECT_TRUE(curve.ok()) << curve.status().message();
  return *curve;
}

TEST(CostCurve, IsLinearBetweenPoints) {
  const CostCurve curve = Curve({{2, 10}, {4, 12}, {8, 20}});
  EXPECT_EQ(curve.Seconds(-1), 0);
  EXPECT_EQ(curve.Seconds(0), 0);
  EXPECT_EQ(curve.Seconds(1), 10);
  EXPECT_EQ(curve.Seconds(2), 10);
  EXPECT_EQ(curve.Seconds(3), 11);
  EXPECT_EQ(curve.Seconds(4), 12);
  EXPECT_EQ(curve.Seconds(6), 16);
  EXPECT_EQ(curve.Seconds(8), 20);
}

TEST(CostCurve, GoesOnWithTheSlopeOfTheLastOctave) {
  // From 16 to 32, not from 24 to 32.
  const CostCurve curve = Curve({{1, 1}, {16, 2}, {24, 9}, {32, 10}});
  EXPECT_EQ(curve.Seconds(64), 10 + 32 * 0.5);
  EXPECT_EQ(Curve({{1, 1}, {2, 3}}).Seconds(4), 7);
  EXPECT_EQ(Curve({{3, 6}}).Seconds(5), 10) << "a lone point goes on in proportion";
}

TEST(CostCurve, TakesALaterPointThatCostsLess) {
  const CostCurve curve = Curve({{1, 5}, {2, 3}, {3, 9}, {4, 4}});
  EXPECT_EQ(curve.Seconds(1), 3);
  EXPECT_EQ(curve.Seconds(2), 3);
  EXPECT_EQ(curve.Seconds(3), 4);
  EXPECT_EQ(curve.Seconds(4), 4);
}

TEST(CostCurve, NeverFalls) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<CostPoint> points;
    int64_t count = 0;
    for (uint32_t i = 0; i < 7; ++i) {
      count += 1 + static_cast<int64_t>(CounterBits(seed, 0, i, RandomPurpose::kSeed) % 5);
      points.push_back({count, OpenUnit(CounterBits(seed, 1, i, RandomPurpose::kSeed))});
    }
    const CostCurve curve = Curve(points);
    for (int64_t n = 0; n < 50; ++n) ASSERT_LE(curve.Seconds(n), curve.Seconds(n + 1)) << seed << " at " << n;
  }
}

TEST(CostCurve, RefusesPointsThatAreNone) {
  const std::vector<std::vector<CostPoint>> bad = {{},         {{0, 1}},        {{1, 0}},         {{1, -1}},
                                                   {{1, NAN}}, {{1, INFINITY}}, {{2, 1}, {2, 2}}, {{2, 1}, {1, 2}}};
  for (const std::vector<CostPoint>& points : bad) {
    EXPECT_EQ(CostCurve::Create(points).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(StepProfile, EmptyAndFlat) {
  EXPECT_TRUE(StepProfile().empty());
  EXPECT_FALSE(StepProfile().IsFlat());
  EXPECT_EQ(StepProfile().StepSeconds(5), 0);
  EXPECT_TRUE(StepProfile::FromPoints(std::vector<CostPoint>{{1, 1.0}, {64, 1.01}}, {})->IsFlat());
  EXPECT_FALSE(StepProfile::FromPoints(std::vector<CostPoint>{{1, 1.0}, {64, 1.1}}, {})->IsFlat());
  EXPECT_FALSE(StepProfile::FromPoints(std::vector<CostPoint>{{1, 1.0}}, {})->IsFlat());
}

TEST(ProfileCounts, AreGeometricAndEndAtTheMost) {
  EXPECT_EQ(ProfileCounts(1), (std::vector<int64_t>{1}));
  EXPECT_EQ(ProfileCounts(2), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(ProfileCounts(3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(ProfileCounts(13), (std::vector<int64_t>{1, 2, 3, 4, 6, 8, 12, 13}));
  EXPECT_EQ(ProfileCounts(64), (std::vector<int64_t>{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}));
}

/// A machine whose time passes by what it runs: step 10 + rows, draft 2 * sequences; of the runs of a count the
/// second is the fastest.
struct FakeMachine {
  double now = 100;
  double unit = 1;
  int64_t repeat = 0;
  std::vector<int64_t> steps;
  std::vector<int64_t> drafts;
  Status step_status;

  Result<StepProfile> Measure(const StepProfileOptions& options, bool with_drafts = true) {
    const auto step = [this](int64_t rows) {
      const double noise[] = {1.5, 1, 1.25};
      repeat = !steps.empty() && steps.back() == rows ? repeat + 1 : 0;
      now += unit * static_cast<double>(10 + rows) * noise[repeat % 3];
      steps.push_back(rows);
      return rows > 3 ? step_status : Status::Ok();
    };
    const auto draft = [this](int64_t sequences) {
      now += unit * 2 * static_cast<double>(sequences);
      drafts.push_back(sequences);
      return Status::Ok();
    };
    return MeasureStepProfile(
        step, with_drafts ? std::function<Status(int64_t)>(draft) : nullptr, [this] { return now; }, options);
  }
};

TEST(MeasureStepProfile, TakesTheFastestRepeat) {
  FakeMachine machine;
  const Result<StepProfile> profile =
      machine.Measure({.max_rows = 8, .max_sequences = 4, .repeats = 3, .budget_seconds = 1e6});
  ASSERT_TRUE(profile.ok());
  for (const int64_t rows : {1, 2, 3, 4, 6, 8}) {
    EXPECT_DOUBLE_EQ(profile->StepSeconds(rows), static_cast<double>(10 + rows));
  }
  for (const int64_t sequences : {1, 2, 3, 4}) {
    EXPECT_DOUBLE_EQ(profile->DraftSeconds(sequences), 2.0 * static_cast<double>(sequences));
  }
  EXPECT_EQ(profile->note(), "");
  EXPECT_EQ(machine.steps.size(), 1 + 6 * 3);
  EXPECT_EQ(machine.drafts.size(), 1 + 4 * 3);
  EXPECT_NE(profile->ToText().find("18000.000 ms"), std::string::npos) << profile->ToText();
}

TEST(MeasureStepProfile, StaysWithinItsBudgetAndSaysSo) {
  FakeMachine machine;
  const Result<StepProfile> profile =
      machine.Measure({.max_rows = 512, .max_sequences = 64, .repeats = 3, .budget_seconds = 600});
  ASSERT_TRUE(profile.ok());
  EXPECT_LT(machine.now - 100, 600 + 30) << "the warm-up comes on top";
  EXPECT_LT(profile->step().points().back().count, 512);
  EXPECT_GE(profile->step().points().back().count, 8);
  EXPECT_DOUBLE_EQ(profile->StepSeconds(512), 10 + 512) << "linear, so that extrapolation is right here";
  EXPECT_NE(profile->note().find("rows beyond"), std::string::npos) << profile->note();
  EXPECT_NE(profile->note().find("up to 512"), std::string::npos) << profile->note();
  EXPECT_NE(profile->note().find("drafts of sequences beyond"), std::string::npos) << profile->note();
}

TEST(MeasureStepProfile, NoBudgetIsOverrunByMoreThanNoise) {
  for (int budget = 200; budget < 2000; budget += 37) {
    FakeMachine machine;
    ASSERT_TRUE(machine.Measure({.max_rows = 4096, .budget_seconds = 1.0 * budget}, /*with_drafts=*/false).ok());
    const double last_point = 3 * static_cast<double>(10 + machine.steps.back());
    EXPECT_LT(machine.now - 100 - 1.5 * 11, budget + 0.3 * last_point) << budget;
  }
}

TEST(MeasureStepProfile, MeasuresTwoPointsWhateverTheBudget) {
  FakeMachine machine;
  const Result<StepProfile> profile = machine.Measure({.max_rows = 16, .repeats = 3, .budget_seconds = 0});
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(machine.steps, (std::vector<int64_t>{1, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(profile->step().points().size(), 2);
  EXPECT_EQ(profile->draft().points().size(), 2);
}

TEST(MeasureStepProfile, PassesErrorsOn) {
  FakeMachine machine;
  machine.step_status = Status::ResourceExhausted("no room");
  EXPECT_EQ(machine.Measure({.max_rows = 8, .budget_seconds = 1e6}).status().message(), "no room");
  EXPECT_TRUE(machine.Measure({.max_rows = 3, .budget_seconds = 1e6}).ok());
  EXPECT_EQ(machine.Measure({.max_rows = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(machine.Measure({.repeats = 0}).status().code(), StatusCode::kInvalidArgument);
  machine.unit = -1;
  EXPECT_EQ(machine.Measure({.max_rows = 2}).status().code(), StatusCode::kInternal);
}

TEST(MeasureStepProfile, WorksWithoutDraftsAndWithAClockThatStandsStill) {
  FakeMachine machine;
  machine.unit = 0;
  const Result<StepProfile> profile = machine.Measure({.max_rows = 4}, /*with_drafts=*/false);
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile->DraftSeconds(7), 0);
  EXPECT_GT(profile->StepSeconds(1), 0);
}

}  // namespace
}  // namespace deepinfer
