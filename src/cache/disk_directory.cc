#include "cache/disk_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "cache/kv_record.h"

namespace deepinfer {
namespace {

constexpr size_t kHexDigits = 16;
constexpr int64_t kLastDay = 1000000;  // of the year 4707; its seconds are far from what 64 bits hold

bool IsHexName(std::string_view name) {
  return name.size() == kHexDigits &&
         std::ranges::all_of(name, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

template <typename Number>
bool Parse(std::string_view text, int base, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number, base);
  return error == std::errc() && end == text.data() + text.size();
}

std::string Description(const KvNamespace& name_space) {
  nlohmann::ordered_json document;
  document["format"] = kKvFormatVersion;
  document["fingerprint"] = ToHex(name_space.fingerprint);
  document["block_bytes"] = name_space.block_bytes;
  document["rings_bytes"] = name_space.rings_bytes;
  // Text, not an object: the fingerprint is of these very bytes.
  document["description"] = name_space.description;
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string FileName(const SegmentId& id, bool sealed) {
  return fmt::format("{}-{:016x}-{}.{}", id.expiry_day, id.writer, id.number, sealed ? "seg" : "open");
}

std::optional<SegmentOnDisk> ParseFileName(std::string_view name) {
  SegmentOnDisk segment;
  const size_t first = name.find('-');
  const size_t second = first == name.npos ? name.npos : name.find('-', first + 1);
  const size_t dot = second == name.npos ? name.npos : name.find('.', second + 1);
  if (dot == name.npos || second - first - 1 != kHexDigits) return std::nullopt;
  const std::string_view suffix = name.substr(dot);
  if (suffix != ".seg" && suffix != ".open") return std::nullopt;
  segment.sealed = suffix == ".seg";
  if (!Parse(name.substr(0, first), 10, &segment.id.expiry_day) || segment.id.expiry_day < 0 ||
      segment.id.expiry_day > kLastDay || !Parse(name.substr(first + 1, kHexDigits), 16, &segment.id.writer) ||
      !Parse(name.substr(second + 1, dot - second - 1), 10, &segment.id.number) ||
      FileName(segment.id, segment.sealed) != name) {
    return std::nullopt;
  }
  return segment;
}

bool IsAtItsPlace(const SegmentHeader& header, const KvKey& name_space, const SegmentId& id) {
  return header.name_space == name_space && DiskDirectory::FolderOf(header.scope) == id.scope &&
         header.expiry_day == id.expiry_day && header.writer == id.writer && header.number == id.number;
}

DiskDirectory::DiskDirectory(FileSystem* files, std::string folder, const KvNamespace& name_space, uint64_t writer)
    : files_(files),
      folder_(std::move(folder)),
      name_space_(name_space),
      writer_(writer),
      name_space_folder_(FolderOf(name_space.fingerprint)) {}

Status DiskDirectory::Prepare() {
  // Whoever named the folder may have named a link; below it nobody has.
  DEEPINFER_RETURN_IF_ERROR(files_->MakeFolder(folder_ + "/"));
  const std::string own = folder_ + "/" + name_space_folder_;
  DEEPINFER_RETURN_IF_ERROR(files_->MakeFolder(own));
  if (lock_ != nullptr) {
    const Result<FileInfo> info = files_->Info(*lock_);
    // Someone has removed the folder and everything in it.
    if (!info.ok() || info->links == 0) lock_ = nullptr;
  }
  const std::string lock_path = folder_ + "/lock";
  while (lock_ == nullptr) {
    Result<std::shared_ptr<File>> opened = files_->Open(lock_path, OpenMode::kWrite, false);
    if (opened.ok()) {
      lock_ = *opened;
      break;
    }
    if (opened.status().code() != StatusCode::kNotFound) return opened.status();
    opened = files_->Open(lock_path, OpenMode::kCreate, false);
    if (opened.ok()) {
      lock_ = *opened;
    } else if (!files_->Info(lock_path).ok()) {
      return opened.status();  // not that another process was first
    }
  }
  const std::string text_path = own + "/namespace.json";
  const std::string text = Description(name_space_);
  const Result<FileInfo> written = files_->Info(text_path);
  // A crash of the machine may have left it empty. Engines do without it, but `deepinfer kv` does not.
  if (written.ok() && written->bytes == std::ssize(text)) return Status::Ok();
  // Written elsewhere and renamed, so that nobody reads a half of it; two processes write the same.
  const std::string draft = fmt::format("{}.{:016x}", text_path, writer_);
  static_cast<void>(files_->Unlink(draft));
  Status status = files_->WriteText(draft, text);
  if (status.ok()) status = files_->Rename(draft, text_path);
  if (!status.ok()) static_cast<void>(files_->Unlink(draft));
  return written.ok() ? Status::Ok() : status;
}

Result<DiskDirectory::Contents> DiskDirectory::List() {
  Contents contents;
  // What vanishes between its name and its size was another process's to remove. What cannot be looked at is left out:
  // one bad inode, or a folder of another user, must not end the tier.
  const auto leave_out = [&](const std::string& path, const Status& status) {
    if (status.code() != StatusCode::kNotFound) contents.unreadable.insert(path);
  };
  const auto count = [&](const std::string& path) -> std::optional<FileInfo> {
    const Result<FileInfo> found = files_->Info(path);
    if (!found.ok()) {
      leave_out(path, found.status());
      return std::nullopt;
    }
    contents.bytes += found->bytes;
    return *found;
  };
  const auto list = [&](const std::string& path) -> std::optional<std::vector<FolderEntry>> {
    Result<std::vector<FolderEntry>> entries = files_->List(path);
    if (entries.ok()) return *std::move(entries);
    leave_out(path, entries.status());
    return std::nullopt;
  };
  DEEPINFER_ASSIGN_OR_RETURN(const std::vector<FolderEntry> spaces, files_->List(folder_ + "/"));
  for (const FolderEntry& space : spaces) {
    const std::string space_path = folder_ + "/" + space.name;
    if (!space.is_folder) {
      count(space_path);
      continue;
    }
    if (!IsHexName(space.name)) continue;
    const std::optional<std::vector<FolderEntry>> scopes = list(space_path);
    if (!scopes.has_value()) continue;
    for (const FolderEntry& scope : *scopes) {
      const std::string scope_path = space_path + "/" + scope.name;
      if (!scope.is_folder) {
        count(scope_path);
        continue;
      }
      if (!IsHexName(scope.name)) continue;
      const std::optional<std::vector<FolderEntry>> names = list(scope_path);
      if (!names.has_value()) continue;
      if (names->empty()) contents.empty_scopes.push_back(scope_path);
      for (const FolderEntry& name : *names) {
        if (name.is_folder) continue;
        std::optional<SegmentOnDisk> segment = ParseFileName(name.name);
        std::optional<FileInfo> info = count(scope_path + "/" + name.name);
        if (!info.has_value() && segment.has_value() && !segment->sealed) {
          // Its writer, who needs no lock for that, may have sealed it since; the budget is not to miss it.
          const std::string sealed = FileName(segment->id, true);
          if (std::ranges::any_of(*names, [&](const FolderEntry& other) { return other.name == sealed; })) continue;
          segment->sealed = true;
          info = count(scope_path + "/" + sealed);
        }
        if (!info.has_value() || !segment.has_value() || info->links == 0) continue;
        segment->name_space = space.name;
        segment->id.scope = scope.name;
        segment->info = *info;
        contents.segments.push_back(std::move(*segment));
      }
    }
  }
  return contents;
}

Status DiskDirectory::Lock(double seconds) {
  DEEPINFER_RETURN_IF_ERROR(Prepare());
  return files_->Lock(*lock_, seconds);
}

void DiskDirectory::Unlock() { files_->Unlock(*lock_); }

std::string DiskDirectory::ScopePath(std::string_view scope) const {
  return fmt::format("{}/{}/{}", folder_, name_space_folder_, scope);
}

std::string DiskDirectory::Path(const SegmentOnDisk& segment) const {
  return fmt::format("{}/{}/{}/{}", folder_, segment.name_space, segment.id.scope,
                     FileName(segment.id, segment.sealed));
}

std::string DiskDirectory::Path(const SegmentId& id, bool sealed) const {
  return ScopePath(id.scope) + "/" + FileName(id, sealed);
}

}  // namespace deepinfer
