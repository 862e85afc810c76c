// Waiting that Ctrl-C ends: for answers of an engine, and for input.
#include "app/read_answers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

#include "app/interrupt.h"

namespace deepinfer {
namespace {

/// A request that computes until it is cancelled, as a long prefill does: no news, only time-outs. `press` of them
/// later somebody presses Ctrl-C.
class EndlessStream final : public GenerationStream {
 public:
  EndlessStream(int press, bool* dropped) : press_(press), dropped_(dropped) { generation_.choices.resize(1); }
  ~EndlessStream() override { *dropped_ = true; }

  bool Next(GenerationDelta*) override { return false; }
  void CancelChoice(int) override { ADD_FAILURE() << "nobody asked for one choice"; }
  bool NextFor(GenerationDelta* delta, int, bool* timed_out) override {
    if (cancelled_) return false;
    *timed_out = press_ > 0;
    if (!*timed_out) delta->content = "news";
    if (--press_ == 0) std::raise(SIGINT);
    return true;
  }
  void Cancel() override {
    cancelled_ = true;
    generation_.choices[0].finished = true;
    generation_.choices[0].finish_reason = FinishReason::kCancelled;
  }
  const Generation& Wait() override { return generation_; }

 private:
  int press_;
  bool* dropped_;
  bool cancelled_ = false;
  Generation generation_;
};

class EndlessEngine final : public Engine {
 public:
  explicit EndlessEngine(int press) : press_(press) {}

  const EngineOptions& options() const override { return options_; }
  std::string warning() const override { return {}; }
  Status health() const override { return Status::Ok(); }
  Result<std::unique_ptr<GenerationStream>> Submit(GenerationRequest request) override {
    if (request.prompt.empty()) return Status::InvalidArgument("max_tokens: nothing to do");
    return std::unique_ptr<GenerationStream>(std::make_unique<EndlessStream>(press_, &dropped_));
  }
  Status Tokenize(const std::string&, bool, std::vector<int32_t>*) const override { return Status::Ok(); }
  std::string Detokenize(std::span<const int32_t>) const override { return {}; }
  int32_t bos_token_id() const override { return 0; }
  std::vector<PlannedMemory> memory_plan() const override { return {}; }
  EngineStatistics statistics() const override { return {}; }
  void ClearPrefixCache() override {}
  void WaitIdle() override {}

  bool dropped() const { return dropped_; }

 private:
  EngineOptions options_;
  int press_;
  bool dropped_ = false;
};

GenerationRequest OneToken() {
  GenerationRequest request;
  request.prompt = {1};
  return request;
}

TEST(ReadAnswers, ControlCCancelsARequestThatHasNoNews) {
  const Interrupt interrupt;
  EndlessEngine engine(3);
  int pieces = 0;
  const Result<Generation> generation = ReadAnswers(engine, OneToken(), [&](const GenerationDelta&) {
    ++pieces;
    return Status::Ok();
  });
  ASSERT_TRUE(generation.ok());
  EXPECT_EQ(generation->choices[0].finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(pieces, 0);  // a time-out is no news
}

TEST(ReadAnswers, AFailingSinkEndsTheRequest) {
  const Interrupt interrupt;
  EndlessEngine engine(0);
  const Result<Generation> generation =
      ReadAnswers(engine, OneToken(), [](const GenerationDelta& delta) { return Status::Io(delta.content); });
  ASSERT_FALSE(generation.ok());
  EXPECT_EQ(generation.status().message(), "news");
  EXPECT_TRUE(engine.dropped());
}

TEST(ReadAnswers, RefusedRequestsAreToldByFlagAndNumber) {
  const Interrupt interrupt;
  EndlessEngine engine(1);
  EXPECT_EQ(ReadAnswers(engine, {}, nullptr).status().message(), "--max-tokens: nothing to do");
  std::vector<GenerationRequest> requests(2);
  requests[0] = OneToken();
  EXPECT_EQ(RunRequests(engine, requests, nullptr).status().message(), "request 2: --max-tokens: nothing to do");
  EXPECT_TRUE(engine.dropped());  // and so cancelled
}

TEST(ReadAnswers, ControlCEndsARunOfManyRequests) {
  const Interrupt interrupt;
  EndlessEngine engine(2);
  const Result<std::vector<Generation>> generations = RunRequests(engine, {OneToken(), OneToken()}, nullptr);
  ASSERT_FALSE(generations.ok());
  EXPECT_EQ(generations.status().code(), StatusCode::kCancelled);
}

TEST(Interrupt, WakesWhoWaitsForInputFromAnyThread) {
  const Interrupt interrupt;
  std::array<int, 2> ends;
  ASSERT_EQ(pipe(ends.data()), 0);
  // Blocked here, so that another thread gets the signal.
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  std::thread other([] { pthread_kill(pthread_self(), SIGINT); });
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  EXPECT_FALSE(Interrupt::WaitForInput(ends[0]));
  EXPECT_TRUE(Interrupt::flag());
  other.join();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  Interrupt::Clear();
  EXPECT_FALSE(Interrupt::flag());
  EXPECT_EQ(write(ends[1], "x", 1), 1);
  EXPECT_TRUE(Interrupt::WaitForInput(ends[0]));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace deepinfer
