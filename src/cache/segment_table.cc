#include "cache/segment_table.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {
namespace {

constexpr double kHalfLife = 6 * 3600;  // seconds
constexpr int64_t kTouchSeconds = 60;

double Faded(double amount, int64_t since, int64_t now) {
  return now <= since ? amount : amount * std::exp2(-static_cast<double>(now - since) / kHalfLife);
}

}  // namespace

uint32_t SegmentTable::Add(const SegmentId& id, SegmentRole role, int64_t created, int64_t end) {
  const std::lock_guard lock(mutex_);
  uint32_t slot = 0;
  if (free_slots_.empty()) {
    slot = static_cast<uint32_t>(segments_.size());
    segments_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  Segment& segment = segments_[slot];
  segment = {};
  segment.used = true;
  segment.view.slot = slot;
  segment.view.serial = next_serial_++;
  segment.view.id = id;
  segment.view.role = role;
  segment.view.created = segment.view.last_use = created;
  segment.view.end = end;
  slots_[id] = slot;
  return slot;
}

void SegmentTable::SetRole(uint32_t slot, SegmentRole role) {
  const std::lock_guard lock(mutex_);
  segments_[slot].view.role = role;
}

void SegmentTable::Publish(uint32_t slot, std::span<const SegmentRecord> records, int64_t end) {
  const std::lock_guard lock(mutex_);
  Segment& segment = segments_[slot];
  segment.view.end = end;
  // Millions of records are published at a start; each would wait for memory three times.
  constexpr size_t kAhead = 8;
  for (size_t i = 0; i < records.size(); ++i) {
    if (i + 2 * kAhead < records.size()) index_.PrefetchBucket(records[i + 2 * kAhead].name);
    if (i + kAhead < records.size()) index_.PrefetchEntry(records[i + kAhead].name);
    const SegmentRecord& record = records[i];
    const RecordPlace place{slot, static_cast<uint32_t>(record.offset / kRecordAlignment)};
    IndexedRecord known;
    if (index_.Find(record.name, &known)) {
      Segment& other = segments_[known.place.segment];
      if (known.place.segment == slot || other.view.id.expiry_day >= segment.view.id.expiry_day) continue;
      index_.Move(record.name, place);
      other.tokens -= known.tokens;
      --other.view.records;
    } else if (!index_.Insert(record.name, place, static_cast<uint16_t>(record.tokens))) {
      continue;  // more records than a full budget has: they are not found, no more
    }
    segment.tokens += record.tokens;
    ++segment.view.records;
  }
}

int64_t SegmentTable::Remove(uint32_t slot) {
  const std::lock_guard lock(mutex_);
  Segment& segment = segments_[slot];
  const int64_t count = index_.EraseSegment(slot);
  if (segment.view.file != nullptr) --open_files_;
  slots_.erase(segment.view.id);
  segment = {};
  free_slots_.push_back(slot);
  return count;
}

std::optional<SegmentView> SegmentTable::Find(const SegmentId& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = slots_.find(id);
  if (found == slots_.end()) return std::nullopt;
  return segments_[found->second].view;
}

std::vector<SegmentView> SegmentTable::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<SegmentView> views;
  views.reserve(slots_.size());
  for (const auto& [id, slot] : slots_) views.push_back(segments_[slot].view);
  return views;
}

std::optional<RecordLocation> SegmentTable::Locate(const RecordName& name, int64_t today) {
  const std::lock_guard lock(mutex_);
  IndexedRecord record;
  if (!index_.Find(name, &record) || !Lives(segments_[record.place.segment], today)) return std::nullopt;
  segments_[record.place.segment].file_tick = ++tick_;
  return RecordLocation{name, record.place, record.last_use, segments_[record.place.segment].view};
}

bool SegmentTable::Has(const RecordName& name, int64_t today) const {
  const std::lock_guard lock(mutex_);
  IndexedRecord record;
  return index_.Find(name, &record) && Lives(segments_[record.place.segment], today);
}

int64_t SegmentTable::CountPrefix(std::span<const KvKey> keys, int64_t today) const {
  const std::lock_guard lock(mutex_);
  int64_t count = 0;
  IndexedRecord record;
  for (const KvKey& key : keys) {
    if (!index_.Find(RecordName::Of(KvRecordKind::kBlock, key), &record)) break;
    if (!Lives(segments_[record.place.segment], today)) break;
    ++count;
  }
  return count;
}

void SegmentTable::Use(const RecordName& name, RecordPlace place, int64_t now) {
  const std::lock_guard lock(mutex_);
  IndexedRecord record;
  if (!index_.Find(name, &record) || record.place != place) return;
  index_.Use(name, static_cast<uint32_t>(now));
  Segment& segment = segments_[place.segment];
  segment.hit_tokens = Faded(segment.hit_tokens, segment.hit_time, now) + record.tokens;
  segment.hit_time = now;
  segment.view.last_use = std::max(segment.view.last_use, now);
  segment.touch_due = true;
  ++segment.view.uses;
}

void SegmentTable::Drop(const RecordName& name, RecordPlace place) {
  const std::lock_guard lock(mutex_);
  IndexedRecord record;
  if (!index_.Find(name, &record) || record.place != place) return;
  index_.Erase(name);
  segments_[place.segment].tokens -= record.tokens;
  --segments_[place.segment].view.records;
}

std::vector<IndexedRecord> SegmentTable::UsedRecords(uint32_t slot) const {
  const std::lock_guard lock(mutex_);
  std::vector<IndexedRecord> records;
  index_.ForEach(slot, [&](const IndexedRecord& record) {
    if (record.hits > 0) records.push_back(record);
  });
  return records;
}

void SegmentTable::KeepFile(uint32_t slot, uint64_t serial, std::shared_ptr<File> file) {
  const std::lock_guard lock(mutex_);
  if (slot >= segments_.size() || segments_[slot].view.serial != serial || !segments_[slot].used) return;
  Segment& segment = segments_[slot];
  if (segment.view.file == nullptr && open_files_++ >= kOpenFiles) CloseOldest();
  segment.view.file = std::move(file);
  segment.file_tick = ++tick_;
}

// Opening a file costs more than a look at a few thousand segments.
void SegmentTable::CloseOldest() {
  Segment* oldest = nullptr;
  for (Segment& segment : segments_) {
    if (segment.view.file != nullptr && (oldest == nullptr || segment.file_tick < oldest->file_tick)) oldest = &segment;
  }
  if (oldest == nullptr) return;
  oldest->view.file = nullptr;
  --open_files_;
}

std::vector<SegmentView> SegmentTable::TakeTouched(int64_t now) {
  const std::lock_guard lock(mutex_);
  std::vector<SegmentView> views;
  for (Segment& segment : segments_) {
    if (!segment.used || !segment.touch_due || now - segment.touched < kTouchSeconds) continue;
    segment.touch_due = false;
    segment.touched = now;
    views.push_back(segment.view);
  }
  return views;
}

double SegmentTable::Value(uint32_t slot, int64_t accessed, int64_t bytes, int64_t now) const {
  const std::lock_guard lock(mutex_);
  const Segment& segment = segments_[slot];
  return Value(static_cast<double>(segment.tokens), Faded(segment.hit_tokens, segment.hit_time, now),
               std::max(segment.view.last_use, accessed), bytes, now);
}

double SegmentTable::Value(double tokens, double hit_tokens, int64_t last_use, int64_t bytes, int64_t now) {
  return (tokens + hit_tokens + Faded(tokens, last_use, now)) / static_cast<double>(std::max<int64_t>(bytes, 1));
}

int64_t SegmentTable::token_count() const {
  const std::lock_guard lock(mutex_);
  int64_t tokens = 0;
  for (const Segment& segment : segments_) tokens += segment.tokens;
  return tokens;
}

int64_t SegmentTable::record_count() const {
  const std::lock_guard lock(mutex_);
  return index_.size();
}

int64_t SegmentTable::index_bytes() const {
  const std::lock_guard lock(mutex_);
  return index_.touched_bytes();
}

}  // namespace deepinfer
