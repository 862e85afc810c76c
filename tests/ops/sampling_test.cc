// ChooseTokens: the token of a row and its log probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "ops/sampling_order.h"
#include "ops_test_util.h"
#include "sampling_test_util.h"

namespace deepinfer::test {
namespace {

class SamplingTest : public SamplingOpsTest {};

TEST(SamplingOrder, ExponentialIsAccurate) {
  EXPECT_EQ(sampling::ExpNonPositive(0.0), 1.0);
  EXPECT_EQ(sampling::ExpNonPositive(-0.0), 1.0);
  EXPECT_EQ(sampling::ExpNonPositive(-kInfinity), 0.0);
  EXPECT_EQ(sampling::ExpNonPositive(std::nan("")), 0.0);
  EXPECT_EQ(sampling::ExpNonPositive(-709.0), 0.0);
  for (double x = 0; x >= sampling::kExpLowest; x -= 0.0137) {
    ASSERT_NEAR(sampling::ExpNonPositive(x) / std::exp(x), 1, 2e-14) << x;
  }
}

// A rule with everything that Rule points to.
struct RandomRule {
  RandomRule(int64_t vocabulary, Random& random) {
    rule.temperature = std::array{0.0, 0.1, 0.7, 1.0, 1.0, 2.0, 1e-320}[random.Below(7)];
    rule.top_k = std::array<int64_t, 7>{0, 0, 1, 3, 50, vocabulary, 6000}[random.Below(7)];
    rule.top_p = std::array{1.0, 1.0, 0.9, 0.3, 1e-6, 0.999999}[random.Below(6)];
    rule.min_p = std::array{0.0, 0.0, 0.1, 1.0, 1e-4}[random.Below(5)];
    rule.seed = static_cast<uint64_t>(random.Below(int64_t{1} << 62));
    rule.position = random.Below(2) == 0 ? random.Below(1000) : (int64_t{1} << 33) + random.Below(1000);
    rule.top_logprobs = static_cast<int32_t>(random.Below(8)) - 4;
    if (rule.top_logprobs < 0) rule.top_logprobs = -1;
    rule.purpose = random.Below(3) == 0 ? RandomPurpose::kDraft : RandomPurpose::kToken;
    if (random.Below(6) == 0) rule.known_id = static_cast<int32_t>(random.Below(vocabulary));
    const auto id = [&] { return static_cast<int32_t>(random.Below(vocabulary)); };
    if (random.Below(2) == 0) {
      for (int i = 0; i < 5; ++i) bias.push_back({id(), random.Uniform(-100, 100)});
    }
    if (random.Below(2) == 0) {
      std::set<int32_t> ids;
      for (int i = 0; i < 20; ++i) ids.insert(id());
      for (const int32_t each : ids) {
        seen.push_back({each, static_cast<int32_t>(random.Below(3)), random.Below(2) == 0});
      }
      rule.repetition_penalty = std::array{1.0, 1.3, 0.5, 1e-300}[random.Below(4)];
      rule.presence_penalty = std::array{0.0, 0.5, -2.0}[random.Below(3)];
      rule.frequency_penalty = std::array{0.0, 0.25, 2.0}[random.Below(3)];
    }
    if (random.Below(3) == 0) {
      for (int i = 0; i < 3; ++i) barred.push_back(id());
    }
    if (random.Below(3) == 0) {
      const int64_t mode = random.Below(3);
      for (int64_t word = 0; word * 32 < vocabulary; ++word) {
        const uint32_t bits = static_cast<uint32_t>(random.Below(int64_t{1} << 32));
        allowed.push_back(mode == 0 ? bits : mode == 1 ? (random.Below(8) == 0 ? bits : 0) : ~0u);
      }
      rule.allowed = allowed.data();
    }
    rule.bias = bias;
    rule.seen = seen;
    rule.barred = barred;
  }
  RandomRule(const RandomRule&) = delete;
  RandomRule& operator=(const RandomRule&) = delete;
  // A moved vector keeps its elements where they are.
  RandomRule(RandomRule&&) = default;

  TokenRule rule;
  std::vector<LogitBias> bias;
  std::vector<SeenToken> seen;
  std::vector<int32_t> barred;
  std::vector<uint32_t> allowed;
};

// Rounded values, so that equal ones are common; some -0, some barred; now and then broken.
Tensor RandomLogits(int64_t rows, int64_t vocabulary, Random& random) {
  Tensor logits(rows, vocabulary);
  for (int64_t t = 0; t < rows; ++t) {
    const float spread = std::array{0.0f, 1.0f, 3.0f, 25.0f, 300.0f}[random.Below(5)];
    const float grain = random.Below(2) == 0 ? 8.0f : 65536.0f;
    const float shift = std::array{0.0f, 10.0f, -1000.0f}[random.Below(3)];
    for (int64_t id = 0; id < vocabulary; ++id) {
      logits.row(t)[id] = std::round(random.Uniform(-spread, spread) * grain) / grain + shift;
      if (random.Below(20) == 0) logits.row(t)[id] = -0.0f;
      if (random.Below(20) == 0) logits.row(t)[id] = -kInfinity;
    }
    switch (random.Below(30)) {
      case 0:
        logits.row(t)[random.Below(vocabulary)] = std::numeric_limits<float>::quiet_NaN();
        break;
      case 1:
        logits.row(t)[random.Below(vocabulary)] = kInfinity;
        break;
      case 2:
        std::fill_n(logits.row(t), vocabulary, -kInfinity);
        break;
      default:
        break;
    }
  }
  return logits;
}

TEST_P(SamplingTest, LikeReferenceToTheBit) {
  Random random(1);
  for (const int64_t vocabulary : {1, 2, 7, 16, 31, 32, 33, 64, 100, 300, 1027, 5000}) {
    const int64_t rows = vocabulary > 1000 ? 40 : 90;
    const Tensor logits = RandomLogits(rows, vocabulary, random);
    std::vector<RandomRule> owned;
    std::vector<TokenRule> rules;
    for (int64_t t = 0; t < rows; ++t) {
      owned.emplace_back(vocabulary, random);
      rules.push_back(owned.back().rule);
    }
    const Choices expected = Choose(reference(), logits, rules);
    const Choices actual = Choose(ops(), logits, rules);
    for (size_t t = 0; t < rules.size(); ++t) {
      SCOPED_TRACE(::testing::Message() << "V " << vocabulary << " row " << t << " T " << rules[t].temperature);
      const TokenChoice &a = actual.choices[t], &e = expected.choices[t];
      ASSERT_EQ(a.id, e.id);
      ASSERT_EQ(std::bit_cast<uint64_t>(a.logprob), std::bit_cast<uint64_t>(e.logprob));
      ASSERT_EQ(a.top_count, e.top_count);
      for (size_t i = 0; i < static_cast<size_t>(a.top_count); ++i) {
        ASSERT_EQ(a.top[i].id, e.top[i].id);
        ASSERT_EQ(std::bit_cast<uint64_t>(a.top[i].logprob), std::bit_cast<uint64_t>(e.top[i].logprob));
      }
    }
  }
}

TEST_P(SamplingTest, ARowDoesNotDependOnItsBatch) {
  Random random(2);
  const int64_t vocabulary = 9001;  // enough that rows spread over the threads
  const Tensor logits = RandomLogits(11, vocabulary, random);
  std::vector<RandomRule> owned;
  std::vector<TokenRule> rules;
  for (int64_t t = 0; t < 11; ++t) {
    owned.emplace_back(vocabulary, random);
    rules.push_back(owned.back().rule);
  }
  const Choices together = Choose(ops(), logits, rules);
  for (size_t t = 0; t < rules.size(); ++t) {
    const Choices alone = Choose(peer(), logits.Gather({static_cast<int64_t>(t)}), {rules[t]});
    EXPECT_EQ(together.choices[t].id, alone.choices[0].id);
    EXPECT_EQ(std::bit_cast<uint64_t>(together.choices[t].logprob), std::bit_cast<uint64_t>(alone.choices[0].logprob));
  }
  EXPECT_TRUE(Choose(ops(), Tensor(0, vocabulary), {}).choices.empty());
}

TEST_P(SamplingTest, PinnedDraws) {
  // The noise is part of the contract: a change here changes every seeded text that users have kept.
  std::vector<float> logits(100);
  for (int i = 0; i < 100; ++i) logits[static_cast<size_t>(i)] = static_cast<float>(i % 10) / 5;
  std::vector<int32_t> tokens;
  for (int position = 0; position < 8; ++position) tokens.push_back(One(ops(), logits, At(1.0, 2024, position)));
  EXPECT_EQ(tokens, (std::vector<int32_t>{38, 79, 76, 3, 57, 15, 77, 99}));
}

TEST_P(SamplingTest, DrawsFromTheSoftmaxOverPositionsAndOverSeeds) {
  const std::vector<float> logits = {0.5f, -1.0f, 1.5f, 0.0f, -2.5f, 1.0f};
  for (const double temperature : {0.5, 1.0, 1.7}) {
    constexpr int kDraws = 20000;
    std::vector<TokenRule> rules;
    for (int i = 0; i < kDraws; ++i) rules.push_back(At(temperature, 42, i));
    for (int i = 0; i < kDraws; ++i) rules.push_back(At(temperature, static_cast<uint64_t>(i), 17));
    const Choices draws = Choose(ops(), Repeated(logits, 2 * kDraws), rules);
    std::vector<int> over_positions(6), over_seeds(6), pairs(36);
    for (size_t i = 0; i < kDraws; ++i) {
      ++over_positions[static_cast<size_t>(draws.choices[i].id)];
      ++over_seeds[static_cast<size_t>(draws.choices[kDraws + i].id)];
      if (i % 2 == 1) ++pairs[static_cast<size_t>(draws.choices[i - 1].id * 6 + draws.choices[i].id)];
    }
    const std::vector<double> law = Softmax(logits, temperature);
    EXPECT_LT(ChiSquare(over_positions, law), kLimit5);
    EXPECT_LT(ChiSquare(over_seeds, law), kLimit5);
    // Neighbouring positions are independent.
    std::vector<double> joint;
    for (size_t i = 0; i < 36; ++i) joint.push_back(law[i / 6] * law[i % 6]);
    EXPECT_LT(ChiSquare(pairs, joint), kLimit35);
  }
}

TEST_P(SamplingTest, ALargeVocabularyFollowsTheSoftmax) {
  // 4000 ids in six groups with weights 1..6: what vectors skip must not be missing.
  constexpr size_t kIds = 4003;
  std::vector<float> logits(kIds);
  for (size_t id = 0; id < kIds; ++id) logits[id] = std::log(static_cast<float>(1 + id % 6));
  constexpr int kDraws = 6000;
  std::vector<TokenRule> rules;
  for (int i = 0; i < kDraws; ++i) rules.push_back(At(1.0, 7, i));
  std::vector<int> counts(6);
  for (int start = 0; start < kDraws; start += 250) {
    const std::vector<TokenRule> some(rules.begin() + start, rules.begin() + start + 250);
    for (const TokenChoice& choice : Choose(ops(), Repeated(logits, 250), some).choices) {
      ++counts[static_cast<size_t>(choice.id % 6)];
    }
  }
  std::vector<double> law(6);
  double total = 0;
  for (size_t id = 0; id < kIds; ++id) total += static_cast<double>(1 + id % 6);
  for (size_t id = 0; id < kIds; ++id) law[id % 6] += static_cast<double>(1 + id % 6) / total;
  EXPECT_LT(ChiSquare(counts, law), kLimit5);
}

TEST_P(SamplingTest, PurposesAreIndependent) {
  const std::vector<float> logits(6, 0.0f);
  constexpr int kDraws = 10000;
  std::vector<TokenRule> rules;
  for (int i = 0; i < 2 * kDraws; ++i) {
    rules.push_back(At(1.0, 3, i / 2));
    if (i % 2 == 1) rules.back().purpose = RandomPurpose::kDraft;
  }
  const Choices draws = Choose(ops(), Repeated(logits, 2 * kDraws), rules);
  std::vector<int> pairs(36);
  for (size_t i = 0; i < kDraws; ++i) {
    ++pairs[static_cast<size_t>(draws.choices[2 * i].id * 6 + draws.choices[2 * i + 1].id)];
  }
  EXPECT_LT(ChiSquare(pairs, std::vector<double>(36, 1.0 / 36)), kLimit35);
}

TEST_P(SamplingTest, ZeroTemperatureTakesTheLowestOfEqualMaxima) {
  TokenRule rule = At(0, 1, 0);
  rule.top_k = 1;
  EXPECT_EQ(One(ops(), {1, 3, 2, 3}, rule), 1);
  EXPECT_EQ(One(ops(), {-kInfinity, -5, -5}, rule), 1);
  EXPECT_EQ(One(ops(), {0.0f, -0.0f}, rule), 0);
  EXPECT_EQ(One(ops(), {-0.0f, 0.0f}, rule), 0);
  std::vector<float> wide(1000, -2.0f);
  wide[17] = wide[500] = wide[999] = -1.0f;
  EXPECT_EQ(One(ops(), wide, rule), 17);
}

TEST_P(SamplingTest, TinyTemperatureIsGreedyAndFinite) {
  for (const double temperature : {1e-3, 1e-30, 1e-320}) {
    TokenRule rule = At(temperature, 1, 0);
    EXPECT_EQ(One(ops(), {1, 3, 2}, rule), 1) << temperature;
    rule.top_p = rule.min_p = 0.5;
    EXPECT_EQ(One(ops(), {1, 3, 2}, rule), 1) << temperature;
  }
  // Of equal maxima the noise decides, however small the temperature.
  std::set<int32_t> drawn;
  for (int position = 0; position < 100; ++position) {
    drawn.insert(One(ops(), std::vector<float>(40, 5.0f), At(1e-320, 1, position)));
  }
  EXPECT_GT(drawn.size(), 20u);
}

std::set<int32_t> Drawn(Ops& ops, const std::vector<float>& logits, TokenRule rule, int draws = 200) {
  std::vector<TokenRule> rules(static_cast<size_t>(draws), rule);
  for (int i = 0; i < draws; ++i) rules[static_cast<size_t>(i)].position = i;
  std::set<int32_t> ids;
  for (const TokenChoice& choice : Choose(ops, Repeated(logits, draws), rules).choices) ids.insert(choice.id);
  return ids;
}

TEST_P(SamplingTest, FiltersKeepEqualLogitsByLowestId) {
  TokenRule rule = At(1.0, 1, 0);
  rule.top_k = 2;
  EXPECT_EQ(Drawn(ops(), {1, 1, 1, 1}, rule), (std::set<int32_t>{0, 1}));
  rule.top_k = 0;
  rule.top_p = 0.5;  // two of four equal ones reach it
  EXPECT_EQ(Drawn(ops(), {1, 1, 1, 1}, rule), (std::set<int32_t>{0, 1}));
  rule.top_p = 1;
  rule.min_p = 1;
  EXPECT_EQ(Drawn(ops(), {1, 0.9f, 1, 1}, rule), (std::set<int32_t>{0, 2, 3}));
  rule.top_k = 5;  // of a cut inside a run of equal logits, the last ids go
  rule.min_p = 0;
  EXPECT_EQ(Drawn(ops(), std::vector<float>(50, -3.0f), rule), (std::set<int32_t>{0, 1, 2, 3, 4}));
}

TEST_P(SamplingTest, MinPKeepsAShareOfTheMostLikely) {
  const std::vector<float> logits = {std::log(.1f), std::log(.4f), std::log(.3f), std::log(.19f), std::log(.01f)};
  TokenRule rule = At(1.0, 1, 0);
  rule.min_p = 0.3;
  EXPECT_EQ(Drawn(ops(), logits, rule), (std::set<int32_t>{1, 2, 3}));
  rule.temperature = 2;  // shares become their roots: .1 / .4 rises to .5, .01 / .4 to .158
  EXPECT_EQ(Drawn(ops(), logits, rule), (std::set<int32_t>{0, 1, 2, 3}));
}

TEST_P(SamplingTest, TopPCountsWhatTopKLeft) {
  // After top-k 2 the probabilities .4 .3 are .571 and .429, so .5 keeps one of them, not two.
  const std::vector<float> logits = {std::log(.4f), std::log(.3f), std::log(.2f), std::log(.1f)};
  TokenRule rule = At(1.0, 1, 0);
  rule.top_p = 0.5;
  EXPECT_EQ(Drawn(ops(), logits, rule), (std::set<int32_t>{0, 1}));
  rule.top_k = 2;
  EXPECT_EQ(Drawn(ops(), logits, rule), (std::set<int32_t>{0}));
}

TEST_P(SamplingTest, BarredAndForbiddenTokensAreNeverDrawn) {
  TokenRule rule = At(2.0, 1, 0);
  EXPECT_EQ(Drawn(ops(), {0, -kInfinity, 0}, rule), (std::set<int32_t>{0, 2}));
  const std::vector<int32_t> barred = {3, 1};
  rule.barred = barred;
  EXPECT_EQ(Drawn(ops(), {0, 9, 0, 9, 0}, rule), (std::set<int32_t>{0, 2, 4}));
  const std::vector<LogitBias> bias = {{1, 100}, {0, -100}};  // a bias brings nothing back
  rule.bias = bias;
  EXPECT_EQ(Drawn(ops(), {0, 9, 0, 9, 0}, rule), (std::set<int32_t>{2, 4}));
  rule.bias = {};
  const std::vector<uint32_t> allowed = {0xffffffe0u | 0b01110u, 0b10};
  rule.allowed = allowed.data();
  std::vector<float> logits(40, -50.0f);
  for (int id = 0; id < 5; ++id) logits[static_cast<size_t>(id)] = 0;
  logits[32] = logits[33] = 0;
  EXPECT_EQ(Drawn(ops(), logits, rule), (std::set<int32_t>{2, 33}));
  rule.temperature = 0;
  EXPECT_EQ(One(ops(), logits, rule), 2);
}

TEST_P(SamplingTest, PenaltiesByHand) {
  // At T = 0 the choice tells which modified logit is the largest.
  const auto choice = [&](std::vector<float> logits, const auto& change) {
    TokenRule rule = At(0, 1, 0);
    change(rule);
    return One(ops(), logits, rule);
  };
  const std::vector<SeenToken> prompt = {{0, 0, true}};
  const std::vector<SeenToken> twice = {{0, 2, false}};
  const auto repetition = [&](TokenRule& rule) {
    rule.seen = prompt;
    rule.repetition_penalty = 2;
  };
  EXPECT_EQ(choice({3, 1.6f}, repetition), 1);  // 3 / 2
  EXPECT_EQ(choice({3, 1.4f}, repetition), 0);
  EXPECT_EQ(choice({-1, -1.9f}, repetition), 1);  // -1 * 2
  EXPECT_EQ(choice({-1, -2.1f}, repetition), 0);
  const auto frequency = [&](TokenRule& rule) {
    rule.seen = twice;
    rule.frequency_penalty = 0.5;
  };
  EXPECT_EQ(choice({3, 2.1f}, frequency), 1);  // 3 - 2 * 0.5
  EXPECT_EQ(choice({3, 1.9f}, frequency), 0);
  const auto presence = [&](TokenRule& rule) {
    rule.seen = twice;
    rule.presence_penalty = 0.5;
  };
  EXPECT_EQ(choice({3, 2.6f}, presence), 1);  // 3 - 0.5
  EXPECT_EQ(choice({3, 2.4f}, presence), 0);
  const auto prompt_only = [&](TokenRule& rule) {
    rule.seen = prompt;
    rule.presence_penalty = rule.frequency_penalty = 2;
  };
  EXPECT_EQ(choice({3, 2.9f}, prompt_only), 0);  // these two look at the output alone
  // The bias comes before the penalty: (1 + 2) / 2 = 1.5, not 1 / 2 + 2 = 2.5.
  const std::vector<LogitBias> bias = {{0, 2}};
  const auto both = [&](TokenRule& rule) {
    repetition(rule);
    rule.bias = bias;
  };
  EXPECT_EQ(choice({1, 1.6f}, both), 1);
  EXPECT_EQ(choice({1, 1.4f}, both), 0);
  // What overflows stays a number.
  const auto huge = [&](TokenRule& rule) {
    rule.seen = prompt;
    rule.repetition_penalty = 1e-300;
  };
  EXPECT_EQ(choice({1, 5}, huge), 0);
}

TEST_P(SamplingTest, BrokenLogitsAreAnError) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> wide(1000);
  wide[777] = nan;
  for (const double temperature : {0.0, 1.0}) {
    for (const std::vector<float>& logits : {std::vector<float>{1, nan, 2},
                                             {nan, 1, 2},
                                             {1, 2, nan},
                                             {1, kInfinity},
                                             {-kInfinity, -kInfinity},
                                             wide,
                                             {}}) {
      TokenRule rule = At(temperature, 1, 0);
      EXPECT_EQ(One(ops(), logits, rule), -1);
      rule.known_id = 0;
      EXPECT_EQ(One(ops(), logits, rule), -1);
    }
    // Even where the rule would not look: the forward pass is broken.
    TokenRule rule = At(temperature, 1, 0);
    const std::vector<int32_t> barred = {1};
    rule.barred = barred;
    EXPECT_EQ(One(ops(), {1, nan, 2}, rule), -1);
    EXPECT_EQ(One(ops(), {1}, rule = At(temperature, 1, 0)), 0);
    const uint32_t none = 0;
    rule.allowed = &none;
    EXPECT_EQ(One(ops(), {1, 2}, rule), -1);
  }
}

TEST_P(SamplingTest, LogprobsAreThoseOfTheRawLogits) {
  const std::vector<float> logits = {std::log(.1f), std::log(.4f), std::log(.4f), std::log(.1f)};
  TokenRule rule = At(0.5, 1, 0);
  const std::vector<int32_t> barred = {1, 2, 0};
  rule.barred = barred;
  rule.top_logprobs = 3;
  Choices found = Choose(ops(), Repeated(logits, 1), {rule});
  const TokenChoice& choice = found.choices[0];
  EXPECT_EQ(choice.id, 3);
  EXPECT_NEAR(choice.logprob, std::log(.1), 1e-6);
  ASSERT_EQ(choice.top_count, 3);
  EXPECT_EQ(choice.top[0].id, 1);
  EXPECT_EQ(choice.top[1].id, 2);
  EXPECT_EQ(choice.top[2].id, 0);
  EXPECT_NEAR(choice.top[0].logprob, std::log(.4), 1e-6);
  rule.top_logprobs = 0;
  EXPECT_EQ(Choose(ops(), Repeated(logits, 1), {rule}).choices[0].top_count, 0);
  rule.top_logprobs = 20;
  rule.known_id = 2;  // a token of the prompt
  found = Choose(ops(), Repeated(logits, 1), {rule});
  EXPECT_EQ(found.choices[0].id, 2);
  EXPECT_NEAR(found.choices[0].logprob, std::log(.4), 1e-6);
  EXPECT_EQ(found.choices[0].top_count, 4);
}

TEST_P(SamplingTest, LogitsStayAsTheyAre) {
  Random random(5);
  Tensor logits = RandomTensor(3, 200, random);
  const Tensor before = logits;
  std::vector<RandomRule> owned;
  std::vector<TokenRule> rules;
  for (int t = 0; t < 3; ++t) {
    owned.emplace_back(200, random);
    rules.push_back(owned.back().rule);
  }
  Choose(ops(), logits, rules);
  EXPECT_TRUE(SameBits(logits, before));
  EXPECT_TRUE(logits.GapsUntouched());
}

DEEPINFER_INSTANTIATE_BACKENDS(SamplingTest);

}  // namespace
}  // namespace deepinfer::test
