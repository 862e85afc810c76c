#include "cache/disk_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

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
        Result<bool> taken = TakeSpace(size - segment->reserved, now, &*segment,
                                       [&] { return files_->Preallocate(*segment->file, size); });
        if (!taken.ok()) {
          if (Flush().ok()) GiveUp(segment);
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

Result<bool> DiskWriter::Append(const KvScope& scope, int64_t expiry_day, const StagedRecords& staged, int64_t now,
                                const std::function<void()>& meanwhile) {
  Result<bool> appended = Start(scope, expiry_day, staged, now, meanwhile);
  // The batch before has nothing to do with it.
  if (!appended.ok()) static_cast<void>(Flush());
  return appended;
}

Result<bool> DiskWriter::Start(const KvScope& scope, int64_t expiry_day, const StagedRecords& staged, int64_t now,
                               const std::function<void()>& meanwhile) {
  DEEPINFER_ASSIGN_OR_RETURN(const OpenList::iterator segment, Ready(scope, expiry_day, staged, now));
  if (segment == open_.end()) {
    if (meanwhile) meanwhile();
    return false;
  }
  IoMemory first_block = MakeIoMemory(kRecordAlignment);
  if (first_block == nullptr) return Status::ResourceExhausted("no memory for a block");
  std::memcpy(first_block->data(), staged.memory->data() + staged.begin, kRecordAlignment);
  std::vector<FileOperation> operations = {{.kind = IoKind::kWrite,
                                            .file = segment->file,
                                            .offset = segment->end + kRecordAlignment,
                                            .memory = staged.memory,
                                            .memory_offset = staged.begin + kRecordAlignment,
                                            .bytes = staged.bytes - kRecordAlignment}};
  if (pending_.has_value()) operations.push_back(SecondStep());
  files_->Run(operations, meanwhile);
  const bool same = pending_.has_value() && pending_->segment == segment;
  if (pending_.has_value()) {
    const Status ended = EndPending(operations[1]);
    if (!ended.ok()) {
      // The body of this batch stays in a file that nobody writes to any more.
      if (!same) GiveUp(segment);
      return ended;
    }
  }
  if (!operations[0].status.ok()) {
    GiveUp(segment);
    return operations[0].status;
  }
  pending_ = {.segment = segment,
              .offset = segment->end,
              .end = segment->end + staged.bytes,
              .first_record = segment->records.size(),
              .records = staged.records.size(),
              .memory = std::move(first_block)};
  for (SegmentRecord record : staged.records) {
    record.offset += segment->end;
    segment->records.push_back(record);
  }
  segment->end += staged.bytes;
  segment->last_write = now;
  return true;
}

FileOperation DiskWriter::SecondStep() const {
  return {.kind = IoKind::kWrite,
          .file = pending_->segment->file,
          .offset = pending_->offset,
          .memory = pending_->memory,
          .bytes = kRecordAlignment};
}

Status DiskWriter::EndPending(const FileOperation& second_step) {
  const Pending pending = *std::exchange(pending_, std::nullopt);
  if (!second_step.status.ok()) {
    GiveUp(pending.segment);
    return second_step.status;
  }
  table_->Publish(pending.segment->slot,
                  std::span(pending.segment->records).subspan(pending.first_record, pending.records), pending.end);
  counters_->written += static_cast<int64_t>(pending.records);
  counters_->written_bytes += pending.end - pending.offset;
  return Status::Ok();
}

Status DiskWriter::Flush() {
  if (!pending_.has_value()) return Status::Ok();
  FileOperation second_step = SecondStep();
  static_cast<void>(files_->RunOne(&second_step));
  return EndPending(second_step);
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
