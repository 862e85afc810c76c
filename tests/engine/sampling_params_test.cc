#include "deepinfer/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace deepinfer {
namespace {

template <typename Change>
std::string Message(const Change& change) {
  SamplingParams params;
  change(params);
  return params.Validate().message();
}

TEST(SamplingParams, DefaultsAndLimitsAreValid) {
  EXPECT_EQ(Message([](SamplingParams&) {}), "");
  EXPECT_EQ(Message([](SamplingParams& p) {
              p.repetition_penalty = 1e-3;
              p.frequency_penalty = -2;
              p.presence_penalty = 2;
              p.logit_bias.assign(SamplingParams::kMaxLogitBias, {5, -100.0f});
              p.bad_words.assign(SamplingParams::kMaxBadWords, "x");
              p.bad_token_sequences.assign(SamplingParams::kMaxBadWords,
                                           std::vector<int32_t>(SamplingParams::kMaxBadWordTokens, 3));
              p.stop_token_ids.assign(SamplingParams::kMaxStopTokenIds, 0);
              p.max_tokens = p.min_tokens = 7;
              p.n = 128;
              p.prompt_logprobs = p.logprobs = 20;
            }),
            "");
}

TEST(SamplingParams, ErrorsOfTheDrawNameTheField) {
  EXPECT_EQ(Message([](SamplingParams& p) { p.temperature = 2.5; }),
            "temperature: expected a number of at least 0 and at most 2, found 2.5");
  EXPECT_EQ(Message([](SamplingParams& p) { p.temperature = std::nan(""); }),
            "temperature: expected a number of at least 0 and at most 2, found nan");
  EXPECT_EQ(Message([](SamplingParams& p) { p.top_p = 0; }), "top_p: expected a number above 0 and at most 1, found 0");
  EXPECT_EQ(Message([](SamplingParams& p) { p.min_p = -1; }),
            "min_p: expected a number of at least 0 and at most 1, found -1");
  EXPECT_EQ(Message([](SamplingParams& p) { p.top_k = -2; }),
            "top_k: expected 1 or more, or 0 for all tokens, found -2");
  EXPECT_EQ(Message([](SamplingParams& p) { p.seed = ~uint64_t{0}; }),
            "seed: expected 0 to 9223372036854775807, found 18446744073709551615");
}

TEST(SamplingParams, ErrorsOfPenaltiesNameTheField) {
  EXPECT_EQ(Message([](SamplingParams& p) { p.repetition_penalty = 0; }),
            "repetition_penalty: expected a number above 0, found 0");
  EXPECT_EQ(Message([](SamplingParams& p) { p.repetition_penalty = std::nan(""); }),
            "repetition_penalty: expected a number above 0, found nan");
  EXPECT_EQ(Message([](SamplingParams& p) { p.repetition_penalty = INFINITY; }),
            "repetition_penalty: expected a number above 0, found inf");
  EXPECT_EQ(Message([](SamplingParams& p) { p.frequency_penalty = 2.5; }),
            "frequency_penalty: expected a number of at least -2 and at most 2, found 2.5");
  EXPECT_EQ(Message([](SamplingParams& p) { p.presence_penalty = -2.5; }),
            "presence_penalty: expected a number of at least -2 and at most 2, found -2.5");
}

TEST(SamplingParams, ErrorsOfListsNameTheField) {
  EXPECT_EQ(Message([](SamplingParams& p) { p.logit_bias.resize(1025); }),
            "logit_bias: expected at most 1024 entries, found 1025");
  EXPECT_EQ(Message([](SamplingParams& p) {
              p.logit_bias = {{3, 100.5f}};
            }),
            "logit_bias: expected a number of at least -100 and at most 100, found 100.5");
  EXPECT_EQ(Message([](SamplingParams& p) {
              p.logit_bias = {{3, std::nanf("")}};
            }),
            "logit_bias: expected a number of at least -100 and at most 100, found nan");
  EXPECT_EQ(Message([](SamplingParams& p) {
              p.logit_bias = {{-3, 1}};
            }),
            "logit_bias: expected token ids of 0 or more, found -3");
  EXPECT_EQ(Message([](SamplingParams& p) { p.bad_words.resize(1025, "x"); }),
            "bad_words: expected at most 1024 texts, found 1025");
  EXPECT_EQ(Message([](SamplingParams& p) {
              p.bad_words = {"x", ""};
            }),
            "bad_words: expected texts, found an empty one");
  EXPECT_EQ(Message([](SamplingParams& p) { p.bad_token_sequences.resize(1025, {1}); }),
            "bad_token_sequences: expected at most 1024 sequences, found 1025");
  EXPECT_EQ(Message([](SamplingParams& p) { p.bad_token_sequences = {{}}; }),
            "bad_token_sequences: expected 1 to 64 ids in a sequence, found 0");
  EXPECT_EQ(Message([](SamplingParams& p) { p.bad_token_sequences = {std::vector<int32_t>(65)}; }),
            "bad_token_sequences: expected 1 to 64 ids in a sequence, found 65");
  EXPECT_EQ(Message([](SamplingParams& p) {
              p.bad_token_sequences = {{4, -1}};
            }),
            "bad_token_sequences: expected token ids of 0 or more, found -1");
  EXPECT_EQ(Message([](SamplingParams& p) { p.stop_token_ids.resize(1025); }),
            "stop_token_ids: expected at most 1024 ids, found 1025");
  EXPECT_EQ(Message([](SamplingParams& p) { p.stop_token_ids = {-7}; }),
            "stop_token_ids: expected token ids of 0 or more, found -7");
}

TEST(SamplingParams, ErrorsOfCountsNameTheField) {
  EXPECT_EQ(Message([](SamplingParams& p) { p.max_tokens = 0; }), "max_tokens: expected 1 or more, found 0");
  EXPECT_EQ(Message([](SamplingParams& p) { p.stops.resize(17, "x"); }), "stop: expected at most 16 texts, found 17");
  EXPECT_EQ(Message([](SamplingParams& p) { p.logprobs = 21; }),
            "logprobs: expected 0 to 20, or -1 for none, found 21");
  EXPECT_EQ(Message([](SamplingParams& p) { p.min_tokens = -1; }),
            "min_tokens: expected 0 to max_tokens = 9223372036854775807, found -1");
  EXPECT_EQ(Message([](SamplingParams& p) {
              p.max_tokens = 4;
              p.min_tokens = 5;
            }),
            "min_tokens: expected 0 to max_tokens = 4, found 5");
  EXPECT_EQ(Message([](SamplingParams& p) { p.n = 0; }), "n: expected 1 to 128, found 0");
  EXPECT_EQ(Message([](SamplingParams& p) { p.n = 129; }), "n: expected 1 to 128, found 129");
  EXPECT_EQ(Message([](SamplingParams& p) { p.prompt_logprobs = 21; }),
            "prompt_logprobs: expected 0 to 20, or -1 for none, found 21");
  EXPECT_EQ(Message([](SamplingParams& p) { p.prompt_logprobs = -2; }),
            "prompt_logprobs: expected 0 to 20, or -1 for none, found -2");
}

TEST(SamplingParams, EveryAnswerHasItsOwnValidSeed) {
  std::set<uint64_t> seeds;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0} >> 1}) {
    EXPECT_EQ(SamplingParams::SeedOfChoice(seed, 0), seed);
    for (int index = 0; index < SamplingParams::kMaxChoices; ++index) {
      SamplingParams params;
      params.seed = SamplingParams::SeedOfChoice(seed, index);
      EXPECT_TRUE(params.Validate().ok());
      seeds.insert(params.seed);
    }
  }
  EXPECT_EQ(seeds.size(), 3u * SamplingParams::kMaxChoices);
  // Part of the contract, as the noise is: seeded answers that users have kept depend on it.
  EXPECT_EQ(SamplingParams::SeedOfChoice(2024, 1), 8313332473236756748u);
}

}  // namespace
}  // namespace deepinfer
