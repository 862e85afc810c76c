// How answers end, and what they leave behind for those who share their prefix.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "engine_fixture.h"

namespace deepinfer::test {
namespace {

GenerationRequest Greedy(std::vector<int32_t> prompt, int64_t tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = tokens;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 0;
  return request;
}

class StoppedAnswer : public testing::TestWithParam<ReplayMode> {};

// A stop text is found one step late: the step in flight may have crossed a block boundary and written the oldest ring
// snapshot anew.
TEST_P(StoppedAnswer, LeavesRightSnapshots) {
  EngineOptions options;
  options.replay = GetParam();
  options.max_num_seqs = 1;
  options.max_model_len = 1024;
  options.draft_length = 0;
  const auto engine = MakeEngine("nano", options);
  options.prefix_cache = false;
  const auto cold = MakeEngine("nano", options);
  const std::vector<int32_t> prompt = ProseIds(*engine, 20);
  // Drawn, for the likeliest text repeats itself, and a stop text must not occur early.
  const auto drawn = [&](const std::vector<int32_t>& text, int64_t tokens) {
    GenerationRequest request = Greedy(text, tokens);
    request.sampling.temperature = 1;
    request.sampling.seed = 11;
    return request;
  };
  const std::vector<int32_t> ids = Answer(*cold, drawn(prompt, 400)).choices[0].ids;
  std::map<int64_t, Generation> expected;  // by the length of the prefix

  // The last token before a boundary is fed by the step that is in flight when the one before it completes the stop.
  for (int64_t boundary = 320; boundary <= 384; boundary += 64) {
    for (int64_t last = boundary - 22; last <= boundary - 19; ++last) {
      GenerationRequest stopped = drawn(prompt, 400);
      stopped.cache_salt = fmt::format("{} {}", boundary, last);
      const auto end = ids.begin() + last;
      stopped.sampling.stops = {engine->Detokenize(std::vector<int32_t>(end - 7, end + 1))};
      const Generation generation = Answer(*engine, stopped);
      ASSERT_EQ(generation.choices[0].finish_reason, FinishReason::kStopSequence);
      ASSERT_EQ(std::ssize(generation.choices[0].ids), last + 1);
      // Every prefix that ends between two boundaries.
      for (int64_t length = 70; length < last; length += 64) {
        std::vector<int32_t> longer = prompt;
        longer.insert(longer.end(), ids.begin(), ids.begin() + length - 20);
        longer.push_back(77);
        GenerationRequest request = Greedy(longer, 3);
        if (!expected.contains(length)) expected.emplace(length, Answer(*cold, request));
        request.cache_salt = stopped.cache_salt;
        EXPECT_EQ(Difference(Answer(*engine, request), expected.at(length)), "")
            << "stopped at " << last << ", resumed at " << length;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, StoppedAnswer, testing::Values(ReplayMode::kBounded, ReplayMode::kExact),
                         [](const auto& mode) { return std::string(ReplayModeName(mode.param)); });

// A barred sequence may begin in the prompt, wherever chunks and hits cut it.
TEST(BadWords, ReachBackIntoThePrompt) {
  EngineOptions options;
  options.max_num_seqs = 2;
  options.max_model_len = 512;
  const auto engine = MakeEngine("nano", options);
  for (const int64_t length : {1, 2, 63, 64, 65, 66, 130}) {
    const std::vector<int32_t> prompt = ProseIds(*engine, length);
    GenerationRequest request = Greedy(prompt, 2);
    const int32_t first = Answer(*engine, request).choices[0].ids[0];
    for (int64_t back = 1; back <= std::min<int64_t>(3, length); ++back) {
      std::vector<int32_t> barred(prompt.end() - back, prompt.end());
      barred.push_back(first);
      request.sampling.bad_token_sequences = {barred};
      for (int pass = 0; pass < 2; ++pass) {
        EXPECT_NE(Answer(*engine, request).choices[0].ids[0], first)
            << length << " tokens, " << back << " of them barred";
      }
      // What does not end the prompt bars nothing.
      if (length < 2) continue;
      barred[0] = (barred[0] + 1) % 8000;
      request.sampling.bad_token_sequences = {barred};
      EXPECT_EQ(Answer(*engine, request).choices[0].ids[0], first);
    }
  }
}

TEST(MinTokens, HoldBackEveryEnd) {
  EngineOptions options;
  options.max_num_seqs = 1;
  options.max_model_len = 512;
  const auto engine = MakeEngine("nano", options);
  GenerationRequest request = Greedy(ProseIds(*engine, 40), 60);
  const Generation free = Answer(*engine, request);
  request.sampling.stops = {engine->Detokenize(std::vector<int32_t>{free.choices[0].ids[1]})};
  EXPECT_LE(Answer(*engine, request).choices[0].ids.size(), 2u);
  request.sampling.min_tokens = 15;
  const Generation late = Answer(*engine, request);
  EXPECT_GE(late.choices[0].ids.size(), 15u);
  request.sampling.stops.clear();
  request.sampling.stop_token_ids = {free.choices[0].ids[1]};
  EXPECT_GE(Answer(*engine, request).choices[0].ids.size(), 15u);
  request.sampling.min_tokens = 0;
  const Generation stopped = Answer(*engine, request);
  EXPECT_EQ(stopped.choices[0].ids.size(), 2u);
  EXPECT_EQ(stopped.choices[0].stop_token_id, free.choices[0].ids[1]);
}

TEST(Drafts, OneThatEndsTheAnswerIsCounted) {
  EngineOptions options;
  options.max_num_seqs = 1;
  options.max_model_len = 512;
  options.variable_drafts = false;
  const auto engine = MakeEngine("nano", options);
  const Generation generation = Answer(*engine, Greedy(ProseIds(*engine, 30), 64));
  const DraftCounts& drafts = generation.drafts;
  // Every token is an accepted draft or ends a step, but for the first one.
  EXPECT_GE(drafts.accepted + drafts.steps, 63);
  EXPECT_LE(drafts.accepted + drafts.steps, 64);
  engine->WaitIdle();
  EXPECT_EQ(engine->statistics().drafts.accepted, drafts.accepted);
  EXPECT_EQ(engine->statistics().drafts.steps, drafts.steps);
}

}  // namespace
}  // namespace deepinfer::test
