// RateLimiter: holds each key to its KeyLimits (spec serving.md section 11.2).
//
// Requests and tokens per minute are token buckets: full at first, N deep, filled with N a minute. A request takes one
// request and an estimate of its tokens when it is admitted; Settle replaces the estimate by what it used, which may
// leave a debt to wait for. An estimate above the bucket's depth needs a full bucket, so that no request waits for
// ever. Concurrency counts admissions that are alive. Nothing is taken by a request that is refused. Thread-safety: any
// thread. Ownership: an Admission may outlive the limiter. Keys are told apart by their names.
#ifndef DEEPINFER_SERVER_RATE_LIMITER_H_
#define DEEPINFER_SERVER_RATE_LIMITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/clock.h"
#include "server/api_keys.h"

namespace deepinfer {

enum class RateLimit : uint8_t { kConcurrency, kRequests, kTokens };

/// concurrency, requests_per_minute, tokens_per_minute: as in --api-key-file.
std::string_view RateLimitName(RateLimit limit);

/// Why a request may not run now.
struct RateRefusal {
  RateLimit limit;            ///< the one that lasts longest
  int64_t value = 0;          ///< of that limit
  int64_t retry_after_s = 1;  ///< whole seconds; a guess of 1 for concurrency

  /// One line for the client: the limit, its value, when to try again.
  std::string Message() const;
};

class RateLimiter {
 private:
  struct Shared;
  struct KeyState;

 public:
  /// The right of one request to run. Ends with it: concurrency is given back, an estimate that was not settled stands.
  class Admission {
   public:
    Admission() = default;
    Admission(Admission&& other) noexcept = default;
    Admission& operator=(Admission&& other) noexcept;
    ~Admission() { Release(); }

    /// Says what the request has used; only the first call counts.
    void Settle(int64_t tokens);

   private:
    friend class RateLimiter;
    Admission(std::shared_ptr<Shared> shared, KeyState* key, int64_t estimate)
        : shared_(std::move(shared)), key_(key), estimate_(estimate) {}
    void Release();

    std::shared_ptr<Shared> shared_;  // null: nothing to give back
    KeyState* key_ = nullptr;         // of *shared_
    int64_t estimate_ = 0;
    bool settled_ = false;
  };

  /// `clock` returns seconds that never go back, from any thread.
  explicit RateLimiter(std::function<double()> clock = NowSeconds);

  /// `estimated_tokens`: prompt tokens that are likely not cached, and a share of max_tokens.
  std::variant<Admission, RateRefusal> Admit(const ApiKey& key, int64_t estimated_tokens);

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_RATE_LIMITER_H_
