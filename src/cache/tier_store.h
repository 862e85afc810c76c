// TierStore: moves records between the engine and its tiers (docs/kv-tiers.md). Writes go behind: they wait in a queue
// of each tier that is bounded in bytes, and what does not fit is not kept. Fetches run on threads of their own, from
// the nearest tier that has a record, and tell how far they have come, so that their caller can go on without the rest.
//
// A tier that fails is left alone, its queue is dropped, and it is probed at growing intervals until it works again. No
// failure is an error for anybody: it is a miss, or a record that is not kept.
//
// Threads: one for each tier (writes, upkeep, probes) and a few for fetches. Those of tiers are as nice as can be, and
// write no more than some MB/s while the engine computes: a tier falls behind rather than slow down a step. It catches
// up when the engine has nothing to do, or its queue is half full. The destructor writes itself what waits.
// Thread-safety: all calls from any thread. Ownership: owns the tiers and the batches; what a fetch reads into is the
// caller's and stays until the fetch has ended.
#ifndef DEEPINFER_CACHE_TIER_STORE_H_
#define DEEPINFER_CACHE_TIER_STORE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "cache/kv_fetch.h"
#include "cache/kv_landing.h"
#include "cache/kv_tier.h"
#include "deepinfer/status.h"

namespace deepinfer {

struct TierStoreOptions {
  int64_t queue_bytes = int64_t{64} << 20;  ///< payload that waits for each tier at most
  int64_t block_bytes = 0;                  ///< payload of one block record, for estimates
  int64_t chunk_bytes = int64_t{4} << 20;   ///< payload of one Read, after which a fetch tells how far it is
  int fetch_threads = 2;
  double opening_seconds = 15;     ///< that the constructor waits for tiers to open
  double upkeep_seconds = 1;       ///< between two calls of Maintain
  double first_probe_seconds = 1;  ///< after a failure; doubles from probe to probe
  double most_probe_seconds = 30;
  double closing_seconds = 20;  ///< that the destructor waits for writes
  /// Payload that each tier writes while the engine computes (SetComputing), in the mean over some batches, as long as
  /// no more than half of its queue is full. A MB costs about half a millisecond of a processor (kv_engine_bench), so
  /// that this is a hundredth of one. What waits is lost when the process is killed, and written when it ends in any
  /// other way.
  double computing_bytes_per_second = 16e6;
  std::function<double()> stopwatch;  ///< seconds, to time reads with; empty: the program's clock
  /// How payloads of blocks get to where they are wanted; null: tiers write there. Outlives the store.
  KvLanding* landing = nullptr;
};

/// Memory of batches, resident as far as it is used. A few slabs are kept for the next batches: pages of new memory
/// cost more than what is copied there.
class KvSlab {
 public:
  static constexpr size_t kBytes = size_t{4352} << 10;  ///< holds what the engine hands over at a time
  static constexpr int64_t kKept = 3;

  /// Holds `bytes` at least.
  explicit KvSlab(size_t bytes);
  KvSlab(KvSlab&&) = default;
  KvSlab& operator=(KvSlab&&) = delete;
  ~KvSlab();

  /// The next bytes, aligned to 64; nothing when there are not so many.
  uint8_t* Take(size_t bytes);

 private:
  size_t used_ = 0;
  AlignedBuffer<uint8_t> bytes_;
};

/// What is to be kept, with memory of its own.
struct KvBatch {
  std::vector<KvWrite> writes;
  std::vector<KvSlab> slabs;
  std::function<void()> done;  ///< called once, by any thread, when no tier needs the batch any more; may be empty

  /// Copies ids and payload.
  void Add(const KvWrite& write);
  /// Takes over what another batch has; `done` stays.
  void Append(KvBatch batch);
  int64_t payload_bytes() const;
};

/// A tier as the store sees it. Counters since the start but for those that say "now".
struct TierReport {
  std::string name;
  bool up = true;
  std::string reason;   ///< why it is down
  std::string warning;  ///< what will go wrong with it one day
  KvTierCounts counts;
  int64_t failures = 0;         ///< times it went down
  int64_t queued_bytes = 0;     ///< now
  int64_t dropped = 0;          ///< records that were not kept: too much waits, or tier down
  double read_seconds = 0;      ///< in Read
  double write_seconds = 0;     ///< in Write
  double bytes_per_second = 0;  ///< moving average of reads; 0: none yet
};

class TierStore {
 public:
  /// `tiers`: nearest first. The one that is called "host" gets a copy of what others yield. A tier that cannot be
  /// opened (its first Probe) is down and probed again.
  TierStore(std::vector<std::unique_ptr<KvTier>> tiers, const TierStoreOptions& options);
  /// Waits for writes under way, closing_seconds at most, and for fetches under way.
  ~TierStore();
  TierStore(const TierStore&) = delete;
  TierStore& operator=(const TierStore&) = delete;

  /// Keeps the batch in every tier that works. Never blocks. False: one that works has too much to write already.
  bool Store(KvBatch batch);

  /// Whether somebody waits for what the machine computes. Takes short locks only.
  void SetComputing(bool computing);

  /// Finds out how many of `keys` from the front are in the tiers, and the deepest block of first_rings..last_rings
  /// (indices of keys) that has a rings record. `on_news` is called by other threads at every change.
  std::shared_ptr<KvFetch> Locate(const KvScope& scope, std::vector<KvKey> keys, int64_t first_rings,
                                  int64_t last_rings, std::function<void()> on_news);
  /// Reads located blocks, in order, then `rings` (none or one). Once per fetch.
  void Read(const std::shared_ptr<KvFetch>& fetch, std::vector<KvRead> blocks, std::vector<KvRead> rings);
  /// Ends a located fetch without reading.
  void Abandon(const std::shared_ptr<KvFetch>& fetch);

  /// Waits until all queues are empty, which are written as fast as can be; false: not within so many seconds.
  bool Flush(double seconds);

  /// The same until no tier is down.
  bool WaitUntilUp(double seconds);

  size_t tier_count() const { return lanes_.size(); }
  std::string_view tier_name(size_t tier) const { return lanes_[tier]->tier->name(); }
  int64_t memory_bytes() const;
  std::vector<TierReport> report() const;

 private:
  /// A batch on its way into several tiers.
  struct Shared {
    KvBatch batch;
    std::atomic<int> holders{1};
  };
  /// A tier with its thread.
  struct Lane {
    std::unique_ptr<KvTier> tier;
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::shared_ptr<Shared>> queue;
    int64_t queued_bytes = 0;
    int busy = 0;           // calls of Write or Maintain under way
    int flushing = 0;       // calls of Flush that wait
    double next_write = 0;  // not before, while the engine computes
    bool closing = false;   // the destructor writes the rest of the queue
    bool stop = false;
    bool opened = false;  // the first probe has ended
    bool up = false;
    std::string reason = "being opened";
    int64_t failures = 0;
    int64_t dropped = 0;
    double read_seconds = 0;
    double write_seconds = 0;
    double bytes_per_second = 0;
    double next_probe = 0;
    double probe_interval = 0;
    double next_upkeep = 0;
    std::thread thread;
  };

  void RunLane(Lane& lane);
  /// When the next batch is due: a time that is over when nothing holds it back, a large number without one.
  double NextWrite(const Lane& lane) const;
  void WriteRest(double seconds);
  void WriteNext(Lane& lane, std::unique_lock<std::mutex>& lock);
  static void LetGo(const std::shared_ptr<Shared>& shared);
  void TakeDown(Lane& lane, const Status& why);
  bool Up(const Lane& lane) const;
  void DropQueue(Lane& lane, std::vector<std::shared_ptr<Shared>>* dropped);

  void RunFetches();
  void Post(std::function<void()> task);
  void LocateNow(KvFetch& fetch);
  void ReadNow(const std::shared_ptr<KvFetch>& fetch);
  /// Reads what is missing from every tier in turn; `from` gets the tier of each that was found.
  void ReadChunk(std::span<KvRead> reads, std::span<uint8_t> from);
  void CopyToHost(const KvScope& scope, std::span<const KvRead> reads, std::span<const uint8_t> from);

  TierStoreOptions options_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<bool> computing_{false};
  std::mutex fetch_mutex_;
  std::condition_variable fetch_changed_;
  std::deque<std::function<void()>> fetches_;
  bool stop_fetches_ = false;
  std::vector<std::thread> fetch_threads_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_TIER_STORE_H_
