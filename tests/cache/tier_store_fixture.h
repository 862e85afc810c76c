// TierStore over tiers that fail, hang and forget on demand, for its tests.
//
// Nothing waits for time: tests wait for what the store does, and kLong is reached only by one that fails.
#ifndef DEEPINFER_TESTS_CACHE_TIER_STORE_FIXTURE_H_
#define DEEPINFER_TESTS_CACHE_TIER_STORE_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/tier_store.h"
#include "tests/cache/kv_samples.h"
#include "tests/cache/memory_tier.h"

namespace deepinfer {

inline constexpr double kLong = 60;  // seconds
inline constexpr int64_t kBlockBytes = 1000;
inline constexpr int64_t kRingsBytes = 3000;
inline constexpr int64_t kBlockTokens = 4;
inline constexpr int64_t kNever = 4'000'000'000;  // seconds since 1970

/// A tier that asks a network.
class FarTier : public test::MemoryTier {
 public:
  using test::MemoryTier::MemoryTier;
  bool knows_its_records() const override { return false; }
};

/// A batch, and how often `done` was called for it. The records are destroyed as soon as the store has the batch: who
/// still reads them then keeps a wrong record.
struct Sent {
  std::vector<SampleRecord> records;
  std::mutex mutex;
  std::condition_variable changed;
  int done = 0;

  explicit Sent(std::vector<SampleRecord> sent) : records(std::move(sent)) {}
  void Done() {
    const std::lock_guard lock(mutex);
    ++done;
    changed.notify_all();
  }
  /// How often `done` was called, once it was.
  int Wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done > 0; });
    return done;
  }
  int now() {
    const std::lock_guard lock(mutex);
    return done;
  }
};

/// A fetch with the memory that it reads into.
struct Fetched {
  // Told once more, maybe, when nobody waits any longer.
  struct News {
    std::mutex mutex;
    std::condition_variable changed;
  };
  std::shared_ptr<News> news = std::make_shared<News>();
  std::shared_ptr<KvFetch> fetch;
  std::vector<std::vector<uint8_t>> payloads;
  std::vector<std::vector<uint8_t>> rings;

  std::function<void()> on_news() const {
    return [news = news] {
      const std::lock_guard lock(news->mutex);
      news->changed.notify_all();
    };
  }
  void WaitUntil(const std::function<bool()>& met) const {
    std::unique_lock lock(news->mutex);
    news->changed.wait(lock, met);
  }
  void WaitUntilFinished() const {
    WaitUntil([&] { return fetch->finished(); });
  }
};

class TierStoreTest : public testing::Test {
 protected:
  static TierStoreOptions Options() {
    TierStoreOptions options;
    options.block_bytes = kBlockBytes;
    options.fetch_threads = 1;
    options.first_probe_seconds = 0.001;
    options.most_probe_seconds = 0.001;
    return options;
  }

  template <typename... Tiers>
  void Open(const TierStoreOptions& options, std::unique_ptr<Tiers>... tiers) {
    std::vector<std::unique_ptr<KvTier>> all;
    (all.push_back(std::move(tiers)), ...);
    store_ = std::make_unique<TierStore>(std::move(all), options);
  }

  std::unique_ptr<KvTier> Tier(const std::string& name, const std::shared_ptr<test::MemoryRecords>& records) {
    return std::make_unique<test::MemoryTier>(name, name_space_, records);
  }

  std::vector<SampleRecord> Chain(uint32_t text, int64_t blocks) const {
    return SampleChain(name_space_, scope_, kBlockTokens, text, blocks);
  }

  /// Keeps records in a tier, past the store.
  void Keep(const std::shared_ptr<test::MemoryRecords>& records, std::span<const SampleRecord> kept) {
    test::MemoryTier tier("", name_space_, records);
    for (const SampleRecord& record : kept) {
      const KvWrite write = record.Write(kNever);
      ASSERT_TRUE(tier.Write({&write, 1}).ok());
    }
  }

  bool Store(Sent* sent) {
    KvBatch batch;
    for (SampleRecord& record : sent->records) {
      batch.Add(record.Write(kNever));
      std::ranges::fill(record.payload, uint8_t{0});
    }
    batch.done = [sent] { sent->Done(); };
    return store_->Store(std::move(batch));
  }

  /// Times that tiers went down.
  int64_t Failures() const {
    int64_t failures = 0;
    for (const TierReport& tier : store_->report()) failures += tier.failures;
    return failures;
  }

  static std::vector<uint8_t> TiersOf(const KvFetch& fetch) {
    std::vector<uint8_t> tiers;
    for (const KvFetch::Arrival& arrival : fetch.arrivals()) tiers.push_back(arrival.tier);
    return tiers;
  }

  void Locate(std::span<const SampleRecord> chain, Fetched* fetched, int64_t last_rings = -1) {
    std::vector<KvKey> keys;
    for (const SampleRecord& record : chain) keys.push_back(record.key);
    fetched->fetch = store_->Locate(scope_, std::move(keys), 0, last_rings, fetched->on_news());
    fetched->WaitUntil([&] { return fetched->fetch->located(); });
  }
  void Read(std::span<const SampleRecord> chain, Fetched* fetched, std::span<const SampleRecord> rings = {}) {
    std::vector<KvRead> reads;
    fetched->payloads.resize(chain.size());
    for (size_t i = 0; i < chain.size(); ++i) reads.push_back(chain[i].Read(&fetched->payloads[i]));
    std::vector<KvRead> rings_reads;
    fetched->rings.resize(rings.size());
    for (size_t i = 0; i < rings.size(); ++i) rings_reads.push_back(rings[i].Read(&fetched->rings[i]));
    store_->Read(fetched->fetch, std::move(reads), std::move(rings_reads));
  }

  /// Whether the tier has the record, whole.
  bool Holds(const std::shared_ptr<test::MemoryRecords>& records, const SampleRecord& record) {
    test::MemoryTier tier("", name_space_, records);
    std::vector<uint8_t> payload;
    KvRead read = record.Read(&payload);
    const bool read_ok = tier.Read({&read, 1}).ok();
    return read_ok && read.found;
  }
  static void Forget(test::MemoryRecords* records, const KvKey& key) {
    const std::lock_guard lock(records->mutex);
    ASSERT_EQ(records->records.erase({static_cast<int>(KvRecordKind::kBlock), ToHex(key)}), 1u);
  }

  const KvNamespace name_space_ = KvNamespace::Make("a model", kBlockBytes, kRingsBytes);
  const KvScope scope_ = KvScope::Make(name_space_, "exact", "");
  std::shared_ptr<test::MemoryRecords> host_ = std::make_shared<test::MemoryRecords>();
  std::shared_ptr<test::MemoryRecords> disk_ = std::make_shared<test::MemoryRecords>();
  std::unique_ptr<TierStore> store_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_TESTS_CACHE_TIER_STORE_FIXTURE_H_
