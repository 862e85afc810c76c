// Counter, Gauge, Histogram and LabelledCounter: what the server counts, to be read by a scrape.
//
// Thread-safety: all members from any thread; observing is a few relaxed atomic operations, but for LabelledCounter,
// which takes a lock and is for what happens once per request. Ownership: none. Prometheus-cpp is not used: Debian
// ships it as shared libraries only, which the one-file program cannot link.
#ifndef DEEPINFER_SERVER_INSTRUMENTS_H_
#define DEEPINFER_SERVER_INSTRUMENTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer {

/// Only grows.
class Counter {
 public:
  void Add(int64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_ = 0;
};

/// Goes up and down.
class Gauge {
 public:
  void Add(int64_t count) { value_.fetch_add(count, std::memory_order_relaxed); }
  void Set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_ = 0;
};

/// What a histogram has seen.
struct HistogramCounts {
  std::vector<double> bounds;    // [n], ascending
  std::vector<int64_t> buckets;  // [n + 1], values <= bounds[i] and above those before; the last: above all
  double sum = 0;
};

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);

  /// What is no number or negative counts as 0.
  void Observe(double value);
  /// Observations that are made meanwhile may be in the buckets and not yet in the sum.
  HistogramCounts counts() const;

 private:
  const std::vector<double> bounds_;
  const std::unique_ptr<std::atomic<int64_t>[]> buckets_;  // [bounds + 1]
  std::atomic<double> sum_ = 0;
};

/// 1, 2, 5, 10, ... up to `largest`: vLLM's bounds for counts of tokens.
std::vector<double> OneTwoFiveBounds(int64_t largest);

/// A counter for each pair of label values. What clients could make grow without end is kept small: after `most` pairs
/// all others count as ("other", second).
class LabelledCounter {
 public:
  using Key = std::pair<std::string, std::string>;

  explicit LabelledCounter(size_t most = 256) : most_(most) {}

  void Add(std::string_view first, std::string_view second);
  std::map<Key, int64_t> values() const;

 private:
  const size_t most_;
  mutable std::mutex mutex_;
  std::map<Key, int64_t> values_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_INSTRUMENTS_H_
