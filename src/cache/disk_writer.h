// DiskWriter: the segments that this process writes, one for each scope and day of expiry.
//
// A batch is written in two steps: all of it with zeros for its first block, then that block, the header of its first
// record. Who reads along header by header, or scans the file after a crash, meets the batch as a whole or not at all.
// The first steps of two batches are under way together, and the second step of one goes together with those of the
// next. The zeros are there because bytes that have been written before are overwritten without a journal entry, so
// the second step, which is waited for at the end of a row of batches, is short. Space is taken in chunks (DiskSpace),
// always with what the footer needs.
//
// A segment that could not be written to is given up as it is: what was published stays readable, its lock is free, and
// the next upkeep takes it over like that of a dead process.
//
// Thread-safety: one thread at a time. Ownership: owns the open files and their locks; what it is given outlives it.
#ifndef DEEPINFER_CACHE_DISK_WRITER_H_
#define DEEPINFER_CACHE_DISK_WRITER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/disk_counters.h"
#include "cache/disk_directory.h"
#include "cache/disk_space.h"
#include "cache/file_system.h"
#include "cache/segment_table.h"
#include "deepinfer/status.h"

namespace deepinfer {

struct DiskWriterLimits {
  uint64_t writer = 0;         ///< different from those of all other processes
  int64_t segment_bytes = 0;   ///< a segment is sealed before it has more
  int64_t chunk_bytes = 0;     ///< a file grows by so much
  int64_t open_segments = 8;   ///< at most
  int64_t idle_seconds = 600;  ///< a segment that was not written to for so long is sealed
  bool direct = true;          ///< O_DIRECT
};

/// Encoded records, one behind the other.
struct StagedRecords {
  IoMemory memory;
  int64_t begin = 0;                   ///< of the first record in `memory`, bytes
  std::vector<SegmentRecord> records;  ///< offsets behind `begin`
  int64_t bytes = 0;                   ///< of all of them
};

class DiskWriter {
 public:
  DiskWriter(FileSystem* files, DiskDirectory* directory, SegmentTable* table, DiskSpace* space, DiskCounters* counters,
             const KvKey& name_space, const DiskWriterLimits& limits)
      : files_(files),
        directory_(directory),
        table_(table),
        space_(space),
        counters_(counters),
        name_space_(name_space),
        limits_(limits) {}

  /// Appends all records or none; later calls publish them in the table, and Flush ends a row of those. Returns while
  /// the batch is under way: its memory is in use, and its first block zero, until two more calls or Flush have
  /// returned. False: the budget has no room for them. An error may be one of an earlier batch. Nothing is under way
  /// after either. now: seconds since 1970.
  Result<bool> Append(const KvScope& scope, int64_t expiry_day, const StagedRecords& staged, int64_t now);

  /// Publishes what was appended. The first error. Nothing else may be called between Append and Flush but Append.
  Status Flush();

  /// Seals those that were not written to for long and those that have expired.
  Status SealIdle(int64_t now);
  Status SealAll();
  /// Lets go of segments whose names are gone, removed by another process.
  void ForgetRemoved();
  /// Removes the segments of a scope.
  void DropScope(std::string_view scope);

  bool Owns(const SegmentId& id) const;
  const DiskWriterLimits& limits() const { return limits_; }

  /// Writes the footer of a segment that ends at `end` and gives the file its last size and name. The caller holds the
  /// file's lock and has the space.
  static Status Seal(FileSystem& files, DiskDirectory& directory, const std::shared_ptr<File>& file,
                     const SegmentId& id, std::span<const SegmentRecord> records, int64_t end, int64_t* file_bytes);

 private:
  struct OpenSegment {
    SegmentId id;
    uint32_t slot = 0;
    std::shared_ptr<File> file;
    int64_t end = kSegmentHeaderBytes;
    int64_t reserved = 0;  // size of the file, bytes
    int64_t last_write = 0;
    std::vector<SegmentRecord> records;
  };
  using OpenList = std::list<OpenSegment>;  // the most recently written first

  /// A batch under way.
  struct Pending {
    OpenList::iterator segment;
    int64_t offset = 0;  // of the batch
    int64_t end = 0;
    size_t first_record = 0;  // of the segment's
    size_t records = 0;
    IoMemory first_block;      // a copy
    FileOperation operation;   // of the step under way
    bool second_step = false;  // the first has ended
    std::unique_ptr<FileSystem::Transfer> transfer;
  };

  Result<bool> Start(const KvScope& scope, int64_t expiry_day, const StagedRecords& staged, int64_t now);
  /// Waits for the first step, and puts the second one under way if that went well.
  void EndFirstStep(Pending* pending);
  /// Publishes the oldest batch under way, or gives its segment up with all that is under way there.
  Status EndOldest();
  /// The segment to append to, with room; the end of the list: the budget has none.
  Result<OpenList::iterator> Ready(const KvScope& scope, int64_t expiry_day, const StagedRecords& staged, int64_t now);
  Result<OpenList::iterator> Create(const KvScope& scope, int64_t expiry_day, int64_t bytes, int64_t now);
  Status CreateFile(const KvScope& scope, int64_t bytes, int64_t now, OpenSegment* made);
  /// Take of DiskSpace; seals other segments for their unused space when there is none.
  Result<bool> TakeSpace(int64_t bytes, int64_t now, const OpenSegment* keep, const std::function<Status()>& take);
  Status SealOne(OpenList::iterator segment);
  void GiveUp(OpenList::iterator segment);

  FileSystem* files_;
  DiskDirectory* directory_;
  SegmentTable* table_;
  DiskSpace* space_;
  DiskCounters* counters_;
  KvKey name_space_;
  DiskWriterLimits limits_;
  OpenList open_;
  std::deque<Pending> pending_;  // the oldest first; operations stay where they are
  uint32_t next_number_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_DISK_WRITER_H_
