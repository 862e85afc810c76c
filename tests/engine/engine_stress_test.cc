// Many requests at once: nobody is lost, nothing leaks, memory stays within the plan.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <string>

#include "engine_fixture.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

namespace deepinfer::test {
namespace {

/// Anonymous memory of this process that is resident, bytes.
int64_t AnonymousBytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (file >> word) {
    if (word == "RssAnon:") file >> kib;
  }
  return kib * 1024;
}

int64_t PlannedBytes(const EngineCore& engine) {
  int64_t bytes = 0;
  for (const PlannedMemory& line : engine.memory_plan()) {
    if (line.at_start) bytes += line.bytes;
  }
  return bytes;
}

TEST(EngineStress, TwoHundredMixedRequestsWithThirtyTwoRunning) {
  Random random(RunSeed("TwoHundredMixedRequests"));
  const int64_t before = AnonymousBytes();
  EngineOptions options;
  options.max_num_seqs = 32;
  options.max_model_len = 2400;
  options.profile_steps = false;
  const auto engine = MakeEngine("nano", options);

  std::vector<std::unique_ptr<GenerationStream>> streams;
  std::vector<int64_t> tokens;
  const int64_t count = kSanitized ? 24 : 200;
  for (int64_t i = 0; i < count; ++i) {
    GenerationRequest request;
    // Mostly short ones, some up to the limits.
    const bool large = random.OneIn(10);
    request.prompt = ProseIds(*engine, random.Between(1, large ? 2000 : 200), random.Between(0, 3) * 40);
    request.sampling.max_tokens = random.Between(1, large ? 300 : 40);
    request.sampling.ignore_eos = true;
    request.sampling.temperature = random.OneIn(2) ? 0 : 1;
    request.sampling.seed = static_cast<uint64_t>(i);
    tokens.push_back(request.sampling.max_tokens);
    Result<std::unique_ptr<GenerationStream>> stream = engine->Submit(request);
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    streams.push_back(std::move(*stream));
  }
  for (size_t i = 0; i < streams.size(); ++i) {
    const Generation& generation = streams[i]->Wait();
    EXPECT_EQ(generation.choices[0].finish_reason, FinishReason::kLength);
    EXPECT_EQ(generation.completion_tokens(), tokens[i]) << "request " << i;
  }
  const int64_t used = AnonymousBytes() - before;
  const int64_t planned = PlannedBytes(*engine);
  fmt::print("used {:.1f} MB of the {:.1f} MB planned\n", static_cast<double>(used) / 1e6,
             static_cast<double>(planned) / 1e6);
  if (!kSanitized) {
    EXPECT_LE(static_cast<double>(used), 1.02 * static_cast<double>(planned));
  }
  engine->WaitIdle();
  const EngineStatistics statistics = engine->statistics();
  EXPECT_EQ(statistics.finished, count);
  EXPECT_EQ(statistics.generated_tokens, std::accumulate(tokens.begin(), tokens.end(), int64_t{0}));
  ExpectNothingHeld(*engine);
}

TEST(EngineStress, CancelledRequestsLeaveNothingBehind) {
  EngineOptions options;
  options.max_num_seqs = 4;
  options.max_model_len = 8192;
  options.profile_steps = false;
  const auto engine = MakeEngine("tiny2", options);
  GenerationRequest request;
  request.prompt = ProseIds(*engine, 70);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 8000;  // never over before it is cancelled
  request.sampling.ignore_eos = true;
  const auto cycles = [&](int count) {
    for (int i = 0; i < count; ++i) {
      request.sampling.seed = static_cast<uint64_t>(i);
      Result<std::unique_ptr<GenerationStream>> stream = engine->Submit(request);
      ASSERT_TRUE(stream.ok()) << stream.status().message();
      if (i % 50 == 0) {
        GenerationDelta delta;
        EXPECT_TRUE((*stream)->Next(&delta));
      }
      (*stream)->Cancel();
      if (i % 100 == 0) {
        EXPECT_EQ((*stream)->Wait().choices[0].finish_reason, FinishReason::kCancelled);
      }
    }
    engine->WaitIdle();
  };
  cycles(1000);
  const int64_t before = AnonymousBytes();
  cycles(kSanitized ? 300 : 9000);
  const int64_t growth = AnonymousBytes() - before;
  if (!kSanitized) {
    EXPECT_LT(growth, int64_t{1} << 20);
  }
  EXPECT_EQ(engine->statistics().cancelled, kSanitized ? 1300 : 10000);
  ExpectNothingHeld(*engine);
}

TEST(EngineStress, StreamsOutliveTheEngine) {
  EngineOptions options;
  options.max_num_seqs = 2;
  options.max_model_len = 4096;
  options.profile_steps = false;
  auto engine = MakeEngine("tiny2", options);
  GenerationRequest request;
  request.prompt = ProseIds(*engine, 30);
  request.sampling.max_tokens = 4000;
  request.sampling.ignore_eos = true;
  std::vector<std::unique_ptr<GenerationStream>> streams;
  for (int i = 0; i < 4; ++i) {
    Result<std::unique_ptr<GenerationStream>> stream = engine->Submit(request);
    ASSERT_TRUE(stream.ok());
    streams.push_back(std::move(*stream));
  }
  engine.reset();
  for (const auto& stream : streams) {
    EXPECT_EQ(stream->Wait().choices[0].finish_reason, FinishReason::kCancelled);
  }
}

TEST(EngineErrors, NameTheFieldAndTheNumbers) {
  EngineOptions options;
  options.max_num_seqs = 2;
  options.max_model_len = 512;
  options.profile_steps = false;
  const auto engine = MakeEngine("tiny2", options);
  const auto expect = [&](EngineCore& on, const GenerationRequest& request, StatusCode code, const std::string& part) {
    const Status status = on.Submit(request).status();
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  GenerationRequest request;
  expect(*engine, request, StatusCode::kInvalidArgument, "prompt: expected at least one token");
  request.prompt = {0, 8192};
  expect(*engine, request, StatusCode::kInvalidArgument, "prompt: expected token ids of 0 to 8191, found 8192");
  request.prompt.assign(512, 5);
  expect(*engine, request, StatusCode::kInvalidArgument, "512 tokens leave no room in the context of 512 tokens");
  request.prompt = {0, 1};
  request.sampling.stop_token_ids = {-1};
  expect(*engine, request, StatusCode::kInvalidArgument, "stop_token_ids");
  request.sampling.stop_token_ids = {};
  request.sampling.logit_bias = {{9000, 1}};
  expect(*engine, request, StatusCode::kInvalidArgument, "logit_bias");
  request.sampling.logit_bias = {};
  request.sampling.top_p = 0;
  expect(*engine, request, StatusCode::kInvalidArgument, "top_p");

  EXPECT_NE(engine->warning().find("profile"), std::string::npos) << "without a profile nothing is trimmed, loudly";

  // A pool of three blocks.
  options.kv_memory_bytes = 3 * engine->options().kv_memory_bytes / engine->statistics().kv_blocks;
  const auto small = MakeEngine("tiny2", options);
  request.sampling.top_p = 1;
  request.prompt.assign(200, 5);
  expect(*small, request, StatusCode::kResourceExhausted, "200 tokens can never fit into the KV pool of 191 tokens");
  request.prompt.assign(100, 5);
  request.sampling.max_tokens = 100;
  expect(*small, request, StatusCode::kResourceExhausted, "answer of 100 tokens can never fit");
  request.sampling.max_tokens = 5000;  // beyond the context, which would cut it
  expect(*small, request, StatusCode::kResourceExhausted, "answer of 412 tokens can never fit");
  // Without a limit of its own the answer ends where the pool does.
  request.sampling.max_tokens = SamplingParams::kNoLimit;
  request.sampling.ignore_eos = true;
  const Result<Generation> result = small->Generate(request);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->completion_tokens(), 91);
  EXPECT_EQ(result->choices[0].finish_reason, FinishReason::kLength);
}

TEST(EngineErrors, OptionsNameTheFieldAndTheRemedy) {
  const auto expect = [](const EngineOptions& options, const std::string& part) {
    const Status status = options.Validate();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  EngineOptions options;
  options.max_num_seqs = 0;
  expect(options, "max_num_seqs: expected 1 or more, found 0");
  options = {};
  options.draft_length = -1;
  expect(options, "draft_length");
  options = {};
  options.tpot_target_ms = -3;
  expect(options, "tpot_target_ms");
  options = {};
  options.max_model_len = 1;
  expect(options, "max_model_len");

  ASSERT_EQ(setenv("DEEPINFER_USE_NEXTN_DECODE", "3", 1), 0);
  ASSERT_EQ(setenv("DEEPINFER_ENABLE_MTP_VARLEN", "0", 1), 0);
  ASSERT_EQ(setenv("DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE", "compact", 1), 0);
  ASSERT_EQ(setenv("DEEPINFER_YOCO_PREFILL_KEEP_TOKENS", "160", 1), 0);
  options = {};
  options.replay = ReplayMode::kExact;
  EXPECT_TRUE(options.ApplyEnvironment().ok());
  EXPECT_EQ(options.draft_length, 3);
  EXPECT_FALSE(options.variable_drafts);
  EXPECT_EQ(options.replay, ReplayMode::kBounded);
  EXPECT_EQ(options.replay_keep, 160);
  ASSERT_EQ(setenv("DEEPINFER_USE_NEXTN_DECODE", "three", 1), 0);
  EXPECT_NE(options.ApplyEnvironment().message().find("$DEEPINFER_USE_NEXTN_DECODE"), std::string::npos);
  for (const char* name : {"DEEPINFER_USE_NEXTN_DECODE", "DEEPINFER_ENABLE_MTP_VARLEN",
                           "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE", "DEEPINFER_YOCO_PREFILL_KEEP_TOKENS"}) {
    unsetenv(name);
  }
}

}  // namespace
}  // namespace deepinfer::test
