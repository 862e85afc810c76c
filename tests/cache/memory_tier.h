// MemoryTier: a KvTier for tests. Records of KvRecordCodec in a map that outlives it, so that a new tier on the same
// map is a restart; faults can be switched on at any time.
#ifndef DEEPINFER_TESTS_CACHE_MEMORY_TIER_H_
#define DEEPINFER_TESTS_CACHE_MEMORY_TIER_H_

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cache/kv_tier.h"

namespace deepinfer::test {

struct MemoryRecords {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, std::string>, std::vector<uint8_t>> records;  // kind and hexadecimal key

  // Faults.
  bool fail_reads = false;
  bool fail_writes = false;
  bool fail_finds = false;
  bool hold_reads = false;   ///< reads wait until it is false again
  bool hold_writes = false;  ///< the same
  int reads = 0;             ///< calls that have begun
  int writes = 0;
  int probes = 0;

  void Set(bool MemoryRecords::*fault, bool on) {
    {
      const std::lock_guard lock(mutex);
      this->*fault = on;
    }
    changed.notify_all();
  }
  /// Waits until `met` holds; it is looked at whenever something has changed.
  void WaitUntil(const std::function<bool()>& met) {
    std::unique_lock lock(mutex);
    changed.wait(lock, met);
  }
  int64_t Count(KvRecordKind kind);
};

class MemoryTier : public KvTier {
 public:
  MemoryTier(std::string name, const KvNamespace& name_space, std::shared_ptr<MemoryRecords> records)
      : name_(std::move(name)), codec_(name_space, std::nullopt), records_(std::move(records)) {}

  std::string_view name() const override { return name_; }
  Result<int64_t> Find(std::span<const KvKey> keys) override;
  Result<bool> Has(KvRecordKind kind, const KvKey& key) override;
  Status Read(std::span<KvRead> reads) override;
  Status Write(std::span<const KvWrite> writes) override;
  Status Maintain() override { return Status::Ok(); }
  Status Probe() override;
  Status Drop(const KvScope& scope) override;
  int64_t memory_bytes() const override { return 0; }
  KvTierCounts counts() const override;

 private:
  std::string name_;
  KvRecordCodec codec_;
  std::shared_ptr<MemoryRecords> records_;
  KvTierCounts counts_;  // under the mutex of the records
};

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_CACHE_MEMORY_TIER_H_
