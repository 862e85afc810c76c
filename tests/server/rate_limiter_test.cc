#include "server/rate_limiter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace deepinfer {
namespace {

class RateLimiterTest : public testing::Test {
 protected:
  using Admission = RateLimiter::Admission;

  static ApiKey Key(const std::string& name, KeyLimits limits) {
    ApiKey key;
    key.name = name;
    key.limits = limits;
    return key;
  }

  /// The admission; a failure of the test when it was refused.
  Admission Admit(const ApiKey& key, int64_t tokens = 0) {
    auto outcome = limiter_->Admit(key, tokens);
    if (auto* refusal = std::get_if<RateRefusal>(&outcome)) {
      ADD_FAILURE() << "refused at " << now_ << ": " << refusal->Message();
      return {};
    }
    return std::get<Admission>(std::move(outcome));
  }

  /// Why it was refused, empty when it was not.
  std::string Refusal(const ApiKey& key, int64_t tokens = 0) {
    const auto outcome = limiter_->Admit(key, tokens);
    const auto* refusal = std::get_if<RateRefusal>(&outcome);
    if (refusal == nullptr) return "";
    return std::string(RateLimitName(refusal->limit)) + " " + std::to_string(refusal->value) + " " +
           std::to_string(refusal->retry_after_s);
  }

  double now_ = 1000;
  std::optional<RateLimiter> limiter_{[this] { return now_; }};
};

TEST_F(RateLimiterTest, WithoutLimitsEverythingIsAdmitted) {
  const ApiKey key = Key("a", {});
  std::vector<Admission> admissions;
  for (int i = 0; i < 1000; ++i) admissions.push_back(Admit(key, 1 << 30));
}

TEST_F(RateLimiterTest, ConcurrencyIsGivenBackByTheEnd) {
  const ApiKey key = Key("a", {.concurrency = 2});
  Admission first = Admit(key);
  {
    const Admission second = Admit(key);
    EXPECT_EQ(Refusal(key), "concurrency 2 1");
    EXPECT_EQ(Refusal(Key("b", {.concurrency = 1})), "");
  }
  Admission second = Admit(key);
  Admission moved = std::move(first);
  EXPECT_EQ(Refusal(key), "concurrency 2 1");  // moving gives nothing back
  moved = std::move(second);                   // ends the first
  second = Admit(key);
  EXPECT_EQ(Refusal(key), "concurrency 2 1");
}

TEST_F(RateLimiterTest, RequestsComeBackAtTheirRate) {
  const ApiKey key = Key("a", {.requests_per_minute = 6});
  for (int i = 0; i < 6; ++i) Admit(key);
  EXPECT_EQ(Refusal(key), "requests_per_minute 6 10");
  now_ += 9.5;
  EXPECT_EQ(Refusal(key), "requests_per_minute 6 1");
  now_ += 0.5;
  Admit(key);
  EXPECT_EQ(Refusal(key), "requests_per_minute 6 10");
  now_ += 3600;  // fills it and no further
  for (int i = 0; i < 6; ++i) Admit(key);
  EXPECT_EQ(Refusal(key), "requests_per_minute 6 10");
}

TEST_F(RateLimiterTest, WaitingAsLongAsToldIsEnough) {
  for (int64_t limit : {1, 7, 11, 59, 61, 997}) {
    const ApiKey key = Key(std::to_string(limit), {.requests_per_minute = limit, .tokens_per_minute = limit * 13});
    for (int i = 0; i < 50; ++i) {
      auto outcome = limiter_->Admit(key, limit * 3);
      if (const auto* refusal = std::get_if<RateRefusal>(&outcome)) {
        now_ += static_cast<double>(refusal->retry_after_s);
        Admit(key, limit * 3);
      }
    }
  }
}

TEST_F(RateLimiterTest, TokensAreEstimatedAndThenSettled) {
  const ApiKey key = Key("a", {.tokens_per_minute = 600});
  Admission first = Admit(key, 500);
  EXPECT_EQ(Refusal(key, 200), "tokens_per_minute 600 10");
  first.Settle(100);
  first.Settle(0);  // only the first counts
  Admission second = Admit(key, 400);
  second.Settle(800);  // 100 + 800 of 600 are used
  EXPECT_EQ(Refusal(key, 0), "tokens_per_minute 600 30");
  now_ += 40;
  EXPECT_EQ(Refusal(key, 101), "tokens_per_minute 600 1");
  Admit(key, 100);  // ends without Settle: the estimate stands
  EXPECT_EQ(Refusal(key, 1), "tokens_per_minute 600 1");
}

TEST_F(RateLimiterTest, TimeBeforeSettlingFillsTheBucketOnlyUpToItsDepth) {
  const ApiKey key = Key("a", {.tokens_per_minute = 600});
  Admission slow = Admit(key, 100);
  now_ += 3600;
  slow.Settle(700);
  EXPECT_EQ(Refusal(key, 1), "tokens_per_minute 600 1");  // 600 - 600
}

TEST_F(RateLimiterTest, ARequestLargerThanTheBucketNeedsAFullOne) {
  const ApiKey key = Key("a", {.tokens_per_minute = 600});
  Admission large = Admit(key, 6000);
  EXPECT_EQ(Refusal(key, 6000), "tokens_per_minute 600 600");
  large.Settle(300);
  EXPECT_EQ(Refusal(key, 6000), "tokens_per_minute 600 30");
  now_ += 30;
  Admit(key, 6000);
}

TEST_F(RateLimiterTest, RefusalsNameTheLongestWaitAndTakeNothing) {
  const ApiKey key = Key("a", {.concurrency = 1, .requests_per_minute = 60, .tokens_per_minute = 60});
  std::optional<Admission> running = Admit(key, 50);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Refusal(key, 40), "tokens_per_minute 60 30");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Refusal(key, 10), "concurrency 1 1");
  running.reset();
  Admit(key, 10);
  for (int i = 0; i < 58; ++i) Admit(key, 0);
  EXPECT_EQ(Refusal(key, 0), "requests_per_minute 60 1");
}

TEST_F(RateLimiterTest, MessagesSayWhatAndWhen) {
  EXPECT_EQ((RateRefusal{RateLimit::kTokens, 600, 30}.Message()),
            "this API key may use 600 tokens per minute; try again in 30 s");
  EXPECT_EQ((RateRefusal{RateLimit::kConcurrency, 4, 1}.Message()),
            "this API key may use 4 requests at once; try again in 1 s");
}

TEST_F(RateLimiterTest, AdmissionsOutliveTheLimiter) {
  Admission admission = Admit(Key("a", {.concurrency = 1, .tokens_per_minute = 10}), 5);
  limiter_.reset();
  admission.Settle(3);
}

TEST(RateLimiter, ThreadsNeverExceedTheLimits) {
  std::atomic<int64_t> running = 0, most = 0, admitted = 0;
  RateLimiter limiter([] { return 5.0; });
  ApiKey key;
  key.name = "a";
  key.limits = {.concurrency = 3, .requests_per_minute = 500, .tokens_per_minute = 0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        const auto outcome = limiter.Admit(key, 0);
        if (std::holds_alternative<RateRefusal>(outcome)) continue;
        ++admitted;
        const int64_t now = ++running;
        for (int64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        --running;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(admitted, 500);
  EXPECT_LE(most, 3);
}

}  // namespace
}  // namespace deepinfer
