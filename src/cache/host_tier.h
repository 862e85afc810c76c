// HostTier: records in host memory, private to the process or shared with others by a file (docs/kv-tiers.md).
//
// The budget covers everything: the mapping with its tables, and the buffers that reads are proved in. Memory becomes
// resident as records come in; a file is allocated at once. Records are plain in it, with a checksum: what protects
// them is the mode of the file, 0600.
//
// Order of use, which eviction follows: the records of a call count as used at that call, the first one as the latest,
// and the blocks above them up to the root as later still. So a prefix loses its end before its beginning.
//
// Thread-safety: all calls from any thread. Ownership: owns its mapping; a file stays when the tier goes.
#ifndef DEEPINFER_CACHE_HOST_TIER_H_
#define DEEPINFER_CACHE_HOST_TIER_H_

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "base/aligned_buffer.h"
#include "cache/host_mapping.h"
#include "cache/host_table.h"
#include "cache/kv_tier.h"

namespace deepinfer {

struct HostTierOptions {
  int64_t budget_bytes = 0;
  int64_t block_tokens = 64;  ///< at most so many ids a record
  std::string file;           ///< shared by all processes that name it; empty: private memory
  double lock_seconds = 1;    ///< longest wait for another process
  WallClock clock;
};

class HostTier : public KvTier {
 public:
  /// kInvalidArgument: a budget below one record of each kind, a file that is refused (host_mapping.h).
  /// kResourceExhausted, kIo: the system has no room, or the file system does not want to.
  static Result<std::unique_ptr<HostTier>> Create(const KvNamespace& name_space, HostTierOptions options);

  std::string_view name() const override { return "host"; }
  Result<int64_t> Find(std::span<const KvKey> keys) override;
  Result<bool> Has(KvRecordKind kind, const KvKey& key) override;
  /// Never fails.
  Status Read(std::span<KvRead> reads) override;
  /// kInvalidArgument: a record that is not of this namespace. kIo: another process keeps the lock.
  Status Write(std::span<const KvWrite> writes) override;
  /// Drops expired records among the next 65536 slots.
  Status Maintain() override;
  /// Checks the index, and rebuilds it when it is wrong.
  Status Probe() override;
  /// What is dropped is overwritten with zeros. A record that another process writes meanwhile may stay.
  Status Drop(const KvScope& scope) override;

  int64_t memory_bytes() const override { return mapping_.bytes() + kStagings * staging_bytes(); }
  KvTierCounts counts() const override;

  /// The invariants of the index; kCorruption names the one that does not hold.
  Status Verify();
  /// How often this process found that another one had died while it wrote.
  int64_t recoveries() const { return table_.recoveries(); }
  const HostLayout& layout() const { return table_.layout(); }

 private:
  static constexpr int kStagings = 4;
  /// Where one read is copied to and proved. Its mutex is held while memory is copied, never longer.
  struct Staging {
    std::mutex mutex;
    AlignedBuffer<uint8_t> bytes;
  };

  HostTier(HostMapping mapping, const HostLayout& layout, HostTierOptions options);

  static int64_t StagingBytes(const HostLayout& layout);
  int64_t staging_bytes() const { return StagingBytes(table_.layout()); }
  HostTable::Outcome ReadOne(KvRead* read, int64_t now, HostTable::Place* place);
  void Count(const KvTierCounts& more);

  HostTierOptions options_;
  HostMapping mapping_;
  HostTable table_;
  std::array<Staging, kStagings> stagings_;
  std::atomic<uint32_t> next_staging_ = 0;
  uint32_t next_expiry_ = 0;  // slot; Maintain's
  mutable std::mutex counts_mutex_;
  KvTierCounts counts_;  // under counts_mutex_
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_HOST_TIER_H_
