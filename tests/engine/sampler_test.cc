#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/counter_rng.h"

namespace deepinfer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams At(double temperature, uint64_t seed = 1) {
  SamplingParams params;
  params.temperature = temperature;
  params.seed = seed;
  return params;
}

std::vector<float> RandomLogits(size_t size, uint64_t seed, double spread) {
  std::vector<float> logits(size);
  for (size_t i = 0; i < size; ++i) {
    // Rounded, so that equal logits are common.
    const double u = OpenUnit(CounterBits(seed, 0, i, RandomPurpose::kSeed));
    logits[i] = static_cast<float>(std::round(u * spread * 8) / 8);
  }
  return logits;
}

/// The definition, spelled out: sort everything, cut three times, add the noise.
int32_t NaiveSample(const std::vector<float>& logits, const SamplingParams& params, int64_t position) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (params.top_k > 0) ids.resize(std::min<size_t>(ids.size(), params.top_k));
  const double largest = logits[ids[0]];
  const auto weight = [&](int32_t id) { return std::exp((logits[id] - largest) / params.temperature); };
  std::vector<int32_t> by_id = ids;
  std::sort(by_id.begin(), by_id.end());
  double total = 0;
  for (int32_t id : by_id) total += weight(id);
  double reached = 0;
  size_t kept = 0;
  while (kept < ids.size() && (kept == 0 || params.top_p >= 1 || reached < params.top_p * total)) {
    reached += weight(ids[kept++]);
  }
  ids.resize(kept);
  int32_t choice = -1;
  double best = -std::numeric_limits<double>::infinity();
  std::sort(ids.begin(), ids.end());
  for (int32_t id : ids) {
    if (weight(id) < params.min_p) continue;
    const double value = (logits[id] - largest) / params.temperature +
                         Gumbel(CounterBits(params.seed, position, id, RandomPurpose::kToken));
    if (value > best) {
      best = value;
      choice = id;
    }
  }
  return choice;
}

TEST(Sampler, EqualsItsDefinition) {
  Sampler sampler;
  for (size_t vocabulary : {1u, 2u, 7u, 300u, 5000u}) {
    for (int round = 0; round < 60; ++round) {
      const std::vector<float> logits = RandomLogits(vocabulary, 100 + round, round % 2 == 0 ? 3 : 25);
      SamplingParams params = At(std::array{0.1, 0.7, 1.0, 2.0}[round % 4], 5 + round);
      params.top_k = std::array{0, 1, 3, 50, 6000}[round % 5];
      params.top_p = std::array{1.0, 0.9, 0.3, 1e-6, 0.999999}[round / 2 % 5];
      params.min_p = std::array{0.0, 0.0, 0.1, 1.0}[round / 3 % 4];
      ASSERT_TRUE(params.Validate().ok());
      const Result<int32_t> token = sampler.Sample(logits, params, 1000 + round);
      ASSERT_TRUE(token.ok());
      ASSERT_EQ(*token, NaiveSample(logits, params, 1000 + round)) << vocabulary << " " << round;
    }
  }
}

/// Chi-square of `counts` against softmax(logits / T) limited to ids with logits above -inf.
double ChiSquare(const std::vector<int>& counts, const std::vector<float>& logits, double temperature) {
  double total_weight = 0, total = 0, sum = 0;
  for (float logit : logits) total_weight += std::exp(logit / temperature);
  for (int count : counts) total += count;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * std::exp(logits[i] / temperature) / total_weight;
    if (expected > 0) sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

// 99.99 % points of the chi-square distribution with 5 and 35 degrees of freedom.
constexpr double kLimit5 = 25.7;
constexpr double kLimit35 = 76.4;

TEST(Sampler, DrawsFromTheSoftmaxOverPositionsAndOverSeeds) {
  const std::vector<float> logits = {0.5f, -1.0f, 1.5f, 0.0f, -2.5f, 1.0f};
  Sampler sampler;
  for (double temperature : {0.5, 1.0, 1.7}) {
    std::vector<int> over_positions(6), over_seeds(6), pairs(36);
    int32_t previous = 0;
    for (int i = 0; i < 30000; ++i) {
      const int32_t token = *sampler.Sample(logits, At(temperature, 42), i);
      ++over_positions[token];
      if (i % 2 == 1) ++pairs[previous * 6 + token];
      previous = token;
      ++over_seeds[*sampler.Sample(logits, At(temperature, i), 17)];
    }
    EXPECT_LT(ChiSquare(over_positions, logits, temperature), kLimit5);
    EXPECT_LT(ChiSquare(over_seeds, logits, temperature), kLimit5);
    // Neighbouring positions are independent.
    std::vector<float> joint(36);
    for (int i = 0; i < 36; ++i) joint[i] = logits[i / 6] + logits[i % 6];
    EXPECT_LT(ChiSquare(pairs, joint, temperature), kLimit35);
  }
}

TEST(Sampler, TheDrawIsAFunctionOfItsArgumentsAlone) {
  const std::vector<float> logits = RandomLogits(1000, 3, 6);
  SamplingParams params = At(1.0, 99);
  params.top_p = 0.9;
  Sampler one;
  std::vector<int32_t> forwards, backwards;
  for (int position = 0; position < 50; ++position) forwards.push_back(*one.Sample(logits, params, position));
  for (int position = 49; position >= 0; --position) {
    Sampler fresh;
    backwards.push_back(*fresh.Sample(logits, params, position));
  }
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(forwards, backwards);
  EXPECT_GT(std::set<int32_t>(forwards.begin(), forwards.end()).size(), 10u);
}

TEST(Sampler, PinnedDraws) {
  // The noise is part of the contract: a change here changes every seeded text that users have kept.
  std::vector<float> logits(100);
  for (int i = 0; i < 100; ++i) logits[i] = static_cast<float>(i % 10) / 5;
  Sampler sampler;
  std::vector<int32_t> tokens;
  for (int position = 0; position < 8; ++position) tokens.push_back(*sampler.Sample(logits, At(1.0, 2024), position));
  EXPECT_EQ(tokens, (std::vector<int32_t>{38, 79, 76, 3, 57, 15, 77, 99}));
}

TEST(Sampler, ZeroTemperatureTakesTheLowestOfEqualMaxima) {
  Sampler sampler;
  SamplingParams params = At(0);
  params.top_k = 1;
  EXPECT_EQ(*sampler.Sample(std::vector<float>{1, 3, 2, 3}, params, 0), 1);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{-kInfinity, -5, -5}, params, 0), 1);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{0.0f, -0.0f}, params, 0), 0);
}

TEST(Sampler, TinyTemperatureIsGreedyAndFinite) {
  Sampler sampler;
  const std::vector<float> logits = {1, 3, 2};
  for (double temperature : {1e-3, 1e-30, 1e-320}) {
    SamplingParams params = At(temperature);
    params.top_p = 0.5;
    params.min_p = 0.5;
    EXPECT_EQ(*sampler.Sample(logits, params, 0), 1) << temperature;
  }
}

TEST(Sampler, FiltersKeepEqualLogitsByLowestId) {
  Sampler sampler;
  SamplingParams params = At(1.0);
  params.top_k = 2;
  std::set<int32_t> seen;
  for (int position = 0; position < 200; ++position) {
    seen.insert(*sampler.Sample(std::vector<float>{1, 1, 1, 1}, params, position));
  }
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1}));
  params.top_k = 0;
  params.top_p = 0.5;  // two of four equal ones reach it
  seen.clear();
  for (int position = 0; position < 200; ++position) {
    seen.insert(*sampler.Sample(std::vector<float>{1, 1, 1, 1}, params, position));
  }
  EXPECT_EQ(seen, (std::set<int32_t>{0, 1}));
}

TEST(Sampler, TopPCountsWhatTopKLeft) {
  // Probabilities .4 .3 .2 .1; after top-k 2 they are .571 and .429, so .5 keeps one of them, not two.
  const std::vector<float> logits = {std::log(.4f), std::log(.3f), std::log(.2f), std::log(.1f)};
  Sampler sampler;
  SamplingParams params = At(1.0);
  params.top_p = 0.5;
  std::set<int32_t> without, with;
  for (int position = 0; position < 200; ++position) without.insert(*sampler.Sample(logits, params, position));
  params.top_k = 2;
  for (int position = 0; position < 200; ++position) with.insert(*sampler.Sample(logits, params, position));
  EXPECT_EQ(without, (std::set<int32_t>{0, 1}));
  EXPECT_EQ(with, (std::set<int32_t>{0}));
}

TEST(Sampler, BarredTokensAreNeverDrawn) {
  Sampler sampler;
  for (int position = 0; position < 300; ++position) {
    EXPECT_NE(*sampler.Sample(std::vector<float>{0, -kInfinity, 0}, At(2.0), position), 1);
  }
}

TEST(Sampler, BrokenLogitsAreAnError) {
  Sampler sampler;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (double temperature : {0.0, 1.0}) {
    for (const std::vector<float>& logits :
         {std::vector<float>{1, nan, 2}, {nan, 1, 2}, {1, 2, nan}, {1, kInfinity}, {-kInfinity, -kInfinity}, {}}) {
      const Result<int32_t> token = sampler.Sample(logits, At(temperature), 0);
      ASSERT_FALSE(token.ok());
      EXPECT_EQ(token.status().code(), StatusCode::kInternal);
    }
  }
}

TEST(Logprobs, AreThoseOfTheRawLogits) {
  const std::vector<float> logits = {std::log(.1f), std::log(.4f), std::log(.4f), std::log(.1f)};
  const PositionLogprobs found = ComputeLogprobs(logits, 3, 3);
  EXPECT_EQ(found.chosen.id, 3);
  EXPECT_NEAR(found.chosen.logprob, std::log(.1), 1e-6);
  ASSERT_EQ(found.top.size(), 3u);
  EXPECT_EQ(found.top[0].id, 1);
  EXPECT_EQ(found.top[1].id, 2);
  EXPECT_EQ(found.top[2].id, 0);
  EXPECT_NEAR(found.top[0].logprob, std::log(.4), 1e-6);
  EXPECT_TRUE(ComputeLogprobs(logits, 0, 0).top.empty());
  EXPECT_EQ(ComputeLogprobs(logits, 0, 20).top.size(), 4u);
}

TEST(SamplingParams, ErrorsNameTheField) {
  const auto message = [](auto change) {
    SamplingParams params;
    change(params);
    return params.Validate().message();
  };
  EXPECT_EQ(message([](SamplingParams&) {}), "");
  EXPECT_EQ(message([](SamplingParams& p) { p.temperature = 2.5; }),
            "temperature: expected a number of at least 0 and at most 2, found 2.5");
  EXPECT_EQ(message([](SamplingParams& p) { p.temperature = std::nan(""); }),
            "temperature: expected a number of at least 0 and at most 2, found nan");
  EXPECT_EQ(message([](SamplingParams& p) { p.top_p = 0; }), "top_p: expected a number above 0 and at most 1, found 0");
  EXPECT_EQ(message([](SamplingParams& p) { p.min_p = -1; }),
            "min_p: expected a number of at least 0 and at most 1, found -1");
  EXPECT_EQ(message([](SamplingParams& p) { p.top_k = -2; }),
            "top_k: expected 1 or more, or 0 for all tokens, found -2");
  EXPECT_EQ(message([](SamplingParams& p) { p.max_tokens = 0; }), "max_tokens: expected 1 or more, found 0");
  EXPECT_EQ(message([](SamplingParams& p) { p.seed = ~uint64_t{0}; }),
            "seed: expected 0 to 9223372036854775807, found 18446744073709551615");
  EXPECT_EQ(message([](SamplingParams& p) { p.stops.resize(17, "x"); }), "stop: expected at most 16 texts, found 17");
  EXPECT_EQ(message([](SamplingParams& p) { p.logprobs = 21; }),
            "logprobs: expected 0 to 20, or -1 for none, found 21");
}

}  // namespace
}  // namespace deepinfer
