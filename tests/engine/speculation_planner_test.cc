#include "engine/speculation_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/counter_rng.h"
#include "tests/allocation_counter.h"

namespace deepinfer {
namespace {

using Lengths = std::vector<int32_t>;

double Uniform(uint64_t seed, uint64_t index, uint32_t lane = 0) {
  return OpenUnit(CounterBits(seed, index, lane, RandomPurpose::kSeed));
}

StepProfile Profile(const std::vector<CostPoint>& step, const std::vector<CostPoint>& draft = {}) {
  Result<StepProfile> profile = StepProfile::FromPoints(step, draft);
  EXPECT_TRUE(profile.ok()) << profile.status().message();
  return *profile;
}

/// A step costs `step` + `row` for each of its rows, drafting `draft` for each sequence.
StepProfile Linear(double step, double row, double draft = 0) {
  const std::vector<CostPoint> draft_points = {{1, draft}, {2, 2 * draft}};
  return Profile({{1, step + row}, {1000, step + 1000 * row}}, draft > 0 ? draft_points : std::vector<CostPoint>());
}

/// Survivals on a coarse grid, so that ties are common.
std::vector<float> RandomSurvival(int64_t sequences, int64_t block_size, uint64_t seed) {
  std::vector<float> survival;
  for (int64_t r = 0; r < sequences; ++r) {
    double product = 1;
    for (int64_t j = 0; j < block_size; ++j) {
      product *= std::ceil(8 * Uniform(seed, r, j)) / 8;
      survival.push_back(static_cast<float>(product));
    }
  }
  return survival;
}

/// Costs with cliffs: a random staircase.
StepProfile RandomStairs(uint64_t seed) {
  std::vector<CostPoint> points;
  double seconds = 1;
  int64_t rows = 1;
  for (uint32_t i = 0; i < 6; ++i) {
    const int64_t last = rows + static_cast<int64_t>(4 * Uniform(seed, 1, i));
    if (last > rows) points.push_back({rows, seconds});
    points.push_back({last, seconds});
    rows = last + 1;
    seconds += 1.5 * Uniform(seed, 2, i);
  }
  const double draft = Uniform(seed, 3);
  return Profile(points, {{1, draft}, {4, 2 * draft}});
}

double Theta(const StepProfile& profile, const SpeculationBatch& batch, int64_t block_size, const Lengths& lengths) {
  double tokens = 0;
  int64_t rows = batch.other_rows;
  int64_t drafted = 0;
  for (size_t r = 0; r < lengths.size(); ++r) {
    tokens += 1;
    rows += 1 + lengths[r];
    drafted += batch.limits.empty() || batch.limits[r] > 0 ? 1 : 0;
    for (int32_t j = 0; j < lengths[r]; ++j) tokens += batch.survival[r * static_cast<size_t>(block_size) + j];
  }
  return tokens / (profile.DraftSeconds(drafted) + profile.StepSeconds(rows));
}

void ForEachLengths(const Lengths& limits, const std::function<void(const Lengths&)>& visit) {
  Lengths lengths(limits.size());
  while (true) {
    visit(lengths);
    size_t r = 0;
    while (r < lengths.size() && lengths[r] == limits[r]) lengths[r++] = 0;
    if (r == lengths.size()) return;
    ++lengths[r];
  }
}

TEST(PlanVerification, NoLengthsAreBetter) {
  constexpr int64_t kBlock = 3;
  int64_t trimmed = 0;
  int64_t full = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const int64_t sequences = 1 + static_cast<int64_t>(seed % 3);
    const StepProfile profile = RandomStairs(seed);
    if (profile.IsFlat()) continue;
    const std::vector<float> survival = RandomSurvival(sequences, kBlock, seed);
    Lengths limits(sequences, kBlock);
    if (seed % 4 == 0) limits[seed % sequences] = static_cast<int32_t>(seed / 4 % 3);
    const SpeculationBatch batch = {
        .survival = survival, .limits = limits, .other_rows = static_cast<int64_t>(seed % 5)};
    SpeculationPlanner planner(&profile, kBlock, {.flat_tolerance = 0});
    planner.Reserve(sequences);
    Lengths lengths(sequences, -1);
    const int64_t sum = planner.PlanVerification(batch, lengths);
    EXPECT_EQ(sum, std::accumulate(lengths.begin(), lengths.end(), 0));

    double best = 0;
    ForEachLengths(limits, [&](const Lengths& other) { best = std::max(best, Theta(profile, batch, kBlock, other)); });
    EXPECT_NEAR(Theta(profile, batch, kBlock, lengths), best, 1e-12 * best) << seed;
    for (int64_t r = 0; r < sequences; ++r) EXPECT_LE(lengths[r], limits[r]);
    (sum < std::accumulate(limits.begin(), limits.end(), 0) ? trimmed : full) += 1;
  }
  EXPECT_GT(trimmed, 50) << "both outcomes must occur, or the test says little";
  EXPECT_GT(full, 50);
}

TEST(PlanVerification, FlatCostsVerifyAllAndSteepCostsNone) {
  const std::vector<float> survival = RandomSurvival(4, 5, 1);
  const SpeculationBatch batch = {.survival = survival};
  Lengths lengths(4);

  const StepProfile cheap_rows = Linear(1, 1e-6);
  SpeculationPlanner on_flat_part(&cheap_rows, 5);
  EXPECT_TRUE(on_flat_part.trims() == !cheap_rows.IsFlat());
  EXPECT_EQ(on_flat_part.PlanVerification(batch, lengths), 20);
  EXPECT_EQ(lengths, Lengths(4, 5));

  const StepProfile rows_are_all = Linear(1e-9, 1);
  SpeculationPlanner on_steep_part(&rows_are_all, 5);
  // A row costs as much as a step: a draft would have to be certain.
  const std::vector<float> likely(20, 0.99F);
  EXPECT_EQ(on_steep_part.PlanVerification({.survival = likely}, lengths), 0);
  EXPECT_EQ(lengths, Lengths(4, 0));
}

TEST(PlanVerification, AFlatPartCostsAtMostItsTolerance) {
  // The last draft is hopeless and rows are cheap but not free: planning would drop it, the flat rule keeps it.
  const StepProfile profile = Linear(100, 0.2);
  const std::vector<float> survival = {0.9F, 0.0001F, 0.8F, 0.0001F};
  const SpeculationBatch batch = {.survival = survival};
  Lengths exact(2);
  Lengths flat(2);
  SpeculationPlanner planner(&profile, 2, {.flat_tolerance = 0});
  SpeculationPlanner tolerant(&profile, 2, {.flat_tolerance = 0.02});
  EXPECT_EQ(planner.PlanVerification(batch, exact), 2);
  EXPECT_EQ(tolerant.PlanVerification(batch, flat), 4);
  EXPECT_GE(Theta(profile, batch, 2, flat), Theta(profile, batch, 2, exact) / 1.02);
}

TEST(PlanVerification, CrossesACliffWhenTheOtherSideIsBetter) {
  // Row 3 costs as much as rows 3 to 8 together: Theta falls at K = 2 and rises above all before at K = 7.
  const StepProfile profile = Profile({{1, 1.0}, {2, 1.0}, {3, 2.5}, {8, 2.5}, {9, 9.0}, {10, 9.0}});
  std::vector<float> survival;
  for (int j = 0; j < 8; ++j) survival.push_back(static_cast<float>(std::pow(0.97, j + 1)));
  Lengths lengths(1);
  SpeculationPlanner planner(&profile, 8);
  EXPECT_LT(Theta(profile, {.survival = survival}, 8, {2}), Theta(profile, {.survival = survival}, 8, {1}));
  planner.PlanVerification({.survival = survival}, lengths);
  EXPECT_EQ(lengths[0], 7);
  // With worse drafts the near side is better.
  for (float& a : survival) a *= 0.3F;
  planner.PlanVerification({.survival = survival}, lengths);
  EXPECT_EQ(lengths[0], 1);
}

TEST(PlanVerification, OtherRowsOfTheStepCount) {
  // Alone the sequence sits below the cliff at 4 rows; with three prefill rows every draft is beyond it.
  const StepProfile profile = Profile({{1, 1.0}, {4, 1.0}, {5, 2.0}, {6, 3.0}, {7, 4.0}, {8, 5.0}});
  const std::vector<float> survival = {0.9F, 0.8F, 0.7F};
  Lengths lengths(1);
  SpeculationPlanner planner(&profile, 3);
  EXPECT_EQ(planner.PlanVerification({.survival = survival}, lengths), 3);
  EXPECT_EQ(planner.PlanVerification({.survival = survival, .other_rows = 3}, lengths), 0);
}

TEST(PlanVerification, WithoutAProfileEverythingIsVerifiedAndSaid) {
  const StepProfile empty;
  const StepProfile flat = Profile({{1, 1.0}, {64, 1.0}});
  const std::vector<float> survival(6, 0);
  const Lengths limits = {1, 3};
  for (const StepProfile* profile : {static_cast<const StepProfile*>(nullptr), &empty, &flat}) {
    SpeculationPlanner planner(profile, 3);
    EXPECT_FALSE(planner.trims());
    EXPECT_NE(planner.warning().find("profile"), std::string::npos);
    Lengths lengths(2);
    EXPECT_EQ(planner.PlanVerification({.survival = survival, .limits = limits}, lengths), 4);
    EXPECT_EQ(lengths, limits);
    EXPECT_EQ(planner.PlanCapacity({.survival = survival, .limits = limits}), 4);
  }
  EXPECT_TRUE(SpeculationPlanner(nullptr, 3).DecideDrafting({.survival = survival}).draft);
  EXPECT_EQ(SpeculationPlanner(nullptr, 3).warning(),
            "speculation: no step profile, so every step drafts and every draft is verified");
  const StepProfile steep = Linear(1, 1);
  EXPECT_TRUE(SpeculationPlanner(&steep, 3).trims());
  EXPECT_EQ(SpeculationPlanner(&steep, 3).warning(), "");
}

TEST(AdmitTop, TakesPrefixesInTheOrderOfTheRanking) {
  constexpr int64_t kBlock = 4;
  const StepProfile profile = Linear(1, 1);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const int64_t sequences = 1 + static_cast<int64_t>(seed % 5);
    const std::vector<float> survival = RandomSurvival(sequences, kBlock, seed);
    std::vector<std::array<double, 3>> ranked;  // -a, r, j
    for (int64_t r = 0; r < sequences; ++r) {
      for (int64_t j = 0; j < kBlock; ++j) {
        ranked.push_back({-survival[r * kBlock + j], static_cast<double>(r), static_cast<double>(j)});
      }
    }
    std::sort(ranked.begin(), ranked.end());
    SpeculationPlanner planner(&profile, kBlock);
    Lengths before(sequences, 0);
    for (int64_t capacity = 0; capacity <= sequences * kBlock; ++capacity) {
      Lengths lengths(sequences, -1);
      ASSERT_EQ(planner.AdmitTop({.survival = survival}, capacity, lengths), capacity);
      Lengths expected(sequences, 0);
      for (int64_t i = 0; i < capacity; ++i) {
        const int64_t r = static_cast<int64_t>(ranked[i][1]);
        ASSERT_EQ(expected[r], ranked[i][2]) << "admission of a sequence is a prefix";
        ++expected[r];
      }
      ASSERT_EQ(lengths, expected);
      for (int64_t r = 0; r < sequences; ++r) ASSERT_GE(lengths[r], before[r]) << "more capacity never takes away";
      before = lengths;
    }
  }
}

TEST(AdmitTop, BoundsCapacityAndMendsSurvivals) {
  const StepProfile profile = Linear(1, 1);
  SpeculationPlanner planner(&profile, 3);
  const std::vector<float> survival = {0.5F, 0.9F, 0.8F,   // rises: counts as 0.5, 0.5, 0.5
                                       NAN,  1.0F, 1.0F};  // counts as 0
  Lengths lengths(2);
  EXPECT_EQ(planner.AdmitTop({.survival = survival}, 2, lengths), 2);
  EXPECT_EQ(lengths, (Lengths{2, 0}));
  EXPECT_EQ(planner.AdmitTop({.survival = survival}, 4, lengths), 4);
  EXPECT_EQ(lengths, (Lengths{3, 1}));
  EXPECT_EQ(planner.AdmitTop({.survival = survival}, 99, lengths), 6);
  EXPECT_EQ(planner.AdmitTop({.survival = survival}, -1, lengths), 0);
  const Lengths limits = {-5, 2};
  EXPECT_EQ(planner.AdmitTop({.survival = survival, .limits = limits}, 99, lengths), 2);
  EXPECT_EQ(lengths, (Lengths{0, 2}));
  EXPECT_EQ(planner.AdmitTop({}, 5, {}), 0);
}

TEST(PlanCapacity, WithAdmitTopIsPlanVerificationWhenNothingIsStale) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const StepProfile profile = RandomStairs(seed);
    const std::vector<float> survival = RandomSurvival(3, 3, seed);
    SpeculationPlanner planner(&profile, 3);
    Lengths direct(3);
    Lengths two_stages(3);
    planner.PlanVerification({.survival = survival}, direct);
    planner.AdmitTop({.survival = survival}, planner.PlanCapacity({.survival = survival}), two_stages);
    EXPECT_EQ(direct, two_stages) << seed;
  }
}

// --- whether to draft ---------------------------------------------------------------------------------------------

/// One sequence, one draft: gain = (1 + a) * step / (step + row + draft) - 1 when the draft is verified.
struct OneDraft {
  StepProfile profile = Linear(9, 1, 1);  // 10 without, 12 with
  float AtGain(double gain) const { return static_cast<float>((1 + gain) * 12 / 10 - 1); }
};

TEST(DecideDrafting, HasHysteresis) {
  const OneDraft setting;
  SpeculationPlanner planner(&setting.profile, 1, {.probe_share = 0});
  const auto decide = [&](double gain) {
    const float survival = setting.AtGain(gain);
    const DraftDecision decision = planner.DecideDrafting({.survival = {&survival, 1}});
    EXPECT_NEAR(decision.gain, gain, 1e-6);
    return decision.draft;
  };
  EXPECT_TRUE(decide(0.5));
  EXPECT_TRUE(decide(0.01)) << "on stays on while it gains at all";
  EXPECT_FALSE(decide(-0.01));
  EXPECT_FALSE(decide(0.01)) << "off stays off while it gains little";
  EXPECT_FALSE(decide(0.029));
  EXPECT_TRUE(decide(0.031));
  EXPECT_TRUE(decide(0.001));
}

TEST(DecideDrafting, WeighsTheCostOfDrafting) {
  const std::vector<float> survival = {0.7F, 0.5F};
  const StepProfile cheap = Linear(10, 0.5, 0.1);
  const StepProfile dear = Linear(10, 0.5, 20);
  SpeculationPlanner with_cheap(&cheap, 2);
  SpeculationPlanner with_dear(&dear, 2);
  EXPECT_TRUE(with_cheap.DecideDrafting({.survival = survival}).draft);
  EXPECT_FALSE(with_dear.DecideDrafting({.survival = survival}).draft);
}

TEST(DecideDrafting, DoesNothingForAnEmptyBatch) {
  const OneDraft setting;
  SpeculationPlanner planner(&setting.profile, 1);
  EXPECT_FALSE(planner.DecideDrafting({}).draft);
  const float good = 0.9F;
  const Lengths none = {0};
  EXPECT_FALSE(planner.DecideDrafting({.survival = {&good, 1}, .limits = none}).draft);
  const float fair = setting.AtGain(0.01);
  EXPECT_TRUE(planner.DecideDrafting({.survival = {&fair, 1}}).draft) << "still on";
}

TEST(DecideDrafting, ProbesAreRareAndKeepTheirShareOfTime) {
  const StepProfile profile = Linear(2, 8, 5);
  SpeculationPlanner planner(&profile, 5);
  double plain_seconds = 0;
  double probe_seconds = 0;
  int64_t probes = 0;
  for (int64_t step = 0; step < 20000; ++step) {
    const int64_t sequences = 1 + step / 100 % 4;
    const std::vector<float> survival(5 * sequences, 0.05F);
    const DraftDecision decision = planner.DecideDrafting({.survival = survival});
    EXPECT_LT(decision.gain, 0);
    EXPECT_EQ(decision.draft, decision.probe);
    plain_seconds += profile.StepSeconds(sequences);
    if (!decision.probe) continue;
    ++probes;
    Lengths lengths(sequences);
    const int64_t drafts = planner.VerifyAll({.survival = survival}, lengths);
    EXPECT_EQ(drafts, 5 * sequences);
    probe_seconds +=
        profile.DraftSeconds(sequences) + profile.StepSeconds(sequences + drafts) - profile.StepSeconds(sequences);
    ASSERT_LE(probe_seconds, 0.01 * plain_seconds);
  }
  EXPECT_GT(probe_seconds, 0.009 * plain_seconds) << "and uses its share, or the estimates would starve";
  EXPECT_GT(probes, 20);
}

TEST(DecideDrafting, TheSameCallsGiveTheSameDecisions) {
  const StepProfile profile = Linear(9, 1, 3);
  std::array<SpeculationPlanner, 2> planners = {SpeculationPlanner(&profile, 3), SpeculationPlanner(&profile, 3)};
  int64_t drafted = 0;
  for (uint64_t step = 0; step < 2000; ++step) {
    const std::vector<float> survival = RandomSurvival(1 + step % 3, 3, step);
    const DraftDecision a = planners[0].DecideDrafting({.survival = survival});
    const DraftDecision b = planners[1].DecideDrafting({.survival = survival});
    ASSERT_EQ(a.draft, b.draft);
    ASSERT_EQ(a.probe, b.probe);
    ASSERT_EQ(a.gain, b.gain);
    drafted += a.draft ? 1 : 0;
  }
  EXPECT_GT(drafted, 100);
  EXPECT_LT(drafted, 1900);
}

TEST(UpdateSurvivalAverage, MovesTowardsTheSample) {
  std::vector<float> average = {1, 0.5F};
  UpdateSurvivalAverage(average, std::vector<float>{0, 0.5F}, 0.25F);
  EXPECT_EQ(average, (std::vector<float>{0.75F, 0.5F}));
}

TEST(SpeculationPlanner, AllocatesNothingAfterReserve) {
  if (!test::CountsAllocations()) GTEST_SKIP() << "allocations are not counted under a sanitizer";
  const StepProfile profile = Linear(9, 1, 1);
  const std::vector<float> survival = RandomSurvival(64, 5, 1);
  Lengths lengths(64);
  SpeculationPlanner planner(&profile, 5);
  planner.Reserve(64);
  const int64_t before = test::AllocationCount();
  planner.DecideDrafting({.survival = survival});
  planner.PlanVerification({.survival = survival}, lengths);
  planner.AdmitTop({.survival = survival}, planner.PlanCapacity({.survival = survival}), lengths);
  planner.VerifyAll({.survival = survival}, lengths);
  EXPECT_EQ(test::AllocationCount() - before, 0);
}

// --- losslessness under rejection sampling (spec serving.md 3.2, 12.1), by exact enumeration ------------------------

/// A toy request over the vocabulary {0, 1} with blocks of two drafts.
struct ToyRequest {
  double target[2];            // P(first = 0), P(second = 0 | first) below
  double target_second[2];     // by first
  double draft;                // Q(first = 0)
  double draft_second[2];      // by first
  float first_survival;        // confidence of draft 1: knows nothing of the draws
  float second_confidence[2];  // confidence of draft 2, by draft 1

  double Target(int first) const { return first == 0 ? target[0] : target[1]; }
  double TargetSecond(int first, int second) const {
    return second == 0 ? target_second[first] : 1 - target_second[first];
  }
  double Draft(int first) const { return first == 0 ? draft : 1 - draft; }
  double DraftSecond(int first, int second) const {
    return second == 0 ? draft_second[first] : 1 - draft_second[first];
  }
};

using Law = std::array<double, 4>;  // of the first two tokens, index 2 * first + second

ToyRequest MakeToy(double p, double p0, double p1, double q, double q0, double q1, float a, float c0, float c1) {
  return {{p, 1 - p}, {p0, p1}, q, {q0, q1}, a, {c0, c1}};
}

Law TargetLaw(const ToyRequest& r) {
  Law law{};
  for (int y = 0; y < 4; ++y) law[y] = r.Target(y / 2) * r.TargetSecond(y / 2, y % 2);
  return law;
}

double Residual(double p, double q, double other_p, double other_q) {
  const double mass = std::max(p - q, 0.0) + std::max(other_p - other_q, 0.0);
  return mass > 0 ? std::max(p - q, 0.0) / mass : p;
}

/// Law of the first two tokens when drafts (x1, x2) are verified up to `length`; beyond it the target goes on.
Law VerifiedLaw(const ToyRequest& r, int x1, int x2, int length) {
  if (length == 0) return TargetLaw(r);
  Law law{};
  const double accept = std::min(1.0, r.Target(x1) / r.Draft(x1));
  for (int y1 = 0; y1 < 2; ++y1) {
    const double instead = Residual(r.Target(y1), r.Draft(y1), r.Target(1 - y1), r.Draft(1 - y1));
    for (int y2 = 0; y2 < 2; ++y2) law[2 * y1 + y2] += (1 - accept) * instead * r.TargetSecond(y1, y2);
  }
  if (length == 1) {
    for (int y2 = 0; y2 < 2; ++y2) law[2 * x1 + y2] += accept * r.TargetSecond(x1, y2);
    return law;
  }
  const double accept2 = std::min(1.0, r.TargetSecond(x1, x2) / r.DraftSecond(x1, x2));
  law[2 * x1 + x2] += accept * accept2;
  for (int y2 = 0; y2 < 2; ++y2) {
    law[2 * x1 + y2] +=
        accept * (1 - accept2) *
        Residual(r.TargetSecond(x1, y2), r.DraftSecond(x1, y2), r.TargetSecond(x1, 1 - y2), r.DraftSecond(x1, 1 - y2));
  }
  return law;
}

/// Total variation between the joint law of all requests under `schedule` and the target.
double Bias(const std::vector<ToyRequest>& requests,
            const std::function<void(const SpeculationBatch&, std::span<int32_t>)>& schedule) {
  const size_t count = requests.size();
  size_t outcomes = 1;
  for (size_t r = 0; r < count; ++r) outcomes *= 4;
  const auto digit = [](size_t code, size_t r) { return static_cast<int>(code >> (2 * r) & 3); };
  std::vector<double> joint(outcomes);
  for (size_t drafts = 0; drafts < outcomes; ++drafts) {
    double weight = 1;
    std::vector<float> survival;
    for (size_t r = 0; r < count; ++r) {
      const int x = digit(drafts, r);
      weight *= requests[r].Draft(x / 2) * requests[r].DraftSecond(x / 2, x % 2);
      survival.push_back(requests[r].first_survival);
      survival.push_back(requests[r].first_survival * requests[r].second_confidence[x / 2]);
    }
    Lengths lengths(count);
    schedule({.survival = survival}, lengths);
    std::vector<Law> laws;
    for (size_t r = 0; r < count; ++r) {
      const int x = digit(drafts, r);
      laws.push_back(VerifiedLaw(requests[r], x / 2, x % 2, lengths[r]));
    }
    for (size_t y = 0; y < outcomes; ++y) {
      double probability = weight;
      for (size_t r = 0; r < count; ++r) probability *= laws[r][static_cast<size_t>(digit(y, r))];
      joint[y] += probability;
    }
  }
  double distance = 0;
  for (size_t y = 0; y < outcomes; ++y) {
    double probability = 1;
    for (size_t r = 0; r < count; ++r) probability *= TargetLaw(requests[r])[static_cast<size_t>(digit(y, r))];
    distance += std::abs(joint[y] - probability) / 2;
  }
  return distance;
}

const std::vector<ToyRequest>& TwoToys() {
  static const std::vector<ToyRequest> requests = {
      MakeToy(0.7, 0.6, 0.2, 0.5, 0.5, 0.4, 0.6F, 0.9F, 0.2F),
      MakeToy(0.3, 0.1, 0.8, 0.6, 0.3, 0.5, 0.5F, 0.3F, 0.95F),
  };
  return requests;
}

TEST(Rejection, TopOfAFixedCapacityIsLossless) {
  const StepProfile profile = Linear(1, 1);
  SpeculationPlanner planner(&profile, 2);
  for (int64_t capacity = 0; capacity <= 4; ++capacity) {
    EXPECT_LT(Bias(TwoToys(),
                   [&](const SpeculationBatch& batch, std::span<int32_t> lengths) {
                     EXPECT_EQ(planner.AdmitTop(batch, capacity, lengths), capacity);
                   }),
              1e-15)
        << capacity;
  }
  // Ties between the positions of a request and between requests.
  std::vector<ToyRequest> ties = TwoToys();
  ties[0].second_confidence[0] = ties[1].second_confidence[1] = 1;
  ties[1].first_survival = ties[0].first_survival;
  for (int64_t capacity = 0; capacity <= 4; ++capacity) {
    EXPECT_LT(Bias(ties, [&](const SpeculationBatch& batch,
                             std::span<int32_t> lengths) { planner.AdmitTop(batch, capacity, lengths); }),
              1e-15)
        << capacity;
  }
}

TEST(Rejection, ARandomCapacityOfThePastIsLosslessToo) {
  const StepProfile profile = RandomStairs(5);
  SpeculationPlanner planner(&profile, 2);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> stale = RandomSurvival(2, 2, seed);
    const int64_t capacity = planner.PlanCapacity({.survival = stale});
    EXPECT_LT(Bias(TwoToys(), [&](const SpeculationBatch& batch,
                                  std::span<int32_t> lengths) { planner.AdmitTop(batch, capacity, lengths); }),
              1e-15);
  }
}

TEST(Rejection, PlanningByCurrentConfidencesIsBiased) {
  // Two drafts are worth the cliff when the second of request 0 ranks among them, that is when its first is 0.
  const StepProfile profile = Profile({{1, 1.0}, {2, 1.0}, {3, 1.56}, {4, 1.56}, {5, 9.0}, {6, 9.0}});
  SpeculationPlanner planner(&profile, 2);
  const double bias = Bias(TwoToys(), [&](const SpeculationBatch& batch, std::span<int32_t> lengths) {
    planner.PlanVerification(batch, lengths);
  });
  EXPECT_NEAR(bias, 0.15, 0.05);
}

TEST(Rejection, AdmittingATokenOnlyIfItIsAGivesEightyFivePercent) {
  // Target (0.7, 0.3), draft (0.5, 0.5). After A (= 0) the next confidence is high and two drafts are worth the cliff,
  // after B they are not: so A is admitted only if it is A.
  const std::vector<ToyRequest> toy = {MakeToy(0.7, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5F, 1, 0)};
  const StepProfile profile = Profile({{1, 1.0}, {2, 1.6}, {3, 1.6}, {4, 9.0}});
  SpeculationPlanner planner(&profile, 2);
  const auto probability_of_a = [&](const std::function<void(const SpeculationBatch&, std::span<int32_t>)>& schedule) {
    double sum = 0;
    for (int x = 0; x < 4; ++x) {
      const std::vector<float> survival = {0.5F, 0.5F * toy[0].second_confidence[x / 2]};
      Lengths lengths(1);
      schedule({.survival = survival}, lengths);
      const Law law = VerifiedLaw(toy[0], x / 2, x % 2, lengths[0]);
      sum += toy[0].Draft(x / 2) * toy[0].DraftSecond(x / 2, x % 2) * (law[0] + law[1]);
    }
    return sum;
  };
  EXPECT_NEAR(probability_of_a([&](const SpeculationBatch& batch, std::span<int32_t> lengths) {
                planner.PlanVerification(batch, lengths);
                EXPECT_EQ(lengths[0], batch.survival[1] > 0 ? 2 : 0);
              }),
              0.85, 1e-12);
  for (int64_t capacity = 0; capacity <= 2; ++capacity) {
    EXPECT_NEAR(probability_of_a([&](const SpeculationBatch& batch, std::span<int32_t> lengths) {
                  planner.AdmitTop(batch, capacity, lengths);
                }),
                0.7, 1e-12)
        << capacity;
  }
}

}  // namespace
}  // namespace deepinfer
