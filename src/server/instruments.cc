#include "server/instruments.h"

#include <algorithm>

namespace deepinfer {

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), buckets_(new std::atomic<int64_t>[bounds_.size() + 1]()) {}

void Histogram::Observe(double value) {
  if (!(value >= 0)) value = 0;
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  buckets_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

HistogramCounts Histogram::counts() const {
  HistogramCounts counts;
  counts.bounds = bounds_;
  for (size_t i = 0; i <= bounds_.size(); ++i) counts.buckets.push_back(buckets_[i].load(std::memory_order_relaxed));
  counts.sum = sum_.load(std::memory_order_relaxed);
  return counts;
}

std::vector<double> OneTwoFiveBounds(int64_t largest) {
  std::vector<double> bounds;
  for (int64_t decade = 1; decade <= largest; decade *= 10) {
    for (const int64_t factor : {1, 2, 5}) {
      if (factor * decade <= largest) bounds.push_back(static_cast<double>(factor * decade));
    }
  }
  return bounds;
}

void LabelledCounter::Add(std::string_view first, std::string_view second) {
  Key key(first, second);
  const std::lock_guard lock(mutex_);
  auto found = values_.find(key);
  if (found == values_.end() && values_.size() >= most_) key.first = "other";
  ++values_[std::move(key)];
}

std::map<LabelledCounter::Key, int64_t> LabelledCounter::values() const {
  const std::lock_guard lock(mutex_);
  return values_;
}

}  // namespace deepinfer
