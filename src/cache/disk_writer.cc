#include "cache/disk_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace deepinfer {

bool DiskWriter::Owns(const SegmentId& id) const {
  return std::ranges::any_of(open_, [&](const OpenSegment& segment) { return segment.id == id; });
}

Result<bool> DiskWriter::TakeSpace(int64_t bytes, int64_t now, const OpenSegment* keep,
                                   const std::function<Status()>& take) {
  DEEPINFER_ASSIGN_OR_RETURN(bool taken, space_->Take(bytes, now, take));
  if (taken) return true;
  for (auto segment = open_.begin(); segment != open_.end();) {
    const auto next = std::next(segment);
    if (&*segment != keep) DEEPINFER_RETURN_IF_ERROR(SealOne(segment));
    segment = next;
  }
  return space_->Take(bytes, now, take);
}

Status DiskWriter::CreateFile(const KvScope& scope, int64_t bytes, int64_t now, OpenSegment* made) {
  IoMemory memory = MakeIoMemory(kSegmentHeaderBytes);
  if (memory == nullptr) return Status::ResourceExhausted("no memory for the header of a segment");
  // Between its creation and its lock another process may think that the file was left behind, and remove it.
  for (int attempt = 0; attempt < 4; ++attempt) {
    made->id.number = next_number_++;
    DEEPINFER_RETURN_IF_ERROR(files_->MakeFolder(directory_->ScopePath(made->id.scope)));
    const std::string path = directory_->Path(made->id, false);
    Result<std::shared_ptr<File>> opened = files_->Open(path, OpenMode::kCreate, limits_.direct);
    // Emptied scope folders are removed by any process at any time.
    if (!opened.ok() && opened.status().code() == StatusCode::kNotFound) continue;
    if (!opened.ok()) return opened.status();
    made->file = *opened;
    DEEPINFER_ASSIGN_OR_RETURN(const bool locked, files_->TryLock(*made->file));
    DEEPINFER_ASSIGN_OR_RETURN(const FileInfo info, files_->Info(*made->file));
    if (!locked || info.links == 0) continue;
    const SegmentHeader header{.name_space = name_space_,
                               .scope = scope.root,
                               .writer = made->id.writer,
                               .number = made->id.number,
                               .created = now,
                               .expiry_day = made->id.expiry_day};
    FileOperation write{.kind = IoKind::kWrite, .file = made->file, .memory = memory, .bytes = kSegmentHeaderBytes};
    EncodeSegmentHeader(header, write.data());
    Status status = files_->Preallocate(*made->file, bytes);
    if (status.ok()) status = files_->RunOne(&write);
    if (status.ok()) status = files_->SetAccessed(*made->file, now);
    if (!status.ok()) static_cast<void>(files_->Unlink(path));
    return status;
  }
  return Status::Io(directory_->ScopePath(made->id.scope) + ": new segments are removed at once");
}

Result<DiskWriter::OpenList::iterator> DiskWriter::Create(const KvScope& scope, int64_t expiry_day, int64_t bytes,
                                                          int64_t now) {
  while (std::ssize(open_) >= limits_.open_segments) DEEPINFER_RETURN_IF_ERROR(SealOne(std::prev(open_.end())));
  OpenSegment made;
  made.id = {
      .scope = DiskDirectory::FolderOf(scope.root), .expiry_day = expiry_day, .writer = limits_.writer, .number = 0};
  made.reserved = std::max(bytes, limits_.chunk_bytes);
  made.last_write = now;
  DEEPINFER_ASSIGN_OR_RETURN(const bool taken, TakeSpace(made.reserved, now, nullptr,
                                                         [&] { return CreateFile(scope, made.reserved, now, &made); }));
  if (!taken) return open_.end();
  made.slot = table_->Add(made.id, SegmentRole::kOwn, now, kSegmentHeaderBytes);
  const std::optional<SegmentView> view = table_->Find(made.id);
  table_->KeepFile(made.slot, view->serial, made.file);
  open_.push_front(std::move(made));
  return open_.begin();
}

Result<DiskWriter::OpenList::iterator> DiskWriter::Ready(const KvScope& scope, int64_t expiry_day,
                                                         const StagedRecords& staged, int64_t now) {
  const std::string folder = DiskDirectory::FolderOf(scope.root);
  const int64_t count = std::ssize(staged.records);
  auto segment = std::ranges::find_if(
      open_, [&](const OpenSegment& open) { return open.id.scope == folder && open.id.expiry_day == expiry_day; });
  if (segment != open_.end()) {
    const int64_t needed = segment->end + staged.bytes + FooterBytes(std::ssize(segment->records) + count);
    if (needed > limits_.segment_bytes) {
      DEEPINFER_RETURN_IF_ERROR(SealOne(segment));
    } else {
      if (needed > segment->reserved) {
        const int64_t size = std::max(needed, std::min(segment->reserved + limits_.chunk_bytes, limits_.segment_bytes));
        const OpenSegment* const mine = &*segment;  // TakeSpace may give it up
        Result<bool> taken = TakeSpace(size - segment->reserved, now, &*segment,
                                       [&] { return files_->Preallocate(*segment->file, size); });
        if (!taken.ok()) {
          static_cast<void>(Flush());
          // It may be given up already, for a batch under way.
          if (std::ranges::any_of(open_, [&](const OpenSegment& open) { return &open == mine; })) GiveUp(segment);
          return taken.status();
        }
        if (!*taken) return open_.end();
        segment->reserved = size;
      }
      open_.splice(open_.begin(), open_, segment);
      return segment;
    }
  }
  return Create(scope, expiry_day, kSegmentHeaderBytes + staged.bytes + FooterBytes(count), now);
}

Result<bool> DiskWriter::Append(const KvScope& scope, int64_t expiry_day, const StagedRecords& staged, int64_t now) {
  Result<bool> appended = Start(scope, expiry_day, staged, now);
  // What is under way has nothing to do with it. But its buffers are the caller's again after two more batches, and
  // this is none: so nothing stays under way.
  if (!appended.ok() || !*appended) static_cast<void>(Flush());
  return appended;
}

Result<bool> DiskWriter::Start(const KvScope& scope, int64_t expiry_day, const StagedRecords& staged, int64_t now) {
  constexpr size_t kFirstSteps = 2;  // under way together
  DEEPINFER_ASSIGN_OR_RETURN(const OpenList::iterator segment, Ready(scope, expiry_day, staged, now));
  if (segment == open_.end()) return false;
  IoMemory first_block = MakeIoMemory(kRecordAlignment);
  if (first_block == nullptr) return Status::ResourceExhausted("no memory for a block");
  uint8_t* const begin = staged.memory->data() + staged.begin;
  std::memcpy(first_block->data(), begin, kRecordAlignment);
  std::memset(begin, 0, kRecordAlignment);
  Pending& batch = pending_.emplace_back();
  batch.segment = segment;
  batch.offset = segment->end;
  batch.end = segment->end + staged.bytes;
  batch.first_record = segment->records.size();
  batch.records = staged.records.size();
  batch.first_block = std::move(first_block);
  batch.operation = {.kind = IoKind::kWrite,
                     .file = segment->file,
                     .offset = batch.offset,
                     .memory = staged.memory,
                     .memory_offset = staged.begin,
                     .bytes = staged.bytes};
  batch.transfer = files_->Start({&batch.operation, 1});
  for (SegmentRecord record : staged.records) {
    record.offset += segment->end;
    segment->records.push_back(record);
  }
  segment->end += staged.bytes;
  segment->last_write = now;
  if (pending_.size() > kFirstSteps) EndFirstStep(&pending_[pending_.size() - 1 - kFirstSteps]);
  // The second step of that batch has until the next call.
  while (pending_.size() > kFirstSteps + 1 || !pending_.front().operation.status.ok()) {
    DEEPINFER_RETURN_IF_ERROR(EndOldest());
  }
  return true;
}

void DiskWriter::EndFirstStep(Pending* pending) {
  if (pending->second_step) return;
  pending->second_step = true;
  pending->transfer->Finish();
  if (!pending->operation.status.ok()) return;
  pending->operation = {.kind = IoKind::kWrite,
                        .file = pending->segment->file,
                        .offset = pending->offset,
                        .memory = pending->first_block,
                        .bytes = kRecordAlignment};
  pending->transfer = files_->Start({&pending->operation, 1});
}

Status DiskWriter::EndOldest() {
  EndFirstStep(&pending_.front());
  pending_.front().transfer->Finish();
  const OpenList::iterator segment = pending_.front().segment;
  const Status status = pending_.front().operation.status;
  if (!status.ok()) {
    // What follows in the segment is behind a hole.
    for (Pending& each : pending_) each.transfer->Finish();
    std::erase_if(pending_, [&](const Pending& each) { return each.segment == segment; });
    GiveUp(segment);
    return status;
  }
  const Pending& batch = pending_.front();
  table_->Publish(segment->slot, std::span(segment->records).subspan(batch.first_record, batch.records), batch.end);
  counters_->written += static_cast<int64_t>(batch.records);
  counters_->written_bytes += batch.end - batch.offset;
  pending_.pop_front();
  return Status::Ok();
}

Status DiskWriter::Flush() {
  Status first_error;
  // Second steps in the order of the batches: no header follows a hole.
  for (Pending& each : pending_) {
    EndFirstStep(&each);
    if (!each.operation.status.ok()) break;
  }
  while (!pending_.empty()) {
    const Status ended = EndOldest();
    if (first_error.ok()) first_error = ended;
  }
  return first_error;
}

Status DiskWriter::Seal(FileSystem& files, DiskDirectory& directory, const std::shared_ptr<File>& file,
                        const SegmentId& id, std::span<const SegmentRecord> records, int64_t end, int64_t* file_bytes) {
  const int64_t bytes = FooterBytes(std::ssize(records));
  FileOperation footer{
      .kind = IoKind::kWrite, .file = file, .offset = end, .memory = MakeIoMemory(bytes), .bytes = bytes};
  if (footer.memory == nullptr) return Status::ResourceExhausted("no memory for the footer of a segment");
  EncodeFooter(records, end, footer.data());
  DEEPINFER_RETURN_IF_ERROR(files.RunOne(&footer));
  DEEPINFER_RETURN_IF_ERROR(files.Truncate(*file, end + bytes));
  DEEPINFER_RETURN_IF_ERROR(files.Sync(*file));
  DEEPINFER_RETURN_IF_ERROR(files.Rename(directory.Path(id, false), directory.Path(id, true)));
  *file_bytes = end + bytes;
  return files.SyncFolder(directory.ScopePath(id.scope));
}

Status DiskWriter::SealOne(OpenList::iterator segment) {
  DEEPINFER_RETURN_IF_ERROR(Flush());
  if (segment->records.empty()) {
    static_cast<void>(files_->Unlink(directory_->Path(segment->id, false)));
    table_->Remove(segment->slot);
    open_.erase(segment);
    return Status::Ok();
  }
  int64_t bytes = 0;
  const Status status = Seal(*files_, *directory_, segment->file, segment->id, segment->records, segment->end, &bytes);
  if (status.code() == StatusCode::kNotFound && !files_->Info(directory_->Path(segment->id, false)).ok()) {
    // Another process has dropped the scope.
    table_->Remove(segment->slot);
    open_.erase(segment);
    return Status::Ok();
  }
  if (!status.ok()) {
    GiveUp(segment);
    return status;
  }
  table_->SetRole(segment->slot, SegmentRole::kSealed);
  files_->Unlock(*segment->file);
  open_.erase(segment);
  return Status::Ok();
}

void DiskWriter::GiveUp(OpenList::iterator segment) {
  table_->SetRole(segment->slot, SegmentRole::kOpen);
  // Readers may keep the file open, so it is not closing that frees the lock.
  files_->Unlock(*segment->file);
  open_.erase(segment);
}

Status DiskWriter::SealIdle(int64_t now) {
  for (auto segment = open_.begin(); segment != open_.end();) {
    const auto next = std::next(segment);
    if (now - segment->last_write >= limits_.idle_seconds || segment->id.expiry_day * kSecondsPerDay <= now) {
      DEEPINFER_RETURN_IF_ERROR(SealOne(segment));
    }
    segment = next;
  }
  return Status::Ok();
}

Status DiskWriter::SealAll() {
  while (!open_.empty()) DEEPINFER_RETURN_IF_ERROR(SealOne(open_.begin()));
  return Status::Ok();
}

void DiskWriter::ForgetRemoved() {
  for (auto segment = open_.begin(); segment != open_.end();) {
    const auto next = std::next(segment);
    const Result<FileInfo> info = files_->Info(*segment->file);
    if (info.ok() && info->links == 0) {
      table_->Remove(segment->slot);
      open_.erase(segment);
    }
    segment = next;
  }
}

void DiskWriter::DropScope(std::string_view scope) {
  for (auto segment = open_.begin(); segment != open_.end();) {
    const auto next = std::next(segment);
    if (segment->id.scope == scope) {
      static_cast<void>(files_->Unlink(directory_->Path(segment->id, false)));
      table_->Remove(segment->slot);
      open_.erase(segment);
    }
    segment = next;
  }
}

}  // namespace deepinfer
