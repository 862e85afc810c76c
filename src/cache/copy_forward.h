// CopyForward: records that were used since they were written get another life: they are copied into a segment of a
// later day before theirs dies. A record lives as long after its last use as it was to live after it was written.
//
// Thread-safety: one thread at a time. Ownership: what it is given outlives it.
#ifndef DEEPINFER_CACHE_COPY_FORWARD_H_
#define DEEPINFER_CACHE_COPY_FORWARD_H_

#include <cstdint>
#include <map>
#include <vector>

#include "cache/disk_counters.h"
#include "cache/disk_directory.h"
#include "cache/disk_writer.h"
#include "cache/file_system.h"
#include "cache/kv_record.h"
#include "cache/segment_table.h"
#include "deepinfer/status.h"

namespace deepinfer {

class CopyForward {
 public:
  CopyForward(FileSystem* files, DiskDirectory* directory, SegmentTable* table, DiskWriter* writer,
              DiskCounters* counters, const KvRecordCodec* codec)
      : files_(files), directory_(directory), table_(table), writer_(writer), counters_(counters), codec_(codec) {}

  /// Copies the records of segments that die within a day and a half, `limit` bytes of them at most, which `memory`
  /// has. now: seconds since 1970.
  Status Run(int64_t now, const IoMemory& memory, int64_t limit);

 private:
  struct Batch {
    KvScope scope;
    int64_t expiry_day = 0;
    StagedRecords staged;
  };

  struct Look {
    int64_t uses = 0;  // of the segment, as of then
    int64_t time = 0;
  };

  /// Reads what there is to copy of a segment behind the `*used` bytes of memory. False: there was more than fits.
  Result<bool> Gather(const SegmentView& segment, int64_t now, const IoMemory& memory, int64_t limit, int64_t* used,
                      std::vector<Batch>* batches);

  FileSystem* files_;
  DiskDirectory* directory_;
  SegmentTable* table_;
  DiskWriter* writer_;
  DiskCounters* counters_;
  const KvRecordCodec* codec_;
  std::map<uint64_t, Look> looks_;  // by the serial number of a segment: when there was nothing to copy
};

/// The day at whose first second a record has expired; both since 1970.
inline int64_t ExpiryDay(int64_t expires_at_seconds) {
  return (expires_at_seconds + kSecondsPerDay - 1) / kSecondsPerDay;
}

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_COPY_FORWARD_H_
