#include "cache/copy_forward.h"

#include <algorithm>
#include <cstring>

namespace deepinfer {
namespace {

// A record expires up to a day before its segment does, and half a day is time enough to find it.
constexpr int64_t kHorizon = kSecondsPerDay * 3 / 2;
constexpr int64_t kLookSeconds = 600;  // between two looks at a segment that is used all the time

}  // namespace

Status CopyForward::Run(int64_t now, const IoMemory& memory, int64_t limit) {
  int64_t used = 0;
  std::map<uint64_t, Look> looks;  // of segments that are still there
  std::swap(looks, looks_);
  for (const SegmentView& segment : table_->All()) {
    const int64_t death = segment.id.expiry_day * kSecondsPerDay;
    if (segment.role != SegmentRole::kSealed || death <= now || death - now > kHorizon || segment.uses == 0) continue;
    const auto look = looks.find(segment.serial);
    if (look != looks.end() && (look->second.uses == segment.uses || now - look->second.time < kLookSeconds)) {
      looks_.insert(*look);
      continue;
    }
    std::vector<Batch> batches;
    const Result<bool> more = Gather(segment, now, memory, limit, &used, &batches);
    if (!more.ok() && more.status().code() == StatusCode::kNotFound) continue;
    // The disk may yet write to the memory.
    if (!more.ok() && more.status().code() == StatusCode::kCancelled) return more.status();
    if (!more.ok()) {
      // One bad segment, which ends on its day.
      looks_[segment.serial] = {segment.uses, now};
      continue;
    }
    for (const Batch& batch : batches) {
      DEEPINFER_ASSIGN_OR_RETURN(const bool kept, writer_->Append(batch.scope, batch.expiry_day, batch.staged, now));
      if (!kept) return writer_->Flush();
      counters_->copied_forward += std::ssize(batch.staged.records);
    }
    DEEPINFER_RETURN_IF_ERROR(writer_->Flush());
    if (!*more) break;
    looks_[segment.serial] = {segment.uses, now};
  }
  return Status::Ok();
}

Result<bool> CopyForward::Gather(const SegmentView& segment, int64_t now, const IoMemory& memory, int64_t limit,
                                 int64_t* used, std::vector<Batch>* batches) {
  std::vector<IndexedRecord> wanted = table_->UsedRecords(segment.slot);
  if (wanted.empty()) return true;
  std::ranges::sort(wanted, {}, [](const IndexedRecord& record) { return record.place.block; });
  DEEPINFER_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, files_->Open(directory_->Path(segment.id, true),
                                                                            OpenMode::kRead, writer_->limits().direct));
  DEEPINFER_ASSIGN_OR_RETURN(const SegmentContents contents, ReadSealedSegment(*files_, file));
  if (contents.state != SegmentState::kGood) return true;

  struct Copy {
    const SegmentRecord* record;
    IndexedRecord known;
    int64_t expires_at;
  };
  std::vector<Copy> copies;
  std::vector<FileOperation> reads;
  bool full = false;
  auto next = wanted.begin();
  for (const SegmentRecord& record : contents.records) {
    const auto block = static_cast<uint32_t>(record.offset / kRecordAlignment);
    while (next != wanted.end() && next->place.block < block) ++next;
    if (next == wanted.end()) break;
    if (next->place.block != block || next->name != record.name) continue;
    const int64_t renewed = next->last_use + record.lifetime;
    if (renewed <= now || ExpiryDay(renewed) <= segment.id.expiry_day) continue;
    if (*used + record.bytes > limit) {
      full = true;
      break;
    }
    copies.push_back({&record, *next, renewed});
    reads.push_back(
        {.file = file, .offset = record.offset, .memory = memory, .memory_offset = *used, .bytes = record.bytes});
    *used += record.bytes;
  }
  files_->Run(reads);
  for (size_t i = 0; i < copies.size(); ++i) {
    DEEPINFER_RETURN_IF_ERROR(reads[i].status);
    const Copy& copy = copies[i];
    if (reads[i].done != reads[i].bytes || codec_->Renew(reads[i].data(), copy.expires_at) != KvRecordState::kGood) {
      ++counters_->corrupt;
      table_->Drop(copy.known.name, copy.known.place);
      continue;
    }
    const int64_t day = ExpiryDay(copy.expires_at);
    const int64_t place = reads[i].memory_offset;
    const Batch* const last = batches->empty() ? nullptr : &batches->back();
    if (last == nullptr || last->expiry_day != day || last->staged.begin + last->staged.bytes != place) {
      Batch& batch = batches->emplace_back();
      batch.scope.root = contents.header.scope;
      batch.expiry_day = day;
      batch.staged.memory = memory;
      batch.staged.begin = place;
    }
    StagedRecords& staged = batches->back().staged;
    SegmentRecord record = *copy.record;
    record.expires_at = copy.expires_at;
    record.offset = staged.bytes;
    staged.records.push_back(record);
    staged.bytes += record.bytes;
  }
  return !full;
}

}  // namespace deepinfer
