// SegmentDiscovery: learns what other processes did in the folder of a disk tier, and what they left behind.
//
// A sealed segment is known from its footer. A segment that another process writes is followed header by header. One
// that nobody has locked belonged to a process that has died: it is locked, verified record by record, cut behind the
// last good one and sealed, or removed when there is none.
//
// A segment that cannot be read, or not be taken over, is foreign: it is counted once and tried again a minute later.
// Errors are those of the disk as a whole: kCancelled when it does not answer, kResourceExhausted when it is full.
//
// Thread-safety: one thread at a time. Ownership: what it is given outlives it.
#ifndef DEEPINFER_CACHE_SEGMENT_DISCOVERY_H_
#define DEEPINFER_CACHE_SEGMENT_DISCOVERY_H_

#include <cstdint>
#include <map>

#include "cache/disk_counters.h"
#include "cache/disk_directory.h"
#include "cache/disk_space.h"
#include "cache/disk_writer.h"
#include "cache/file_system.h"
#include "cache/kv_record.h"
#include "cache/segment_table.h"
#include "deepinfer/status.h"

namespace deepinfer {

class SegmentDiscovery {
 public:
  SegmentDiscovery(FileSystem* files, DiskDirectory* directory, SegmentTable* table, DiskSpace* space,
                   DiskWriter* writer, DiskCounters* counters, const KvRecordCodec* codec, bool direct)
      : files_(files),
        directory_(directory),
        table_(table),
        space_(space),
        writer_(writer),
        counters_(counters),
        codec_(codec),
        direct_(direct) {}

  /// Brings the table up to date with the folder; what has expired is left out. now: seconds since 1970.
  Status Update(const DiskDirectory::Contents& contents, int64_t now);

  /// Takes over what dead processes left of this namespace, some GiB of it at most. now: seconds since 1970.
  Status TakeOver(const DiskDirectory::Contents& contents, int64_t now);

 private:
  bool IsDue(const SegmentId& id, int64_t now) const;
  /// What came of a try.
  void Remember(const SegmentId& id, const Status& status, int64_t now);
  Status LoadSealed(const SegmentId& id);
  Status Follow(const SegmentId& id);
  Status TakeOverOne(const SegmentOnDisk& segment, int64_t now, int64_t* scanned);
  /// The segment as one of that role, with these records and no others.
  void Replace(const SegmentId& id, SegmentRole role, const SegmentContents& contents);

  FileSystem* files_;
  DiskDirectory* directory_;
  SegmentTable* table_;
  DiskSpace* space_;
  DiskWriter* writer_;
  DiskCounters* counters_;
  const KvRecordCodec* codec_;
  bool direct_;
  IoMemory scratch_;                     // while Update runs
  std::map<SegmentId, int64_t> failed_;  // of this namespace; when it was last tried, seconds since 1970
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_SEGMENT_DISCOVERY_H_
