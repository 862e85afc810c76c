// SegmentTable: the segments of a namespace that this process knows, and which record is in which (RecordIndex).
//
// The value of a segment says what is lost with it for each byte that is gained: the tokens of its records, counted
// again with every hit and once for the last use of the segment by any process, both fading with a half-life of 6 h,
// divided by its bytes (serving.md 7.4, ds4's formula).
//
// Thread-safety: any thread; no call waits for I/O. Ownership: shares the files that segments are read from, at most
// kOpenFiles at a time.
#ifndef DEEPINFER_CACHE_SEGMENT_TABLE_H_
#define DEEPINFER_CACHE_SEGMENT_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "cache/disk_directory.h"
#include "cache/record_index.h"
#include "cache/segment_file.h"

namespace deepinfer {

enum class SegmentRole : uint8_t {
  kOwn,   ///< being written by this process
  kOpen,  ///< being written by another, or left by one that has died
  kSealed,
  kIgnored,  ///< not ours: another version or namespace, or at the wrong place
};

/// A segment at some moment. `serial` is never used again, `slot` is.
struct SegmentView {
  uint32_t slot = 0;
  uint64_t serial = 0;
  SegmentId id;
  SegmentRole role = SegmentRole::kSealed;
  int64_t created = 0;   ///< seconds since 1970
  int64_t last_use = 0;  ///< seconds since 1970; at first `created`
  int64_t end = 0;       ///< behind the last record that is known, bytes
  int64_t records = 0;
  int64_t uses = 0;            ///< of its records by this process
  std::shared_ptr<File> file;  ///< to read from; nothing: not open
};

/// Where a record is.
struct RecordLocation {
  RecordName name;
  RecordPlace place;
  int64_t last_use = 0;  ///< by this process, seconds since 1970; 0: none
  SegmentView segment;
};

class SegmentTable {
 public:
  static constexpr int64_t kOpenFiles = 256;

  /// False when the system has no address space for an index of `capacity` records.
  [[nodiscard]] bool Allocate(int64_t capacity) { return index_.Allocate(capacity); }

  uint32_t Add(const SegmentId& id, SegmentRole role, int64_t created, int64_t end);
  void SetRole(uint32_t slot, SegmentRole role);
  /// Records of a segment, which end at `end`. One that is also elsewhere counts where it expires later.
  void Publish(uint32_t slot, std::span<const SegmentRecord> records, int64_t end);
  /// Forgets the segment; how many records went with it.
  int64_t Remove(uint32_t slot);

  std::optional<SegmentView> Find(const SegmentId& id) const;
  std::vector<SegmentView> All() const;

  /// today: days since 1970; what has expired is not there.
  std::optional<RecordLocation> Locate(const RecordName& name, int64_t today);
  bool Has(const RecordName& name, int64_t today) const;
  int64_t CountPrefix(std::span<const KvKey> keys, int64_t today) const;

  /// A record was read. now: seconds since 1970.
  void Use(const RecordName& name, RecordPlace place, int64_t now);
  /// The record at this place is no good.
  void Drop(const RecordName& name, RecordPlace place);
  /// The records of a segment that were used since they were written.
  std::vector<IndexedRecord> UsedRecords(uint32_t slot) const;

  /// The file to read a segment from, unless the segment has gone meanwhile.
  void KeepFile(uint32_t slot, uint64_t serial, std::shared_ptr<File> file);
  /// Segments that were used since their time of access was last taken here, but for those taken less than a minute
  /// ago.
  std::vector<SegmentView> TakeTouched(int64_t now);

  /// accessed: the file's time of access; bytes: its size.
  double Value(uint32_t slot, int64_t accessed, int64_t bytes, int64_t now) const;
  /// Of a segment that nobody here has read, of `tokens` tokens.
  static double Value(double tokens, double hit_tokens, int64_t last_use, int64_t bytes, int64_t now);

  /// Of all records that are here.
  int64_t token_count() const;
  int64_t record_count() const;
  int64_t index_bytes() const;

 private:
  struct Segment {
    SegmentView view;
    bool used = false;  // the slot
    int64_t tokens = 0;
    double hit_tokens = 0;  // as of hit_time
    int64_t hit_time = 0;
    int64_t touched = 0;
    bool touch_due = false;
    uint64_t file_tick = 0;
  };

  bool Lives(const Segment& segment, int64_t today) const { return segment.view.id.expiry_day > today; }
  void CloseOldest();

  mutable std::mutex mutex_;
  RecordIndex index_;
  std::vector<Segment> segments_;  // [slots]
  std::vector<uint32_t> free_slots_;
  std::map<SegmentId, uint32_t> slots_;
  uint64_t next_serial_ = 1;
  uint64_t tick_ = 0;
  int64_t open_files_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_SEGMENT_TABLE_H_
