#include "server/rate_limiter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace deepinfer {
namespace {

class Bucket {
 public:
  /// Brings the level up to date; a new depth (0: no limit) starts full.
  void Refill(int64_t per_minute, double now) {
    if (per_minute != per_minute_) {
      per_minute_ = per_minute;
      level_ = static_cast<double>(per_minute);
    } else {
      level_ = std::min(static_cast<double>(per_minute_), level_ + (now - refilled_at_) * Rate());
    }
    refilled_at_ = now;
  }
  void Refill(double now) { Refill(per_minute_, now); }

  /// Seconds until `amount` can be taken; 0: now.
  double Wait(double amount) const {
    if (per_minute_ == 0) return 0;
    const double missing = std::min(amount, static_cast<double>(per_minute_)) - level_;
    // A client that waits exactly so long must not be refused for a rounding error.
    return missing <= 1e-6 ? 0 : missing / Rate();
  }

  void Take(double amount) {
    if (per_minute_ > 0) level_ = std::min(static_cast<double>(per_minute_), level_ - amount);
  }

 private:
  double Rate() const { return static_cast<double>(per_minute_) / 60; }

  int64_t per_minute_ = 0;
  double level_ = 0;  // negative: a debt
  double refilled_at_ = 0;
};

}  // namespace

std::string_view RateLimitName(RateLimit limit) {
  static constexpr std::string_view kNames[] = {"concurrency", "requests_per_minute", "tokens_per_minute"};
  return kNames[static_cast<size_t>(limit)];
}

std::string RateRefusal::Message() const {
  static constexpr std::string_view kWhat[] = {"requests at once", "requests per minute", "tokens per minute"};
  return fmt::format("this API key may use {} {}; try again in {} s", value, kWhat[static_cast<size_t>(limit)],
                     retry_after_s);
}

struct RateLimiter::KeyState {
  int64_t running = 0;
  Bucket requests;
  Bucket tokens;
};

struct RateLimiter::Shared {
  std::function<double()> clock;
  std::mutex mutex;
  std::unordered_map<std::string, KeyState> keys;  // by name; addresses stay
};

RateLimiter::RateLimiter(std::function<double()> clock) : shared_(std::make_shared<Shared>()) {
  shared_->clock = std::move(clock);
}

std::variant<RateLimiter::Admission, RateRefusal> RateLimiter::Admit(const ApiKey& key, int64_t estimated_tokens) {
  const KeyLimits& limits = key.limits;
  const auto estimate = static_cast<double>(estimated_tokens);
  const std::lock_guard lock(shared_->mutex);
  KeyState& state = shared_->keys[key.name];
  const double now = shared_->clock();
  state.requests.Refill(limits.requests_per_minute, now);
  state.tokens.Refill(limits.tokens_per_minute, now);

  const struct {
    RateLimit limit;
    int64_t value;
    double wait;
  } checks[] = {
      {RateLimit::kConcurrency, limits.concurrency,
       limits.concurrency > 0 && state.running >= limits.concurrency ? 1.0 : 0.0},
      {RateLimit::kRequests, limits.requests_per_minute, state.requests.Wait(1)},
      {RateLimit::kTokens, limits.tokens_per_minute, state.tokens.Wait(estimate)},
  };
  const auto longest = std::max_element(std::begin(checks), std::end(checks),
                                        [](const auto& a, const auto& b) { return a.wait < b.wait; });
  if (longest->wait > 0) {
    return RateRefusal{longest->limit, longest->value, static_cast<int64_t>(std::ceil(longest->wait))};
  }
  ++state.running;
  state.requests.Take(1);
  state.tokens.Take(estimate);
  return Admission(shared_, &state, estimated_tokens);
}

RateLimiter::Admission& RateLimiter::Admission::operator=(Admission&& other) noexcept {
  if (this != &other) {
    Release();
    shared_ = std::move(other.shared_);
    key_ = other.key_;
    estimate_ = other.estimate_;
    settled_ = other.settled_;
  }
  return *this;
}

void RateLimiter::Admission::Settle(int64_t tokens) {
  if (shared_ == nullptr || std::exchange(settled_, true)) return;
  const std::lock_guard lock(shared_->mutex);
  // What came in since then counts first: the bucket may have been full in between.
  key_->tokens.Refill(shared_->clock());
  key_->tokens.Take(static_cast<double>(tokens - estimate_));
}

void RateLimiter::Admission::Release() {
  if (shared_ == nullptr) return;
  {
    const std::lock_guard lock(shared_->mutex);
    --key_->running;
  }
  shared_.reset();
}

}  // namespace deepinfer
