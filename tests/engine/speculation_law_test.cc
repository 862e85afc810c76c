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

/// Chi-square of the tokens that follow the most common beginning of `position` tokens, against its softmax.
/// False when there is nothing to choose from.
bool CheckPosition(const std::vector<const Choice*>& choices, size_t position) {
  std::map<std::vector<int32_t>, std::vector<const Choice*>> groups;
  for (const Choice* choice : choices) {
    if (choice->ids.size() <= position) continue;
    groups[{choice->ids.begin(), choice->ids.begin() + static_cast<std::ptrdiff_t>(position)}].push_back(choice);
  }
  const std::vector<const Choice*>* largest = nullptr;
  for (const auto& [ids, group] : groups) {
    if (largest == nullptr || group.size() > largest->size()) largest = &group;
  }
  if (largest == nullptr) return false;
  const auto draws = static_cast<double>(largest->size());
  std::map<int32_t, int> counts;
  for (const Choice* choice : *largest) ++counts[choice->ids[position]];

  double statistic = 0;
  double rest_expected = draws;
  double rest = draws;
  int cells = 0;
  for (const TokenLogprob& token : largest->front()->logprobs[position].top) {
    const double expected = draws * std::exp(token.logprob);
    if (expected < 5) break;
    const double seen = counts[token.id];
    statistic += (seen - expected) * (seen - expected) / expected;
    rest_expected -= expected;
    rest -= seen;
    ++cells;
  }
  if (rest_expected >= 5) {
    statistic += (rest - rest_expected) * (rest - rest_expected) / rest_expected;
    ++cells;
  }
  const int freedom = cells - 1;
  fmt::print("  position {}: {} draws, chi-square {:.1f} with {} degrees of freedom\n", position, draws, statistic,
             freedom);
  if (freedom < 1) return false;
  // Exceeded once in ten thousand (Wilson and Hilferty's approximation, 3.72 standard deviations).
  const double ninth = 2.0 / (9.0 * freedom);
  EXPECT_LT(statistic, freedom * std::pow(1 - ninth + 3.72 * std::sqrt(ninth), 3));
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
