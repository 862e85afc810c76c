// Sampling at T = 1 follows the softmax, with speculation on, under both verification rules. Seeds are fixed: the test
// always draws the same tokens.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine_fixture.h"

namespace deepinfer::test {
namespace {

constexpr int kTokens = 6;

class SpeculationLaw : public testing::TestWithParam<SpeculationRule> {};

struct ChiSquare {
  double statistic = 0;
  int freedom = 0;
};

/// Of the tokens that followed one beginning, against their softmax.
ChiSquare OfGroup(const std::vector<const Choice*>& group, size_t position) {
  const auto draws = static_cast<double>(group.size());
  std::map<int32_t, int> counts;
  for (const Choice* choice : group) ++counts[choice->ids[position]];
  ChiSquare result;
  double rest_expected = draws;
  double rest = draws;
  int cells = 0;
  const auto add = [&](double seen, double expected) {
    result.statistic += (seen - expected) * (seen - expected) / expected;
    ++cells;
  };
  for (const TokenLogprob& token : group.front()->logprobs[position].top) {
    const double expected = draws * std::exp(token.logprob);
    if (expected < 5) break;
    add(counts[token.id], expected);
    rest_expected -= expected;
    rest -= counts[token.id];
  }
  if (rest_expected >= 5) add(rest, rest_expected);
  result.freedom = std::max(cells - 1, 0);
  if (result.freedom == 0) result.statistic = 0;
  return result;
}

/// The sum over all beginnings of `position` tokens. False when there is nothing to choose from.
bool CheckPosition(const std::vector<const Choice*>& choices, size_t position) {
  std::map<std::vector<int32_t>, std::vector<const Choice*>> groups;
  for (const Choice* choice : choices) {
    groups[{choice->ids.begin(), choice->ids.begin() + static_cast<std::ptrdiff_t>(position)}].push_back(choice);
  }
  ChiSquare sum;
  for (const auto& [ids, group] : groups) {
    const ChiSquare one = OfGroup(group, position);
    sum.statistic += one.statistic;
    sum.freedom += one.freedom;
  }
  fmt::print("  position {}: {} beginnings, chi-square {:.1f} with {} degrees of freedom\n", position, groups.size(),
             sum.statistic, sum.freedom);
  if (sum.freedom < 1) return false;
  // Exceeded once in ten thousand (Wilson and Hilferty's approximation, 3.72 standard deviations).
  const double ninth = 2.0 / (9.0 * sum.freedom);
  EXPECT_LT(sum.statistic, sum.freedom * std::pow(1 - ninth + 3.72 * std::sqrt(ninth), 3));
  return true;
}

TEST_P(SpeculationLaw, TokensFollowTheSoftmax) {
  EngineOptions options;
  options.max_num_seqs = 16;
  options.max_model_len = 256;
  options.speculation_rule = GetParam();
  options.variable_drafts = false;
  const auto engine = MakeEngine("nano", options);
  GenerationRequest request;
  ASSERT_TRUE(engine->Tokenize("Once upon a time, there was a", false, &request.prompt).ok());
  request.prompt.insert(request.prompt.begin(), engine->bos_token_id());
  request.sampling.temperature = 1;
  request.sampling.max_tokens = kTokens;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 20;
  request.sampling.n = 128;
  std::vector<std::unique_ptr<GenerationStream>> streams;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    request.sampling.seed = 1000 + seed;
    Result<std::unique_ptr<GenerationStream>> stream = engine->Submit(request);
    ASSERT_TRUE(stream.ok());
    streams.push_back(std::move(*stream));
  }
  std::vector<const Choice*> choices;
  DraftCounts drafts;
  for (const auto& stream : streams) {
    const Generation& generation = stream->Wait();
    for (const Choice& choice : generation.choices) choices.push_back(&choice);
    drafts.verified += generation.drafts.verified;
    drafts.accepted += generation.drafts.accepted;
  }
  EXPECT_GT(drafts.accepted, 100);
  fmt::print("{} of {} drafts accepted\n", drafts.accepted, drafts.verified);
  int checked = 0;
  for (size_t position = 0; position < kTokens; ++position) checked += CheckPosition(choices, position) ? 1 : 0;
  EXPECT_GE(checked, 3);
}

INSTANTIATE_TEST_SUITE_P(Rules, SpeculationLaw, testing::Values(SpeculationRule::kCoupled, SpeculationRule::kRejection),
                         [](const auto& rule) {
                           return std::string(rule.param == SpeculationRule::kCoupled ? "coupled" : "rejection");
                         });

}  // namespace
}  // namespace deepinfer::test
