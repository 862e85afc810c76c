#include "cache/disk_inspector.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace deepinfer {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMostDescriptionBytes = 1 << 16;
constexpr int64_t kCopyBytes = int64_t{4} << 20;

Result<std::string> ReadText(FileSystem& files, const std::string& path) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, files.Open(path, OpenMode::kRead, false));
  FileOperation operation;
  operation.file = file;
  operation.memory = MakeIoMemory(kMostDescriptionBytes);
  if (operation.memory == nullptr) return Status::ResourceExhausted("no memory");
  operation.bytes = kMostDescriptionBytes;
  DEEPINFER_RETURN_IF_ERROR(files.RunOne(&operation));
  return std::string(reinterpret_cast<const char*>(operation.memory->data()), static_cast<size_t>(operation.done));
}

/// Nothing: not what this version has written.
std::optional<KvNamespace> ParseNamespace(const std::string& text) {
  const Json document = Json::parse(text, nullptr, false);
  if (!document.is_object() || document.value("format", Json()) != kKvFormatVersion) return std::nullopt;
  const Json description = document.value("description", Json());
  const Json block_bytes = document.value("block_bytes", Json());
  const Json rings_bytes = document.value("rings_bytes", Json());
  if (!description.is_string() || !block_bytes.is_number_integer() || !rings_bytes.is_number_integer())
    return std::nullopt;
  KvNamespace made =
      KvNamespace::Make(description.get<std::string>(), block_bytes.get<int64_t>(), rings_bytes.get<int64_t>());
  if (document.value("fingerprint", Json()) != ToHex(made.fingerprint)) return std::nullopt;
  return made;
}

}  // namespace

Result<DiskInspector> DiskInspector::Open(FileSystem* files, const std::string& folder) {
  DiskInspector inspector(files, folder);
  DiskDirectory directory(files, folder, {}, 0);
  DEEPINFER_ASSIGN_OR_RETURN(inspector.contents_, directory.List());
  for (const SegmentOnDisk& segment : inspector.contents_.segments) {
    if (inspector.namespaces_.contains(segment.name_space)) continue;
    const Result<std::string> text = ReadText(*files, fmt::format("{}/{}/namespace.json", folder, segment.name_space));
    if (!text.ok()) continue;
    std::optional<KvNamespace> found = ParseNamespace(*text);
    if (found.has_value() && DiskDirectory::FolderOf(found->fingerprint) == segment.name_space)
      inspector.namespaces_.emplace(segment.name_space, std::move(*found));
  }
  return inspector;
}

const KvNamespace* DiskInspector::FindNamespace(const std::string& folder) const {
  const auto at = namespaces_.find(folder);
  return at == namespaces_.end() ? nullptr : &at->second;
}

std::vector<std::string> DiskInspector::ScopesOfSalt(std::string_view salt) const {
  std::vector<std::string> folders;
  for (const auto& [folder, name_space] : namespaces_) {
    const Json description = Json::parse(name_space.description, nullptr, false);
    if (!description.is_object()) continue;
    for (const Json& mode : description.value("replay_modes", Json::array())) {
      if (!mode.is_string()) continue;
      const KvScope scope = KvScope::Make(name_space, mode.get<std::string>(), salt);
      folders.push_back(folder + "/" + DiskDirectory::FolderOf(scope.root));
    }
  }
  return folders;
}

std::string DiskInspector::PathOf(const SegmentOnDisk& segment) const {
  return fmt::format("{}/{}/{}/{}", folder_, segment.name_space, segment.id.scope,
                     FileName(segment.id, segment.sealed));
}

Result<SegmentContents> DiskInspector::Contents(const SegmentOnDisk& segment) const {
  DEEPINFER_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, files_->Open(PathOf(segment), OpenMode::kRead, false));
  if (segment.sealed) return ReadSealedSegment(*files_, file);
  SegmentContents contents;
  FileOperation operation;
  operation.file = file;
  operation.memory = MakeIoMemory(kSegmentHeaderBytes);
  operation.bytes = kSegmentHeaderBytes;
  if (operation.memory == nullptr) return Status::ResourceExhausted("no memory");
  DEEPINFER_RETURN_IF_ERROR(files_->RunOne(&operation));
  contents.state = DecodeSegmentHeader(operation.data().first(static_cast<size_t>(operation.done)), &contents.header);
  const KvNamespace* const name_space = FindNamespace(segment.name_space);
  if (contents.state != SegmentState::kGood || name_space == nullptr) return contents;
  contents.end = kSegmentHeaderBytes;
  const KvRecordCodec codec(*name_space, std::nullopt);
  DEEPINFER_RETURN_IF_ERROR(FollowSegment(*files_, file, codec, &contents.end, &contents.records));
  return contents;
}

Result<SegmentFacts> DiskInspector::Look(const SegmentOnDisk& segment) const {
  DEEPINFER_ASSIGN_OR_RETURN(const SegmentContents contents, Contents(segment));
  SegmentFacts facts;
  facts.state = contents.state;
  if (contents.state == SegmentState::kGood && FindNamespace(segment.name_space) == nullptr)
    facts.state = SegmentState::kForeign;
  facts.created = contents.header.created;
  for (const SegmentRecord& record : contents.records) {
    const bool block = record.kind == KvRecordKind::kBlock;
    ++(block ? facts.blocks : facts.rings);
    if (block) facts.tokens += record.tokens;
    facts.record_bytes += record.bytes;
  }
  return facts;
}

Result<SegmentCheck> DiskInspector::Verify(const SegmentOnDisk& segment, const std::optional<KvKey>& secret) const {
  const KvNamespace* const name_space = FindNamespace(segment.name_space);
  SegmentCheck check;
  if (name_space == nullptr) return check;
  const KvRecordCodec codec(*name_space, secret);
  DEEPINFER_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, files_->Open(PathOf(segment), OpenMode::kRead, false));
  if (!segment.sealed) {
    DEEPINFER_ASSIGN_OR_RETURN(const SegmentContents scanned, ScanSegment(*files_, file, codec));
    check.good = std::ssize(scanned.records);
    check.bad = scanned.state == SegmentState::kCorrupt ? 1 : 0;
    check.foreign = scanned.state == SegmentState::kForeign;
    // Space that was taken ahead of the records is zero, or was never written.
    check.torn_bytes = std::max<int64_t>(0, scanned.file_bytes - scanned.end);
    return check;
  }
  DEEPINFER_ASSIGN_OR_RETURN(const SegmentContents sealed, ReadSealedSegment(*files_, file));
  if (sealed.state != SegmentState::kGood || !sealed.has_footer) {
    check.foreign = sealed.state == SegmentState::kForeign;
    check.bad = check.foreign ? 0 : 1;
    return check;
  }
  // Engines leave it alone.
  if (!IsAtItsPlace(sealed.header, name_space->fingerprint, segment.id)) {
    check.bad = 1;
    return check;
  }
  FileOperation operation;
  operation.file = file;
  for (const SegmentRecord& record : sealed.records) {
    if (operation.memory == nullptr || operation.bytes < record.bytes) operation.memory = MakeIoMemory(record.bytes);
    if (operation.memory == nullptr) return Status::ResourceExhausted("no memory for a record");
    operation.offset = record.offset;
    operation.bytes = record.bytes;
    DEEPINFER_RETURN_IF_ERROR(files_->RunOne(&operation));
    const std::span<const uint8_t> bytes = operation.data().first(static_cast<size_t>(operation.done));
    const std::optional<KvRecordHeader> header = codec.ReadHeader(bytes);
    const bool good = header.has_value() && codec.Verify(bytes) == KvRecordState::kGood &&
                      ToSegmentRecord(*header, record.offset).name == record.name;
    ++(good ? check.good : check.bad);
  }
  return check;
}

Status DiskInspector::Export(const SegmentOnDisk& segment, const std::string& to) const {
  const KvNamespace* const name_space = FindNamespace(segment.name_space);
  if (name_space == nullptr) return Status::Corruption("a segment whose namespace is not described is not exported");
  DiskDirectory target(files_, to, *name_space, segment.id.writer);
  DEEPINFER_RETURN_IF_ERROR(target.Prepare());
  DEEPINFER_RETURN_IF_ERROR(files_->MakeFolder(target.ScopePath(segment.id.scope)));
  const std::string path = target.Path(segment.id, true);
  const std::string draft = path + ".export";
  DEEPINFER_ASSIGN_OR_RETURN(const std::shared_ptr<File> from, files_->Open(PathOf(segment), OpenMode::kRead, false));
  static_cast<void>(files_->Unlink(draft));
  DEEPINFER_ASSIGN_OR_RETURN(const std::shared_ptr<File> copy, files_->Open(draft, OpenMode::kCreate, false));
  const IoMemory memory = MakeIoMemory(kCopyBytes);
  if (memory == nullptr) return Status::ResourceExhausted("no memory to copy a segment");
  Status status;
  for (int64_t offset = 0; status.ok();) {
    FileOperation read{IoKind::kRead, from, offset, memory, 0, kCopyBytes};
    status = files_->RunOne(&read);
    if (!status.ok() || read.done == 0) break;
    FileOperation write{IoKind::kWrite, copy, offset, memory, 0, read.done};
    status = files_->RunOne(&write);
    offset += read.done;
  }
  if (status.ok()) status = files_->Sync(*copy);
  if (status.ok()) status = files_->Rename(draft, path);
  if (!status.ok()) static_cast<void>(files_->Unlink(draft));
  return status;
}

Status DiskInspector::Remove(const SegmentOnDisk& segment) const {
  const Status status = files_->Unlink(PathOf(segment));
  return status.code() == StatusCode::kNotFound ? Status::Ok() : status;
}

}  // namespace deepinfer
