// DiskSpace: the budget of a folder, over all processes and namespaces that use it. Whoever needs space takes the
// folder's lock, adds up the sizes of all files, removes segments until what it needs fits too, takes it (by making a
// file longer) and gives the lock back. So the sum is never above the budget, whoever dies when.
//
// What goes first: segments that leave no room by themselves, then those of the least value (SegmentTable), where those
// of other namespaces are valued by their last use. Never one that a living process writes, never the newest beside
// which there is room, never what is no segment or of another version. Where files that are no segments leave no room,
// nothing goes.
//
// Thread-safety: one thread at a time. Ownership: what it is given outlives it.
#ifndef DEEPINFER_CACHE_DISK_SPACE_H_
#define DEEPINFER_CACHE_DISK_SPACE_H_

#include <cstdint>
#include <functional>

#include "cache/disk_counters.h"
#include "cache/disk_directory.h"
#include "cache/file_system.h"
#include "cache/segment_table.h"
#include "deepinfer/status.h"

namespace deepinfer {

class DiskSpace {
 public:
  DiskSpace(FileSystem* files, DiskDirectory* directory, SegmentTable* table, DiskCounters* counters,
            int64_t budget_bytes)
      : files_(files), directory_(directory), table_(table), counters_(counters), budget_bytes_(budget_bytes) {}

  /// Makes room for `bytes` more and calls `take` under the folder's lock, which makes files that much larger. False:
  /// no room, `take` was not called. now: seconds since 1970.
  Result<bool> Take(int64_t bytes, int64_t now, const std::function<Status()>& take);

  /// Removes the segments that have expired. today: days since 1970.
  Status RemoveExpired(const DiskDirectory::Contents& contents, int64_t today);

 private:
  Status MakeRoom(DiskDirectory::Contents* contents, int64_t bytes, int64_t now);
  /// False: it stays, because it is not ours to delete, someone writes it or the system does not let us. An error:
  /// kCancelled when the disk does not answer.
  Result<bool> Remove(const SegmentOnDisk& segment, int64_t* records);
  Result<bool> TryRemove(const SegmentOnDisk& segment, int64_t* records);

  FileSystem* files_;
  DiskDirectory* directory_;
  SegmentTable* table_;
  DiskCounters* counters_;
  int64_t budget_bytes_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_DISK_SPACE_H_
