#include "cache/segment_discovery.h"

#include <algorithm>
#include <set>

namespace deepinfer {
namespace {

constexpr int64_t kTakeOverBytes = int64_t{2} << 30;  // scanned by a call, seconds of a disk's time
constexpr int64_t kRetrySeconds = 60;                 // a disk may try for seconds before it gives a block up

}  // namespace

bool SegmentDiscovery::IsDue(const SegmentId& id, int64_t now) const {
  const auto failed = failed_.find(id);
  return failed == failed_.end() || now < failed->second || now - failed->second >= kRetrySeconds;
}

void SegmentDiscovery::Remember(const SegmentId& id, const Status& status, int64_t now) {
  if (status.ok() || status.code() == StatusCode::kNotFound) {
    failed_.erase(id);
  } else if (failed_.insert_or_assign(id, now).second) {
    ++counters_->foreign;
  }
}

Status SegmentDiscovery::Update(const DiskDirectory::Contents& contents, int64_t now) {
  const int64_t today = now / kSecondsPerDay;
  std::set<SegmentId> present;
  for (const SegmentOnDisk& segment : contents.segments) {
    if (segment.name_space != directory_->name_space()) continue;
    const std::optional<SegmentView> view = table_->Find(segment.id);
    present.insert(segment.id);
    if (segment.id.expiry_day <= today || writer_->Owns(segment.id) || !IsDue(segment.id, now)) continue;
    Status status;
    if (segment.sealed && (!view.has_value() || view->role == SegmentRole::kOpen)) {
      status = LoadSealed(segment.id);
    } else if (!segment.sealed && (!view.has_value() || view->role == SegmentRole::kOpen)) {
      status = Follow(segment.id);
    }
    // A disk that does not answer would take its time for each segment.
    if (status.code() == StatusCode::kCancelled) return status;
    Remember(segment.id, status, now);
  }
  scratch_ = nullptr;
  std::erase_if(failed_, [&](const auto& failed) { return !present.contains(failed.first); });
  for (const SegmentView& view : table_->All()) {
    if (view.role != SegmentRole::kOwn && !present.contains(view.id)) table_->Remove(view.slot);
  }
  return Status::Ok();
}

void SegmentDiscovery::Replace(const SegmentId& id, SegmentRole role, const SegmentContents& contents) {
  const std::optional<SegmentView> known = table_->Find(id);
  uint32_t slot = 0;
  if (known.has_value()) {
    // What was followed keeps its place and its hits.
    slot = known->slot;
    table_->SetRole(slot, role);
  } else {
    slot = table_->Add(id, role, contents.header.created, contents.end);
  }
  table_->Publish(slot, contents.records, contents.end);
}

Status SegmentDiscovery::LoadSealed(const SegmentId& id) {
  DEEPINFER_ASSIGN_OR_RETURN(std::shared_ptr<File> file,
                             files_->Open(directory_->Path(id, true), OpenMode::kRead, direct_));
  DEEPINFER_ASSIGN_OR_RETURN(SegmentContents contents, ReadSealedSegment(*files_, file, &scratch_));
  const bool good = contents.state == SegmentState::kGood;
  if (contents.state == SegmentState::kForeign ||
      (good && !IsAtItsPlace(contents.header, codec_->name_space().fingerprint, id))) {
    ++counters_->foreign;
    contents.records.clear();
    Replace(id, SegmentRole::kIgnored, contents);
    return Status::Ok();
  }
  if (!good || !contents.has_footer) {
    // Its records prove themselves one by one; the footer only lists them.
    ++counters_->corrupt;
    if (good) DEEPINFER_RETURN_IF_ERROR(FollowSegment(*files_, file, *codec_, &contents.end, &contents.records));
  }
  Replace(id, SegmentRole::kSealed, contents);
  return Status::Ok();
}

Status SegmentDiscovery::Follow(const SegmentId& id) {
  std::optional<SegmentView> view = table_->Find(id);
  std::shared_ptr<File> file = view.has_value() ? view->file : nullptr;
  if (file == nullptr) {
    DEEPINFER_ASSIGN_OR_RETURN(file, files_->Open(directory_->Path(id, false), OpenMode::kRead, direct_));
  }
  if (!view.has_value()) {
    FileOperation read{.file = file, .memory = MakeIoMemory(kSegmentHeaderBytes), .bytes = kSegmentHeaderBytes};
    if (read.memory == nullptr) return Status::ResourceExhausted("no memory for the header of a segment");
    DEEPINFER_RETURN_IF_ERROR(files_->RunOne(&read));
    SegmentContents contents;
    contents.state = DecodeSegmentHeader(read.data().first(static_cast<size_t>(read.done)), &contents.header);
    contents.end = kSegmentHeaderBytes;
    // Its writer has just made it, or it is for TakeOver.
    if (contents.state == SegmentState::kEmpty || contents.state == SegmentState::kCorrupt) return Status::Ok();
    const bool ours =
        contents.state == SegmentState::kGood && IsAtItsPlace(contents.header, codec_->name_space().fingerprint, id);
    if (!ours) ++counters_->foreign;
    Replace(id, ours ? SegmentRole::kOpen : SegmentRole::kIgnored, contents);
    if (!ours) return Status::Ok();
    view = table_->Find(id);
  }
  table_->KeepFile(view->slot, view->serial, file);
  int64_t end = view->end;
  std::vector<SegmentRecord> records;
  DEEPINFER_RETURN_IF_ERROR(FollowSegment(*files_, file, *codec_, &end, &records));
  table_->Publish(view->slot, records, end);
  return Status::Ok();
}

Status SegmentDiscovery::TakeOver(const DiskDirectory::Contents& contents, int64_t now) {
  int64_t scanned = 0;
  for (const SegmentOnDisk& segment : contents.segments) {
    if (segment.sealed || segment.name_space != directory_->name_space() || writer_->Owns(segment.id)) continue;
    if (!IsDue(segment.id, now)) continue;
    const std::optional<SegmentView> view = table_->Find(segment.id);
    if (view.has_value() && view->role != SegmentRole::kOpen) continue;
    const Status status = TakeOverOne(segment, now, &scanned);
    if (status.code() == StatusCode::kCancelled || status.code() == StatusCode::kResourceExhausted) return status;
    Remember(segment.id, status, now);
    if (scanned >= kTakeOverBytes) break;
  }
  return Status::Ok();
}

Status SegmentDiscovery::TakeOverOne(const SegmentOnDisk& segment, int64_t now, int64_t* scanned) {
  const SegmentId& id = segment.id;
  const std::string path = directory_->Path(id, false);
  DEEPINFER_ASSIGN_OR_RETURN(std::shared_ptr<File> file, files_->Open(path, OpenMode::kWrite, direct_));
  DEEPINFER_ASSIGN_OR_RETURN(const bool locked, files_->TryLock(*file));
  if (!locked) return Status::Ok();
  // Between the two calls its writer, or another who took it over, may have sealed or removed it.
  DEEPINFER_ASSIGN_OR_RETURN(const FileInfo held, files_->Info(*file));
  DEEPINFER_ASSIGN_OR_RETURN(const FileInfo named, files_->Info(path));
  if (held.inode != named.inode || held.device != named.device) return Status::Ok();

  DEEPINFER_ASSIGN_OR_RETURN(SegmentContents contents, ScanSegment(*files_, file, *codec_));
  *scanned += contents.end;
  const std::optional<SegmentView> view = table_->Find(id);
  const bool good = contents.state == SegmentState::kGood;
  if (contents.state == SegmentState::kForeign ||
      (good && !IsAtItsPlace(contents.header, codec_->name_space().fingerprint, id))) {
    if (!view.has_value()) {
      ++counters_->foreign;
      table_->Add(id, SegmentRole::kIgnored, now, kSegmentHeaderBytes);
    }
    return Status::Ok();
  }
  if (!good || contents.records.empty()) {
    if (contents.state == SegmentState::kCorrupt) ++counters_->corrupt;
    DEEPINFER_RETURN_IF_ERROR(files_->Unlink(path));
    if (view.has_value()) table_->Remove(view->slot);
    return Status::Ok();
  }
  // Its writer had the footer's space; only a file that was cut needs more.
  const int64_t sealed_bytes = contents.end + FooterBytes(std::ssize(contents.records));
  const int64_t missing = std::max<int64_t>(0, sealed_bytes - contents.file_bytes);
  int64_t bytes = 0;
  const auto seal = [&] {
    return DiskWriter::Seal(*files_, *directory_, file, id, contents.records, contents.end, &bytes);
  };
  if (missing > 0) {
    DEEPINFER_ASSIGN_OR_RETURN(const bool taken, space_->Take(missing, now, seal));
    if (!taken) return Status::Ok();
  } else {
    DEEPINFER_RETURN_IF_ERROR(seal());
  }
  // What was followed behind the last good record is not there any more.
  if (view.has_value() && view->end > contents.end) table_->Remove(view->slot);
  Replace(id, SegmentRole::kSealed, contents);
  return Status::Ok();
}

}  // namespace deepinfer
