// StagingPool: a fixed number of sets of I/O buffers for calls that read from any thread: two are read into while the
// third is worked on. More calls than sets wait for each other.
//
// Thread-safety: any thread. Ownership: owns the buffers; a lease gives its set back at its end. Memory becomes
// resident as it is first used.
#ifndef DEEPINFER_CACHE_STAGING_POOL_H_
#define DEEPINFER_CACHE_STAGING_POOL_H_

#include <algorithm>
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

using StagingSet = std::array<IoMemory, 3>;

/// Three buffers of `bytes`. False: the system has no address space for them.
[[nodiscard]] inline bool Allocate(StagingSet* set, int64_t bytes) {
  for (IoMemory& part : *set) part = MakeIoMemory(bytes);
  return std::ranges::all_of(*set, [](const IoMemory& part) { return part != nullptr; });
}

class StagingPool {
 public:
  class Lease {
   public:
    Lease(StagingPool* pool, StagingSet set) : pool_(pool), set_(std::move(set)) {}
    Lease(Lease&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), set_(std::move(other.set_)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (pool_ != nullptr) pool_->GiveBack(std::move(set_));
    }

    const IoMemory& operator[](size_t part) const { return set_[part]; }

   private:
    StagingPool* pool_;
    StagingSet set_;
  };

  /// `sets` of three buffers of `part_bytes`. False: the system has no address space for them.
  [[nodiscard]] bool Allocate(int sets, int64_t part_bytes) {
    part_bytes_ = part_bytes;
    for (int i = 0; i < sets; ++i) {
      StagingSet set;
      if (!deepinfer::Allocate(&set, part_bytes)) return false;
      free_.push_back(std::move(set));
    }
    return true;
  }

  /// Nothing: all sets were in use for `seconds`, or the system has no memory for one.
  std::optional<Lease> Take(double seconds) {
    std::unique_lock lock(mutex_);
    if (!returned_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !free_.empty(); })) {
      return std::nullopt;
    }
    // What could not be replaced then is replaced now, or a later call tries again.
    for (IoMemory& part : free_.back()) {
      if (part == nullptr) part = MakeIoMemory(part_bytes_);
      if (part == nullptr) return std::nullopt;
    }
    StagingSet set = std::move(free_.back());
    free_.pop_back();
    return std::make_optional<Lease>(this, std::move(set));
  }

  int64_t part_bytes() const { return part_bytes_; }

 private:
  // Buffers that a disk still writes to after it was given up are replaced, so that nobody reads two calls' bytes.
  void GiveBack(StagingSet set) {
    for (IoMemory& part : set) {
      if (part.use_count() > 1) part = MakeIoMemory(part_bytes_);
    }
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(std::move(set));
    }
    returned_.notify_one();
  }

  int64_t part_bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<StagingSet> free_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_STAGING_POOL_H_
