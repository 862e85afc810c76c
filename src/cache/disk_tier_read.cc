// DiskTier::Read: records that lie one behind the other are read in one piece, and while two windows of them are read
// the one before is decoded.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "cache/disk_tier.h"

namespace deepinfer {
namespace {

constexpr double kStagingSeconds = 60;

/// Not of a file that has gone.
bool IsOfTheDisk(const FileOperation& operation) {
  return !operation.status.ok() && operation.status.code() != StatusCode::kNotFound;
}

}  // namespace

struct DiskTier::Wanted {
  size_t read = 0;  // index
  RecordLocation location;
  int64_t bytes = 0;

  int64_t offset() const { return int64_t{location.place.block} * kRecordAlignment; }
};

/// Records that are read together, and the pieces that they come in.
struct DiskTier::Window {
  std::span<const Wanted> wanted;
  std::vector<size_t> piece_of;  // [wanted]
  std::vector<FileOperation> pieces;
  std::unique_ptr<FileSystem::Transfer> transfer;
  int64_t bytes = 0;
};

Status DiskTier::Read(std::span<KvRead> reads) {
  const int64_t now = Now();
  std::vector<Wanted> wanted;
  for (size_t i = 0; i < reads.size(); ++i) {
    reads[i].found = false;
    const std::optional<RecordLocation> location =
        table_.Locate(RecordName::Of(reads[i].kind, reads[i].key), now / kSecondsPerDay);
    const int64_t bytes = KvRecordCodec::RecordBytes(std::ssize(reads[i].ids), std::ssize(reads[i].payload));
    if (location.has_value() && bytes <= staging_.part_bytes()) {
      wanted.push_back({.read = i, .location = *location, .bytes = bytes});
    } else {
      ++counters_.misses;
    }
  }
  std::ranges::sort(wanted, {}, [](const Wanted& want) { return std::tuple(want.location.place, want.read); });
  Status first_error = OpenFiles(&wanted);
  if (wanted.empty()) return first_error;
  const std::optional<StagingPool::Lease> staging = staging_.Take(kStagingSeconds);
  if (!staging.has_value()) {
    return Status::Io(fmt::format("{}: no buffer came free within {} s", options_.folder, kStagingSeconds));
  }
  const auto remember = [&](const Status& status) {
    if (first_error.ok()) first_error = status;
  };
  std::vector<Window> windows = Group(&wanted);
  size_t started = 0;
  const auto start_until = [&](size_t end) {
    for (; started < std::min(end, windows.size()); ++started) {
      Window& window = windows[started];
      for (FileOperation& piece : window.pieces) piece.memory = (*staging)[started % std::tuple_size_v<StagingSet>];
      window.transfer = files_->Start(window.pieces);
    }
  };
  bool works = true;
  start_until(2);
  for (size_t i = 0; i < started; ++i) {
    windows[i].transfer->Finish();
    // A disk that did not answer in time may yet write to the buffers.
    works = works && std::ranges::none_of(windows[i].pieces, IsOfTheDisk);
    if (works) start_until(i + 3);
    remember(Decode(windows[i], reads, now));
    // The references of pieces keep the buffers alive, no longer than they are needed.
    windows[i].pieces.clear();
  }
  for (size_t i = started; i < windows.size(); ++i) counters_.misses += std::ssize(windows[i].wanted);
  return first_error;
}

Status DiskTier::OpenFiles(std::vector<Wanted>* wanted) {
  Status error;
  std::shared_ptr<File> file;
  const Wanted* before = nullptr;
  for (Wanted& want : *wanted) {
    SegmentView& segment = want.location.segment;
    if (before != nullptr && before->location.segment.serial == segment.serial) {
      segment.file = before->location.segment.file;
    } else if (segment.file == nullptr) {
      const bool sealed = segment.role == SegmentRole::kSealed;
      Result<std::shared_ptr<File>> opened =
          files_->Open(directory_.Path(segment.id, sealed), OpenMode::kRead, options_.direct);
      if (!opened.ok() && opened.status().code() == StatusCode::kNotFound && !sealed) {
        opened = files_->Open(directory_.Path(segment.id, true), OpenMode::kRead, options_.direct);
      }
      if (opened.ok()) {
        segment.file = *opened;
        table_.KeepFile(segment.slot, segment.serial, *opened);
      } else if (opened.status().code() == StatusCode::kNotFound) {
        table_.Drop(want.location.name, want.location.place);
      } else if (error.ok()) {
        error = opened.status();
      }
    }
    before = &want;
  }
  counters_.misses += static_cast<int64_t>(
      std::erase_if(*wanted, [](const Wanted& want) { return want.location.segment.file == nullptr; }));
  return error;
}

std::vector<DiskTier::Window> DiskTier::Group(std::vector<Wanted>* wanted) const {
  const int64_t window_bytes = std::min(kWindowBytes, staging_.part_bytes());
  std::vector<Window> windows;
  size_t begin = 0;
  for (size_t i = 0; i < wanted->size(); ++i) {
    const Wanted& want = (*wanted)[i];
    if (windows.empty() || windows.back().bytes + want.bytes > window_bytes) {
      windows.emplace_back();
      begin = i;
    }
    Window& window = windows.back();
    FileOperation* piece = window.pieces.empty() ? nullptr : &window.pieces.back();
    const bool continues =
        piece != nullptr && piece->file == want.location.segment.file && piece->offset + piece->bytes == want.offset();
    if (continues) {
      piece->bytes += want.bytes;
    } else {
      window.pieces.push_back({.file = want.location.segment.file,
                               .offset = want.offset(),
                               .memory = nullptr,
                               .memory_offset = window.bytes,
                               .bytes = want.bytes});
    }
    window.piece_of.push_back(window.pieces.size() - 1);
    window.bytes += want.bytes;
    window.wanted = std::span(*wanted).subspan(begin, i + 1 - begin);
  }
  return windows;
}

Status DiskTier::Decode(const Window& window, std::span<KvRead> reads, int64_t now) {
  Status error;
  for (size_t i = 0; i < window.wanted.size(); ++i) {
    const Wanted& want = window.wanted[i];
    const FileOperation& piece = window.pieces[window.piece_of[i]];
    if (!piece.status.ok()) {
      ++counters_.misses;
      if (piece.status.code() == StatusCode::kNotFound) {
        table_.Drop(want.location.name, want.location.place);
      } else if (error.ok()) {
        error = piece.status;
      }
      continue;
    }
    const int64_t at = want.offset() - piece.offset;
    const int64_t there = std::clamp<int64_t>(piece.done - at, 0, want.bytes);
    Judge(want, piece.data().subspan(static_cast<size_t>(at), static_cast<size_t>(there)), &reads[want.read], now);
  }
  return error;
}

void DiskTier::Judge(const Wanted& wanted, std::span<const uint8_t> bytes, KvRead* read, int64_t now) {
  const RecordLocation& location = wanted.location;
  const std::optional<KvRecordHeader> header = codec_.ReadHeader(bytes);
  // A use extends a life here and now; CopyForward does so on the disk, if it has to.
  if (header.has_value() && std::max(header->expires_at, location.last_use + header->lifetime) <= now) {
    table_.Drop(location.name, location.place);
    ++counters_.expired;
    ++counters_.misses;
    return;
  }
  if (codec_.Decode(bytes, read) == KvRecordState::kGood) {
    table_.Use(location.name, location.place, now);
    ++counters_.hits;
    counters_.read_bytes += wanted.bytes;
    return;
  }
  // Also a record whose caller asks with other ids than those it was written with: one of the two is wrong.
  table_.Drop(location.name, location.place);
  ++counters_.corrupt;
  ++counters_.misses;
}

}  // namespace deepinfer
