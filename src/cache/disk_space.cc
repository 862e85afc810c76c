#include "cache/disk_space.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace deepinfer {
namespace {

constexpr double kLockSeconds = 20;  // the lock is held for a listing and some unlinks

}  // namespace

Result<bool> DiskSpace::Take(int64_t bytes, int64_t now, const std::function<Status()>& take) {
  DEEPINFER_RETURN_IF_ERROR(directory_->Lock(kLockSeconds));
  const auto locked = [&]() -> Result<bool> {
    DEEPINFER_ASSIGN_OR_RETURN(DiskDirectory::Contents contents, directory_->List());
    DEEPINFER_RETURN_IF_ERROR(MakeRoom(&contents, bytes, now));
    counters_->used_bytes = contents.bytes;
    if (contents.bytes + bytes > budget_bytes_) return false;
    DEEPINFER_RETURN_IF_ERROR(take());
    counters_->used_bytes += bytes;
    return true;
  };
  Result<bool> taken = locked();
  directory_->Unlock();
  return taken;
}

Status DiskSpace::MakeRoom(DiskDirectory::Contents* contents, int64_t bytes, int64_t now) {
  if (contents->bytes + bytes <= budget_bytes_) return Status::Ok();
  int64_t strange_bytes = contents->bytes;  // of files that are no segments
  for (const SegmentOnDisk& segment : contents->segments) strange_bytes -= segment.info.bytes;
  if (strange_bytes + bytes > budget_bytes_) return Status::Ok();  // all segments would go in vain
  struct Candidate {
    bool fits;
    double value;
    const SegmentOnDisk* segment;
  };
  std::vector<Candidate> candidates;
  std::vector<const SegmentOnDisk*> unknown;
  // As long as one stays that leaves no room by itself, nothing is written: it goes first, and be it the newest.
  // Writers make none, but the budget may have been larger once, and damage may have made a file longer.
  const auto fits = [&](const SegmentOnDisk& segment) {
    return strange_bytes + segment.info.bytes + bytes <= budget_bytes_;
  };
  const SegmentOnDisk* newest = nullptr;
  int64_t known_bytes = 0;
  for (const SegmentOnDisk& segment : contents->segments) {
    const bool newer = newest == nullptr || segment.info.modified >= newest->info.modified;
    if (segment.sealed && newer && fits(segment)) newest = &segment;
    const std::optional<SegmentView> view =
        segment.name_space == directory_->name_space() ? table_->Find(segment.id) : std::nullopt;
    if (!view.has_value()) {
      unknown.push_back(&segment);
    } else if (view->role == SegmentRole::kSealed || view->role == SegmentRole::kOpen) {
      known_bytes += segment.info.bytes;
      const double value = table_->Value(view->slot, segment.info.accessed, segment.info.bytes, now);
      candidates.push_back({fits(segment), value, &segment});
    }
  }
  // Tokens of segments that were never read here: as many a byte as elsewhere.
  const double density = known_bytes == 0 ? 1.0 : static_cast<double>(table_->token_count()) / known_bytes;
  for (const SegmentOnDisk* segment : unknown) {
    const double tokens = density * static_cast<double>(segment->info.bytes);
    const double value = SegmentTable::Value(tokens, 0, segment->info.accessed, segment->info.bytes, now);
    candidates.push_back({fits(*segment), value, segment});
  }
  std::ranges::sort(candidates, [](const Candidate& a, const Candidate& b) {
    return std::tie(a.fits, a.value, a.segment->info.modified, a.segment->id) <
           std::tie(b.fits, b.value, b.segment->info.modified, b.segment->id);
  });
  for (const Candidate& candidate : candidates) {
    if (contents->bytes + bytes <= budget_bytes_) break;
    if (candidate.segment == newest) continue;
    int64_t records = 0;
    DEEPINFER_ASSIGN_OR_RETURN(const bool removed, Remove(*candidate.segment, &records));
    if (!removed) continue;
    counters_->evicted += records;
    contents->bytes -= candidate.segment->info.bytes;
  }
  return Status::Ok();
}

Status DiskSpace::RemoveExpired(const DiskDirectory::Contents& contents, int64_t today) {
  for (const SegmentOnDisk& segment : contents.segments) {
    if (segment.id.expiry_day > today) continue;
    int64_t records = 0;
    DEEPINFER_ASSIGN_OR_RETURN(const bool removed, Remove(segment, &records));
    if (removed) counters_->expired += records;
  }
  return Status::Ok();
}

Result<bool> DiskSpace::Remove(const SegmentOnDisk& segment, int64_t* records) {
  Result<bool> removed = TryRemove(segment, records);
  // A bad block or a folder of another user must not keep us from the other segments.
  if (!removed.ok() && removed.status().code() != StatusCode::kCancelled) return false;
  return removed;
}

Result<bool> DiskSpace::TryRemove(const SegmentOnDisk& segment, int64_t* records) {
  const std::optional<SegmentView> view =
      segment.name_space == directory_->name_space() ? table_->Find(segment.id) : std::nullopt;
  if (view.has_value() && (view->role == SegmentRole::kIgnored || view->role == SegmentRole::kOwn)) return false;
  const std::string path = directory_->Path(segment);
  std::shared_ptr<File> file;  // holds the lock of an open segment until its name is gone
  if (!segment.sealed || !view.has_value()) {
    Result<std::shared_ptr<File>> opened = files_->Open(path, OpenMode::kWrite, false);
    if (!opened.ok()) {
      if (opened.status().code() == StatusCode::kNotFound) return false;
      return opened.status();
    }
    file = *opened;
    if (!segment.sealed) {
      DEEPINFER_ASSIGN_OR_RETURN(const bool locked, files_->TryLock(*file));
      if (!locked) return false;
    }
    FileOperation read{.file = file, .memory = MakeIoMemory(kSegmentHeaderBytes), .bytes = kSegmentHeaderBytes};
    if (read.memory == nullptr) return Status::ResourceExhausted(path + ": no memory to read it");
    DEEPINFER_RETURN_IF_ERROR(files_->RunOne(&read));
    SegmentHeader header;
    const SegmentState state = DecodeSegmentHeader(read.data().first(static_cast<size_t>(read.done)), &header);
    if (state == SegmentState::kForeign) return false;
    if (state == SegmentState::kGood && DiskDirectory::FolderOf(header.name_space) != segment.name_space) return false;
  }
  const Status status = files_->Unlink(path);
  // Another process was faster: its room is ours too.
  if (!status.ok() && status.code() != StatusCode::kNotFound) return status;
  if (view.has_value()) *records = table_->Remove(view->slot);
  return true;
}

}  // namespace deepinfer
