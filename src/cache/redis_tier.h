// RedisTier: records in a Redis 7 server that many hosts share (docs/kv-tiers.md). Redis does expiry and eviction.
//
//   deepinfer:kv:1:<namespace, 16 digits>:<b or r>:<key, 64 digits>  ->  record (kv_record.h) | first 16 bytes of the
//   scope's root
//
// B and R instead of b and r: encrypted. The scope is in the value, because a reader does not know it; Drop looks at
// the end of each value of the namespace.
//
// Limits: a value that is longer than the record that is wanted is not read; about batch_bytes are on their way at a
// time; every wait ends after command_seconds.
//
// Thread-safety: all calls from any thread; as many at a time as there are connections, others wait. Ownership: owns
// its connections.
#ifndef DEEPINFER_CACHE_REDIS_TIER_H_
#define DEEPINFER_CACHE_REDIS_TIER_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/kv_tier.h"
#include "cache/redis_connection.h"

namespace deepinfer {

struct RedisTierOptions {
  std::string url;             ///< redis_url.h
  double connect_seconds = 1;  ///< longest wait for a connection
  double command_seconds = 2;  ///< longest wait for the replies to a batch
  int connections = 2;
  int64_t batch_bytes = int64_t{4} << 20;
  WallClock clock;
};

class RedisTier : public KvTier {
 public:
  static constexpr int64_t kScopeBytes = 16;

  /// Does not connect: that is done, and done again, by the calls. kInvalidArgument, kUnsupported: a URL that cannot
  /// be.
  static Result<std::unique_ptr<RedisTier>> Create(const KvRecordCodec& codec, RedisTierOptions options);

  std::string_view name() const override { return "redis"; }
  bool knows_its_records() const override { return false; }
  Result<int64_t> Find(std::span<const KvKey> keys) override;
  Result<bool> Has(KvRecordKind kind, const KvKey& key) override;
  Status Read(std::span<KvRead> reads) override;
  Status Write(std::span<const KvWrite> writes) override;
  /// Asks for the memory in use and the limit.
  Status Maintain() override;
  /// Whether the server answers and takes a write.
  Status Probe() override;
  /// Looks at the names of the whole server and at every value of the namespace.
  Status Drop(const KvScope& scope) override;

  int64_t memory_bytes() const override;
  /// records is 0, because nobody counts them; bytes and budget_bytes are Redis' used_memory and maxmemory, as Maintain
  /// found them.
  KvTierCounts counts() const override;

  /// What of the server's settings will go wrong one day, as Maintain found them; empty: nothing.
  std::string warning() const override;

  /// What a value says (see above). Public for tests and tools.
  static KvRecordState Decode(const KvRecordCodec& codec, std::span<const uint8_t> value, KvRead* read);
  std::string NameOf(KvRecordKind kind, const KvKey& key) const;

 private:
  /// A connection, open and nobody else's.
  class Lease;

  RedisTier(const KvRecordCodec& codec, RedisTierOptions options, const RedisUrl& url);

  Result<Lease> Borrow();
  int64_t ValueBytes(KvRecordKind kind, size_t ids) const;
  Status ReadBatch(RedisConnection& connection, std::span<KvRead*> reads, KvTierCounts* counts);
  Status WriteMissing(RedisConnection& connection, std::span<const KvWrite* const> writes, KvTierCounts* counts);
  Status Unlink(RedisConnection& connection, const std::vector<std::string>& names);
  void Count(const KvTierCounts& more);

  const KvRecordCodec codec_;
  const RedisTierOptions options_;
  const std::string prefix_;  ///< of all names of this namespace

  std::mutex pool_mutex_;
  std::condition_variable pool_changed_;
  std::vector<std::unique_ptr<RedisConnection>> pool_;  // idle, under pool_mutex_

  mutable std::mutex counts_mutex_;
  KvTierCounts counts_;  // under counts_mutex_
  std::string warning_;  // under counts_mutex_
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_REDIS_TIER_H_
