// KvTier: a place outside the KV pool that keeps records (kv_record.h): host memory, a local disk, a shared folder,
// Redis. TierStore (tier_store.h) moves records between tiers and the engine; a tier knows nothing of the others.
//
// What is here is never an error and never wrong: a record that does not prove itself is dropped, counted, and a miss.
// A Status other than Ok means that the tier as a whole does not work now (no space, I/O error, connection lost). Its
// caller then leaves it alone and calls Probe from time to time.
//
// Thread-safety: all calls from any thread; Maintain and Probe by one thread at a time. Ownership: a tier
// keeps no pointer behind a call.
#ifndef DEEPINFER_CACHE_KV_TIER_H_
#define DEEPINFER_CACHE_KV_TIER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/kv_key.h"
#include "cache/kv_record.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// Seconds since 1970; tests inject theirs.
using WallClock = std::function<int64_t()>;

/// Counters since the start but for those that say "now".
struct KvTierCounts {
  int64_t records = 0;       ///< now, of this namespace
  int64_t bytes = 0;         ///< now, everything that counts against the budget
  int64_t budget_bytes = 0;  ///< 0: none
  int64_t hits = 0;          ///< records read
  int64_t misses = 0;        ///< records that were asked for and not there
  int64_t corrupt = 0;       ///< records dropped because they did not prove themselves
  int64_t foreign = 0;       ///< files or records left alone: another version or namespace
  int64_t read_bytes = 0;
  int64_t written = 0;  ///< records
  int64_t written_bytes = 0;
  int64_t evicted = 0;  ///< records dropped for space
  int64_t expired = 0;  ///< records dropped by age
  int64_t copied_forward = 0;

  /// Adds what a call has counted: hits, misses, damage, bytes, evictions and expiries.
  void Add(const KvTierCounts& more) {
    hits += more.hits;
    misses += more.misses;
    corrupt += more.corrupt;
    read_bytes += more.read_bytes;
    written += more.written;
    written_bytes += more.written_bytes;
    evicted += more.evicted;
    expired += more.expired;
  }
};

class KvTier {
 public:
  virtual ~KvTier() = default;

  /// "host", "disk", "shared" or "redis".
  virtual std::string_view name() const = 0;
  /// False: Find and Has ask a network and may take as long as a Read.
  virtual bool knows_its_records() const { return true; }

  /// How many block keys from the front are here, as far as is known without reading them.
  virtual Result<int64_t> Find(std::span<const KvKey> keys) = 0;
  virtual Result<bool> Has(KvRecordKind kind, const KvKey& key) = 0;

  /// Reads each record that is here, proves it, copies its payload and sets `found`.
  virtual Status Read(std::span<KvRead> reads) = 0;

  /// Keeps the records in their order, dropping older ones for space; those it has get the later expiry.
  virtual Status Write(std::span<const KvWrite> writes) = 0;

  /// Expiry, eviction, compaction, what other processes did; called every second or so.
  virtual Status Maintain() = 0;
  /// Whether a tier that failed works again. May repair what it finds.
  virtual Status Probe() = 0;

  /// Drops every record of the scope.
  virtual Status Drop(const KvScope& scope) = 0;

  /// Memory that it holds or may come to hold in this process (promise 5).
  virtual int64_t memory_bytes() const = 0;
  virtual KvTierCounts counts() const = 0;
  /// What of its settings will go wrong one day; empty: nothing.
  virtual std::string warning() const { return {}; }
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_KV_TIER_H_
