// DiskTier: the KvTier of a folder, on a local disk ("disk") or on a file system that several machines mount
// ("shared"). The format, and how several processes share the folder without a daemon: docs/kv-format.md.
//
// Invariants: 1. a record is found only after its bytes were written, and counts only when it proves itself as it is
// read; 2. the sizes of all files in the folder that this process may list, of all processes and namespaces, never add
// up to more than the budget;
// 3. a process that dies leaves nothing that the next upkeep of any other does not find; 4. no byte that is wrong on
// the disk makes a call fail.
//
// Errors: kResourceExhausted for a full disk, kCancelled for a disk that does not answer, kIo for one that does not
// work; the tier works again as soon as the disk does (Probe). A budget without room is no error: the records are
// dropped and counted as evicted.
//
// Thread-safety: as KvTier; upkeep, writes and probes exclude each other by a lock, reads take none while they wait.
// Ownership: the file system outlives the tier.
#ifndef DEEPINFER_CACHE_DISK_TIER_H_
#define DEEPINFER_CACHE_DISK_TIER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/copy_forward.h"
#include "cache/disk_counters.h"
#include "cache/disk_directory.h"
#include "cache/disk_space.h"
#include "cache/disk_writer.h"
#include "cache/file_system.h"
#include "cache/kv_tier.h"
#include "cache/segment_discovery.h"
#include "cache/segment_table.h"
#include "cache/staging_pool.h"

namespace deepinfer {

struct DiskTierOptions {
  std::string name = "disk";
  std::string folder;  ///< its parent must exist
  int64_t budget_bytes = 0;
  int64_t segment_bytes = int64_t{256} << 20;  ///< less when the budget is small
  bool direct = true;                          ///< O_DIRECT where the folder allows it
  std::string host;                            ///< part of the writer's name; random bytes tell processes apart
  WallClock clock;
};

class DiskTier : public KvTier {
 public:
  /// Touches no disk: Probe opens the folder. kInvalidArgument: a budget too small for a few segments of such records,
  /// no clock, no folder. kResourceExhausted: no memory for index and buffers.
  static Result<std::unique_ptr<DiskTier>> Create(DiskTierOptions options, const KvRecordCodec& codec,
                                                  FileSystem* files);
  /// Seals what is open.
  ~DiskTier() override;

  std::string_view name() const override { return options_.name; }
  Result<int64_t> Find(std::span<const KvKey> keys) override;
  Result<bool> Has(KvRecordKind kind, const KvKey& key) override;
  Status Read(std::span<KvRead> reads) override;
  Status Write(std::span<const KvWrite> writes) override;
  Status Maintain() override;
  Status Probe() override;
  Status Drop(const KvScope& scope) override;
  int64_t memory_bytes() const override;
  KvTierCounts counts() const override;

  /// Of the index, touched so far.
  int64_t index_bytes() const { return table_.index_bytes(); }

 private:
  struct Wanted;
  struct Window;
  struct Batch;

  DiskTier(DiskTierOptions options, const KvRecordCodec& codec, FileSystem* files, const DiskWriterLimits& limits);

  int64_t Now() const { return options_.clock(); }
  Status MaintainLocked();
  /// Forgets segments whose files have no name any more.
  void CloseRemoved();
  /// The status, after buffers that the disk may still use were replaced.
  Status ReplaceLostBuffers(Status status);

  std::vector<Batch> Plan(std::span<const KvWrite> writes, int64_t now);
  Status Encode(const Batch& batch, int64_t now, const IoMemory& memory, StagedRecords* staged) const;

  Status OpenFiles(std::vector<Wanted>* wanted);
  std::vector<Window> Group(std::vector<Wanted>* wanted) const;
  Status Decode(const Window& window, std::span<KvRead> reads, int64_t now);
  void Judge(const Wanted& wanted, std::span<const uint8_t> bytes, KvRead* read, int64_t now);

  // Read together: large enough for a disk, small enough to be in a cache still when they are decoded.
  static constexpr int64_t kWindowBytes = int64_t{2} << 20;

  const DiskTierOptions options_;
  const KvRecordCodec codec_;
  FileSystem* const files_;
  int64_t batch_bytes_ = 0;
  int64_t write_part_bytes_ = 0;  // of write_staging_, each
  int64_t capacity_ = 0;          // records

  DiskCounters counters_;
  SegmentTable table_;
  StagingPool staging_;

  std::mutex work_mutex_;  // of what follows
  DiskDirectory directory_;
  DiskSpace space_;
  DiskWriter writer_;
  SegmentDiscovery discovery_;
  CopyForward copy_forward_;
  StagingSet write_staging_;
  std::set<std::string> unreadable_;  // paths, as of the last upkeep
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_DISK_TIER_H_
