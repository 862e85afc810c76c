// StagingPool: a fixed number of pairs of I/O buffers for calls that read from any thread: one half is read into while
// the other is worked on. More calls than pairs wait for each other.
//
// Thread-safety: any thread. Ownership: owns the buffers; a lease gives its pair back at its end. Memory becomes
// resident as it is first used.
#ifndef DEEPINFER_CACHE_STAGING_POOL_H_
#define DEEPINFER_CACHE_STAGING_POOL_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cache/file_system.h"

namespace deepinfer {

using StagingPair = std::array<IoMemory, 2>;

class StagingPool {
 public:
  class Lease {
   public:
    Lease(StagingPool* pool, StagingPair pair) : pool_(pool), pair_(std::move(pair)) {}
    Lease(Lease&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), pair_(std::move(other.pair_)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (pool_ != nullptr) pool_->GiveBack(std::move(pair_));
    }

    const IoMemory& operator[](size_t half) const { return pair_[half]; }

   private:
    StagingPool* pool_;
    StagingPair pair_;
  };

  /// `pairs` of two times `half_bytes`. False: the system has no address space for them.
  [[nodiscard]] bool Allocate(int pairs, int64_t half_bytes) {
    half_bytes_ = half_bytes;
    for (int i = 0; i < pairs; ++i) {
      StagingPair pair = {MakeIoMemory(half_bytes), MakeIoMemory(half_bytes)};
      if (pair[0] == nullptr || pair[1] == nullptr) return false;
      free_.push_back(std::move(pair));
    }
    return true;
  }

  /// Nothing: all pairs were in use for `seconds`.
  std::optional<Lease> Take(double seconds) {
    std::unique_lock lock(mutex_);
    if (!returned_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !free_.empty(); })) {
      return std::nullopt;
    }
    StagingPair pair = std::move(free_.back());
    free_.pop_back();
    return std::make_optional<Lease>(this, std::move(pair));
  }

  int64_t half_bytes() const { return half_bytes_; }

 private:
  // Buffers that a disk still writes to after it was given up are replaced, so that nobody reads two calls' bytes.
  void GiveBack(StagingPair pair) {
    for (IoMemory& half : pair) {
      if (half.use_count() > 1) half = MakeIoMemory(half_bytes_);
    }
    if (pair[0] == nullptr || pair[1] == nullptr) return;
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(std::move(pair));
    }
    returned_.notify_one();
  }

  int64_t half_bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<StagingPair> free_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_STAGING_POOL_H_
