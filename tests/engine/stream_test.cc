// What a reader of a stream sees, and how one of several choices is cancelled.
#include <gtest/gtest.h>

#include <atomic>

#include "engine/stream_state.h"
#include "engine_fixture.h"

namespace deepinfer::test {
namespace {

TEST(StreamState, DeltasSayWhatIsNewAndHowItEnded) {
  int calls = 0;
  StreamState stream(2, [&] { ++calls; });
  stream.Update([](Generation* generation) { generation->cached_tokens = 64; });
  const std::vector<int32_t> ids = {5, 6};
  stream.Append(1, {.ids = ids, .logprobs = {}, .reasoning = "r", .content = "c"});
  EXPECT_EQ(calls, 1);
  GenerationDelta delta;
  bool timed_out = true;
  ASSERT_TRUE(stream.NextFor(&delta, 0, &timed_out));
  EXPECT_FALSE(timed_out);
  EXPECT_EQ(delta.index, 1);
  EXPECT_EQ(delta.ids, ids);
  EXPECT_EQ(delta.content, "c");
  EXPECT_EQ(delta.cached_tokens, 64);
  EXPECT_FALSE(delta.finished);
  ASSERT_TRUE(stream.NextFor(&delta, 0, &timed_out));
  EXPECT_TRUE(timed_out);

  stream.Finish(1, FinishReason::kStopSequence, "END", -1, Status::Ok());
  EXPECT_EQ(calls, 2);
  ASSERT_TRUE(stream.Next(&delta));
  EXPECT_TRUE(delta.finished);
  EXPECT_TRUE(delta.ids.empty());
  EXPECT_EQ(delta.finish_reason, FinishReason::kStopSequence);
  EXPECT_EQ(delta.stop_sequence, "END");
  stream.Finish(0, FinishReason::kError, "", -1, Status::Internal("why"));
  ASSERT_TRUE(stream.Next(&delta));
  EXPECT_EQ(delta.index, 0);
  EXPECT_EQ(delta.finish_reason, FinishReason::kError);
  EXPECT_EQ(delta.status.message(), "why");
  EXPECT_FALSE(stream.Next(&delta));
}

TEST(StreamState, ChoicesAreCancelledAloneOrTogether) {
  StreamState stream(3);
  stream.CancelChoice(1);
  EXPECT_FALSE(stream.cancelled(0));
  EXPECT_TRUE(stream.cancelled(1));
  stream.Cancel();
  EXPECT_TRUE(stream.cancelled(0));
  EXPECT_TRUE(stream.cancelled(2));
}

TEST(CancelChoice, LeavesTheOtherChoicesAsTheyWere) {
  EngineOptions options;
  options.max_num_seqs = 3;
  options.max_model_len = 512;
  const auto engine = MakeEngine("tiny2", options);
  GenerationRequest request;
  request.prompt = {1, 2, 3, 4, 5};
  request.sampling.n = 3;
  request.sampling.max_tokens = 200;
  request.sampling.ignore_eos = true;
  const Result<Generation> whole = engine->Generate(request);
  ASSERT_TRUE(whole.ok());
  // The first choice computes the prompt for the others.
  for (const int gone : {0, 1}) {
    std::atomic<int> news = 0;
    request.on_news = [&] { ++news; };
    Result<std::unique_ptr<GenerationStream>> stream = engine->Submit(request);
    ASSERT_TRUE(stream.ok());
    GenerationDelta delta;
    while ((*stream)->Next(&delta) && delta.index != gone) {
    }
    (*stream)->CancelChoice(gone);
    const Generation& rest = (*stream)->Wait();
    // On a busy machine it may have been complete before it was cancelled.
    const Choice& cancelled = rest.choices[static_cast<size_t>(gone)];
    EXPECT_EQ(cancelled.finish_reason == FinishReason::kCancelled, cancelled.ids.size() < 200);
    for (size_t i = 0; i < 3; ++i) {
      if (static_cast<int>(i) == gone) continue;
      EXPECT_EQ(rest.choices[i].ids, whole->choices[i].ids);
    }
    EXPECT_GE(news, 3);
  }
  ExpectNothingHeld(*engine);
}

}  // namespace
}  // namespace deepinfer::test
