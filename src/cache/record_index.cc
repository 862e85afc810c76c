#include "cache/record_index.h"

#include <sys/mman.h>

#include <cassert>
#include <cstring>
#include <limits>

namespace deepinfer {

RecordName RecordName::Of(KvRecordKind kind, const KvKey& key) {
  // Any odd constant keeps the kinds of one key apart; the low word, which the bucket is taken from, stays as random
  // as the key.
  constexpr uint64_t kKindFactor = 0x9E3779B97F4A7C15;
  RecordName name;
  std::memcpy(&name.low, key.bytes.data(), sizeof(name.low));
  std::memcpy(&name.high, key.bytes.data() + sizeof(name.low), sizeof(name.high));
  name.low ^= static_cast<uint64_t>(kind) * kKindFactor;
  return name;
}

bool RecordIndex::Allocate(int64_t capacity) {
  if (capacity >= std::numeric_limits<uint32_t>::max()) return false;
  first_.clear();
  size_ = 0;
  used_entries_ = free_ = 0;
  bucket_count_ = half_ = 1;
  if (!entries_.Allocate(capacity) || !buckets_.Allocate(capacity + 1)) return false;
  // Every access is at random, so that small pages cost more than the memory itself. A kernel without large ones is
  // fine.
  constexpr int64_t kLarge = int64_t{1} << 20;
  if (capacity >= kLarge) {
    madvise(entries_.data(), static_cast<size_t>(entries_.bytes()), MADV_HUGEPAGE);
    madvise(buckets_.data(), static_cast<size_t>(buckets_.bytes()), MADV_HUGEPAGE);
  }
  return true;
}

IndexedRecord RecordIndex::Copy(const Entry& entry) {
  return {.name = NameOf(entry),
          .place = {entry.segment, entry.block},
          .last_use = entry.last_use,
          .hits = entry.hits,
          .tokens = entry.tokens};
}

RecordName RecordIndex::NameOf(const Entry& entry) {
  RecordName name;
  std::memcpy(&name, entry.name, sizeof(name));
  return name;
}

uint32_t RecordIndex::BucketOf(uint64_t hash) const {
  const auto bits = static_cast<uint32_t>(hash);
  const uint32_t bucket = bits & (2 * half_ - 1);
  return bucket < bucket_count_ ? bucket : bits & (half_ - 1);
}

uint32_t RecordIndex::IdOf(const RecordName& name) const {
  if (size_ == 0) return 0;
  uint32_t id = buckets_[BucketOf(name.low)];
  while (id != 0 && std::memcmp(entries_[id - 1].name, &name, sizeof(name)) != 0) id = entries_[id - 1].next;
  return id;
}

bool RecordIndex::Find(const RecordName& name, IndexedRecord* record) const {
  const uint32_t id = IdOf(name);
  if (id == 0) return false;
  *record = Copy(entries_[id - 1]);
  return true;
}

// Bucket b - half_ is split into itself and the new bucket b.
void RecordIndex::AddBucket() {
  if (bucket_count_ == 2 * half_) half_ *= 2;
  const uint32_t old_bucket = bucket_count_ - half_;
  // The buckets that are split next are known.
  constexpr uint32_t kAhead = 8;
  if (old_bucket + kAhead < half_) PrefetchHead(old_bucket + kAhead);
  const uint32_t new_bucket = bucket_count_++;
  uint32_t* keep = &buckets_[old_bucket];
  uint32_t* move = &buckets_[new_bucket];
  uint32_t id = *keep;
  while (id != 0) {
    Entry& entry = entries_[id - 1];
    const uint32_t next = entry.next;
    uint32_t*& tail = (entry.name[0] & half_) != 0 ? move : keep;
    *tail = id;
    tail = &entry.next;
    id = next;
  }
  *keep = 0;
  *move = 0;
}

bool RecordIndex::Insert(const RecordName& name, RecordPlace place, uint16_t tokens) {
  uint32_t id = free_;
  if (id != 0) {
    free_ = entries_[id - 1].next;
  } else if (used_entries_ < entries_.size()) {
    id = ++used_entries_;
  } else {
    return false;
  }
  ++size_;
  if (size_ > bucket_count_) AddBucket();
  Entry& entry = entries_[id - 1];
  std::memcpy(entry.name, &name, sizeof(name));
  entry.block = place.block;
  entry.last_use = 0;
  entry.hits = 0;
  entry.tokens = tokens;
  uint32_t& head = buckets_[BucketOf(name.low)];
  entry.next = head;
  head = id;
  Link(id, place.segment);
  return true;
}

void RecordIndex::Move(const RecordName& name, RecordPlace place) {
  const uint32_t id = IdOf(name);
  assert(id != 0);
  Unlink(id);
  Entry& entry = entries_[id - 1];
  entry.block = place.block;
  entry.last_use = 0;
  entry.hits = 0;
  Link(id, place.segment);
}

void RecordIndex::Use(const RecordName& name, uint32_t time) {
  const uint32_t id = IdOf(name);
  if (id == 0) return;
  Entry& entry = entries_[id - 1];
  entry.last_use = time;
  if (entry.hits < std::numeric_limits<uint16_t>::max()) ++entry.hits;
}

bool RecordIndex::Erase(const RecordName& name) {
  const uint32_t id = IdOf(name);
  if (id == 0) return false;
  Unlink(id);
  Free(id);
  return true;
}

int64_t RecordIndex::EraseSegment(uint32_t segment) {
  if (segment >= first_.size()) return 0;
  int64_t count = 0;
  for (uint32_t id = first_[segment]; id != 0; ++count) {
    const uint32_t next = entries_[id - 1].segment_next;
    Free(id);
    id = next;
  }
  first_[segment] = 0;
  return count;
}

int64_t RecordIndex::touched_bytes() const {
  return used_entries_ * kEntryBytes + bucket_count_ * kBucketBytes +
         static_cast<int64_t>(first_.capacity() * sizeof(uint32_t));
}

void RecordIndex::Link(uint32_t id, uint32_t segment) {
  if (segment >= first_.size()) first_.resize(segment + 1);
  Entry& entry = entries_[id - 1];
  entry.segment = segment;
  entry.segment_previous = 0;
  entry.segment_next = first_[segment];
  if (entry.segment_next != 0) entries_[entry.segment_next - 1].segment_previous = id;
  first_[segment] = id;
}

void RecordIndex::Unlink(uint32_t id) {
  const Entry& entry = entries_[id - 1];
  if (entry.segment_next != 0) entries_[entry.segment_next - 1].segment_previous = entry.segment_previous;
  if (entry.segment_previous != 0) {
    entries_[entry.segment_previous - 1].segment_next = entry.segment_next;
  } else {
    first_[entry.segment] = entry.segment_next;
  }
}

void RecordIndex::TakeFromBucket(uint32_t id) {
  uint32_t* link = &buckets_[BucketOf(NameOf(entries_[id - 1]).low)];
  while (*link != id) link = &entries_[*link - 1].next;
  *link = entries_[id - 1].next;
}

void RecordIndex::Free(uint32_t id) {
  TakeFromBucket(id);
  entries_[id - 1].next = free_;
  free_ = id;
  --size_;
}

}  // namespace deepinfer
