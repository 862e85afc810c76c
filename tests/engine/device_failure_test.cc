// What becomes of an engine whose device fails: an error of a device is final.
#include <gtest/gtest.h>

#include "device_ops.h"
#include "engine_fixture.h"

namespace deepinfer::test {
namespace {

EngineOptions Options() {
  EngineOptions options;
  options.max_num_seqs = 2;
  options.max_model_len = 512;
  options.max_num_batched_tokens = 64;
  options.replay_grid = 512;
  options.threads = 1;
  options.profile_steps = false;
  return options;
}

GenerationRequest Ask(const EngineCore& engine) {
  GenerationRequest request;
  request.prompt = ProseIds(engine, 20);
  request.sampling = SeededSampling(4, 0);
  return request;
}

constexpr char kFailure[] =
    "the device has failed and computes nothing more: the device is broken; restart the program";

TEST(DeviceFailure, EndsEveryRequestAndIsRemembered) {
  const auto broken = std::make_shared<std::atomic<bool>>(false);
  const auto engine = MakeEngine("nano", Options(), {}, MakeDeviceOps(broken));
  EXPECT_EQ(Answer(*engine, Ask(*engine)).choices[0].finish_reason, FinishReason::kLength);
  EXPECT_TRUE(engine->health().ok());
  *broken = true;
  // Both that run and those that wait: nothing hangs.
  std::vector<std::unique_ptr<GenerationStream>> streams;
  for (int i = 0; i < 5; ++i) {
    Result<std::unique_ptr<GenerationStream>> stream = engine->Submit(Ask(*engine));
    if (stream.ok()) {
      streams.push_back(std::move(*stream));
    } else {  // it comes after the first has failed
      EXPECT_EQ(stream.status().message(), kFailure);
    }
  }
  ASSERT_FALSE(streams.empty());
  for (const auto& stream : streams) {
    const Choice& choice = stream->Wait().choices[0];
    EXPECT_EQ(choice.finish_reason, FinishReason::kError);
    EXPECT_EQ(choice.status.message(), kFailure);
  }
  EXPECT_EQ(engine->health().message(), kFailure);
  *broken = false;  // what it says now means nothing
  const auto refused = engine->Submit(Ask(*engine));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kInternal);
  EXPECT_EQ(refused.status().message(), kFailure);
  ExpectNothingHeld(*engine);
}

TEST(DeviceFailure, OfTheFirstStepsIsToldAsItIs) {
  const auto broken = std::make_shared<std::atomic<bool>>(true);
  const Status failed = TryToMakeEngine("nano", Options(), MakeDeviceOps(broken)).status();
  EXPECT_EQ(failed.code(), StatusCode::kInternal);
  EXPECT_NE(failed.message().find("rows cannot be computed (the device is broken)"), std::string::npos)
      << failed.message();
  EXPECT_EQ(failed.message().find("lower"), std::string::npos) << failed.message();
  const Status full =
      TryToMakeEngine("nano", Options(), MakeDeviceOps(broken, Status::ResourceExhausted("no memory"))).status();
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find("(no memory); lower kv_memory"), std::string::npos) << full.message();
}

TEST(DeviceFailure, IsNotWhatEndsASingleRequest) {
  const auto engine = MakeEngine("nano", Options(), {}, MakeDeviceOps());
  GenerationRequest request = Ask(*engine);
  request.sampling.structured_output = {StructuredOutput::Kind::kRegex, "a"};
  request.sampling.bad_words = {"a"};
  EXPECT_EQ(Answer(*engine, request).choices[0].finish_reason, FinishReason::kError);
  EXPECT_TRUE(engine->health().ok());
  EXPECT_EQ(Answer(*engine, Ask(*engine)).choices[0].finish_reason, FinishReason::kLength);
}

}  // namespace
}  // namespace deepinfer::test
