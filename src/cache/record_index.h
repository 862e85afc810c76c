// RecordIndex: in which segment, and where in it, a record is. A hash table of 44 bytes an entry and 4 a bucket that
// grows by one bucket with every entry (linear hashing), so that no call copies it and its size follows what is in it.
// The entries of a segment are a list: a segment goes in the time its own records take.
//
// Invariants: 1. nothing allocates after Allocate but the table of segments; 2. bytes of memory that were ever touched
// are below 52 per entry, counted at the largest number of entries, beside a page (2 MiB in an index for a million
// records and more) at the end of each table; 3. what it answers depends on the calls only.
//
// Thread-safety: one thread at a time. Ownership: owns its tables.
#ifndef DEEPINFER_CACHE_RECORD_INDEX_H_
#define DEEPINFER_CACHE_RECORD_INDEX_H_

#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "cache/kv_key.h"
#include "cache/kv_record.h"

namespace deepinfer {

/// 128 bits of a record's key, which is a cryptographic hash, and its kind. Two records with one name cannot mix: a
/// read compares the whole key.
struct RecordName {
  uint64_t low = 0;
  uint64_t high = 0;

  static RecordName Of(KvRecordKind kind, const KvKey& key);
  friend auto operator<=>(const RecordName&, const RecordName&) = default;
};

struct RecordPlace {
  uint32_t segment = 0;  ///< a small number, given by the user
  uint32_t block = 0;    ///< offset in the segment's file / kRecordAlignment

  friend auto operator<=>(const RecordPlace&, const RecordPlace&) = default;
};

struct IndexedRecord {
  RecordName name;
  RecordPlace place;
  uint32_t last_use = 0;  ///< seconds since 1970; 0: not used since it was put at this place
  uint16_t hits = 0;      ///< since it was put at this place; stops at 65535
  uint16_t tokens = 0;
};

class RecordIndex {
 public:
  /// An empty index for `capacity` records, below 2^32 - 1. False when the system has no address space for it.
  [[nodiscard]] bool Allocate(int64_t capacity);
  /// Of the tables of an index, all touched.
  static int64_t BytesFor(int64_t capacity) { return capacity * (kEntryBytes + kBucketBytes); }

  bool Find(const RecordName& name, IndexedRecord* record) const;
  /// Makes the next calls with this name fast; the second call some names later than the first.
  void PrefetchBucket(const RecordName& name) const { __builtin_prefetch(&buckets_[BucketOf(name.low)], 1); }
  void PrefetchEntry(const RecordName& name) const { PrefetchHead(BucketOf(name.low)); }
  /// A record whose name is not there yet. False: full.
  bool Insert(const RecordName& name, RecordPlace place, uint16_t tokens);
  /// Another place for a record that is there; its use starts anew.
  void Move(const RecordName& name, RecordPlace place);
  /// Counts a use of a record, if it is there. time: seconds since 1970.
  void Use(const RecordName& name, uint32_t time);
  bool Erase(const RecordName& name);

  /// Removes all records of a segment; how many there were.
  int64_t EraseSegment(uint32_t segment);
  /// Calls `visit(const IndexedRecord&)` for the records of a segment, the last inserted first.
  template <typename Visit>
  void ForEach(uint32_t segment, const Visit& visit) const {
    if (segment >= first_.size()) return;
    for (uint32_t id = first_[segment]; id != 0; id = entries_[id - 1].segment_next) visit(Copy(entries_[id - 1]));
  }

  int64_t size() const { return size_; }
  int64_t capacity() const { return entries_.size(); }
  /// Touched so far, without the pages at the ends.
  int64_t touched_bytes() const;

 private:
  static constexpr int64_t kEntryBytes = 44;
  static constexpr int64_t kBucketBytes = 4;

  // Ids of entries are their index + 1; 0 means none, as in fresh memory.
  struct Entry {
    uint32_t name[4];
    uint32_t segment;
    uint32_t block;
    uint32_t next;  // in its bucket, or in the list of free entries
    uint32_t segment_next;
    uint32_t segment_previous;
    uint32_t last_use;
    uint16_t hits;
    uint16_t tokens;
  };
  static_assert(sizeof(Entry) == kEntryBytes);

  static IndexedRecord Copy(const Entry& entry);
  static RecordName NameOf(const Entry& entry);
  uint32_t BucketOf(uint64_t hash) const;
  uint32_t IdOf(const RecordName& name) const;
  void PrefetchHead(uint32_t bucket) const {
    const uint32_t id = buckets_[bucket];
    if (id != 0) __builtin_prefetch(&entries_[id - 1], 1);
  }
  void AddBucket();
  void Link(uint32_t id, uint32_t segment);
  void Unlink(uint32_t id);
  void TakeFromBucket(uint32_t id);
  void Free(uint32_t id);

  AlignedBuffer<Entry> entries_;     // [capacity]
  AlignedBuffer<uint32_t> buckets_;  // [capacity], id of the first entry
  std::vector<uint32_t> first_;      // [segments], id of the first entry
  int64_t size_ = 0;
  uint32_t used_entries_ = 0;  // those behind were never used
  uint32_t free_ = 0;          // id
  uint32_t bucket_count_ = 0;  // between half_ and 2 * half_
  uint32_t half_ = 1;          // a power of two
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_RECORD_INDEX_H_
