#include "disk_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <utility>

namespace deepinfer::test {

KvNamespace SmallNamespace(const std::string& description) {
  return KvNamespace::Make(description, kSmallBlock, kSmallRings);
}

std::vector<uint8_t> PayloadOf(const KvKey& key, KvRecordKind kind, int64_t bytes) {
  uint64_t state = 0;
  std::memcpy(&state, key.bytes.data() + 8, sizeof(state));
  state += static_cast<uint64_t>(kind);
  std::vector<uint8_t> payload(static_cast<size_t>(bytes));
  for (uint8_t& byte : payload) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<uint8_t>(state >> 56);
  }
  return payload;
}

Chain::Chain(const KvNamespace& name_space, const std::string& salt, uint32_t seed, int64_t blocks)
    : name_space_(name_space), scope_(KvScope::Make(name_space, "exact", salt)) {
  std::mt19937 random(seed);
  for (int64_t i = 0; i < blocks * kBlockTokens; ++i) ids_.push_back(static_cast<int32_t>(random() % 100000));
  ExtendKeys(scope_.root, ids_, kBlockTokens, &keys_);
  for (const KvKey& key : keys_) {
    blocks_.push_back(PayloadOf(key, KvRecordKind::kBlock, name_space.block_bytes));
    rings_.push_back(PayloadOf(key, KvRecordKind::kRings, name_space.rings_bytes));
  }
}

std::span<const int32_t> Chain::ids(int64_t block) const {
  return std::span(ids_).subspan(static_cast<size_t>(block * kBlockTokens), kBlockTokens);
}

KvWrite Chain::Write(int64_t block, int64_t expires_at, KvRecordKind kind) const {
  const auto index = static_cast<size_t>(block);
  return {.kind = kind,
          .scope = scope_,
          .key = keys_[index],
          .parent = Parent(block),
          .first_token = block * kBlockTokens,
          .ids = ids(block),
          .payload = kind == KvRecordKind::kBlock ? blocks_[index] : rings_[index],
          .expires_at = expires_at};
}

std::vector<KvWrite> Chain::Writes(int64_t begin, int64_t end, int64_t expires_at) const {
  std::vector<KvWrite> writes;
  for (int64_t block = begin; block < end; ++block) writes.push_back(Write(block, expires_at));
  return writes;
}

std::vector<KvRead> Chain::Reads(int64_t begin, int64_t end, KvRecordKind kind) {
  const int64_t bytes = kind == KvRecordKind::kBlock ? name_space_.block_bytes : name_space_.rings_bytes;
  buffers_.assign(static_cast<size_t>(end - begin), std::vector<uint8_t>(static_cast<size_t>(bytes)));
  std::vector<KvRead> reads;
  for (int64_t block = begin; block < end; ++block) {
    reads.push_back({.kind = kind,
                     .key = keys_[static_cast<size_t>(block)],
                     .parent = Parent(block),
                     .first_token = block * kBlockTokens,
                     .ids = ids(block),
                     .payload = buffers_[static_cast<size_t>(block - begin)]});
  }
  return reads;
}

bool Chain::IsRight(const KvRead& read) const {
  const std::vector<uint8_t> expected = PayloadOf(read.key, read.kind, std::ssize(read.payload));
  return std::ranges::equal(read.payload, expected);
}

int64_t CountRight(KvTier& tier, Chain& chain, int64_t begin, int64_t end, KvRecordKind kind) {
  std::vector<KvRead> reads = chain.Reads(begin, end, kind);
  if (!tier.Read(reads).ok()) return -1;
  int64_t count = 0;
  for (const KvRead& read : reads) {
    if (!read.found) continue;
    if (!chain.IsRight(read)) return -1;
    ++count;
  }
  return count;
}

Status FaultyFileSystem::Broken(const std::string& path) const {
  const bool is_broken = !broken.empty() && path.find(broken) != path.npos;
  return is_broken ? Status::Io(path + ": input/output error") : Status::Ok();
}

Status FaultyFileSystem::Change(const std::string& path) {
  if (on_change) on_change();
  DEEPINFER_RETURN_IF_ERROR(Broken(path));
  return read_only ? Status::Io(path + ": read-only file system") : Status::Ok();
}

Result<std::shared_ptr<File>> FaultyFileSystem::Open(const std::string& path, OpenMode mode, bool direct) {
  if (path == unreadable) return Status::Io(path + ": input/output error");
  DEEPINFER_RETURN_IF_ERROR(mode == OpenMode::kRead ? Broken(path) : Change(path));
  return system_->Open(path, mode, direct);
}

/// What the system was given of a list of operations.
class FaultyFileSystem::Passed : public FileSystem::Transfer {
 public:
  Passed(FaultyFileSystem* files, std::span<FileOperation> list) : files_(files), list_(list) {}
  ~Passed() override { Passed::Finish(); }

  void Add(size_t index) {
    operations_.push_back(list_[index]);
    owner_.push_back(index);
  }
  void Begin() { transfer_ = files_->system_->Start(operations_); }
  void BeginLate() { late_ = true; }

  void Finish() override {
    if (std::exchange(late_, false)) Begin();
    if (transfer_ == nullptr) return;
    transfer_->Finish();
    transfer_ = nullptr;
    for (size_t i = 0; i < operations_.size(); ++i) {
      FileOperation& operation = list_[owner_[i]];
      operation.done = operations_[i].done;
      operation.status = operations_[i].status;
      if (operation.kind == IoKind::kRead && files_->short_reads > 0) {
        --files_->short_reads;
        operation.done /= 2;
      }
    }
    operations_.clear();
  }

 private:
  FaultyFileSystem* files_;
  std::span<FileOperation> list_;
  std::vector<FileOperation> operations_;
  std::vector<size_t> owner_;
  std::unique_ptr<Transfer> transfer_;
  bool late_ = false;
};

std::unique_ptr<FileSystem::Transfer> FaultyFileSystem::Start(std::span<FileOperation> list) {
  operations += std::ssize(list);
  ++runs;
  auto passed = std::make_unique<Passed>(this, list);
  if (answers >= 0 && answers-- <= 0) {
    answers = 0;
    for (FileOperation& operation : list) operation.status = Status::Cancelled(operation.file->path() + ": no answer");
    return passed;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    FileOperation& operation = list[i];
    const bool write = operation.kind == IoKind::kWrite;
    Status status;
    if (write ? write_errors : read_errors) status = Status::Io(operation.file->path() + ": input/output error");
    if (write && read_only) status = Status::Io(operation.file->path() + ": read-only file system");
    if (write && writes_left >= 0 && writes_left-- <= 0) {
      writes_left = 0;
      status = Status::ResourceExhausted(operation.file->path() + ": no space left on device");
    }
    operation.status = status;
    operation.done = 0;
    if (status.ok()) passed->Add(i);
  }
  const bool late = late_writes && std::ranges::any_of(list, [](const FileOperation& operation) {
                      return operation.kind == IoKind::kWrite;
                    });
  late ? passed->BeginLate() : passed->Begin();
  return passed;
}

Status FaultyFileSystem::Sync(File& file) {
  return write_errors ? Status::Io(file.path() + ": input/output error") : system_->Sync(file);
}

Status FaultyFileSystem::Preallocate(File& file, int64_t bytes) {
  DEEPINFER_RETURN_IF_ERROR(Change(file.path()));
  if (full) return Status::ResourceExhausted(file.path() + ": no space left on device");
  return preallocates ? system_->Preallocate(file, bytes) : system_->Truncate(file, bytes);
}

Status FaultyFileSystem::Truncate(File& file, int64_t bytes) {
  DEEPINFER_RETURN_IF_ERROR(Change(file.path()));
  return system_->Truncate(file, bytes);
}

Status FaultyFileSystem::MakeFolder(const std::string& path) {
  if (read_only) return system_->Info(path).ok() ? Status::Ok() : Change(path);
  return system_->MakeFolder(path);
}

Result<FileInfo> FaultyFileSystem::Info(const std::string& path) {
  DEEPINFER_RETURN_IF_ERROR(Broken(path));
  return system_->Info(path);
}

Result<std::vector<FolderEntry>> FaultyFileSystem::List(const std::string& path) {
  DEEPINFER_RETURN_IF_ERROR(Broken(path));
  if (read_errors) return Status::Io(path + ": input/output error");
  return system_->List(path);
}

Status FaultyFileSystem::Rename(const std::string& from, const std::string& to) {
  DEEPINFER_RETURN_IF_ERROR(Change(from));
  return system_->Rename(from, to);
}

Status FaultyFileSystem::Unlink(const std::string& path) {
  DEEPINFER_RETURN_IF_ERROR(Change(path));
  return system_->Unlink(path);
}

Status FaultyFileSystem::RemoveFolder(const std::string& path) {
  DEEPINFER_RETURN_IF_ERROR(Change(path));
  return system_->RemoveFolder(path);
}

DiskTierOptions SmallOptions(const std::string& folder, const int64_t* now, int64_t budget_bytes) {
  DiskTierOptions options;
  options.folder = folder;
  options.budget_bytes = budget_bytes;
  options.host = "test";
  options.clock = [now] { return *now; };
  return options;
}

std::unique_ptr<DiskTier> OpenTier(const DiskTierOptions& options, FileSystem* files, const KvNamespace& name_space,
                                   std::optional<KvKey> secret) {
  Result<std::unique_ptr<DiskTier>> tier = DiskTier::Create(options, KvRecordCodec(name_space, secret), files);
  if (!tier.ok()) {
    ADD_FAILURE() << tier.status().message();
    return nullptr;
  }
  const Status status = (*tier)->Probe();
  EXPECT_TRUE(status.ok()) << status.message();
  return std::move(*tier);
}

std::vector<std::string> FilesBelow(const std::string& folder, const std::string& suffix) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().string().ends_with(suffix)) paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  return paths;
}

int64_t BytesBelow(const std::string& folder) {
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  int64_t bytes = 0;
  const std::function<void(const std::string&)> add = [&](const std::string& path) {
    const Result<std::vector<FolderEntry>> entries = files->List(path);
    if (!entries.ok()) return;
    for (const FolderEntry& entry : *entries) {
      const std::string inner = path + "/" + entry.name;
      if (entry.is_folder) {
        add(inner);
      } else if (const Result<FileInfo> info = files->Info(inner); info.ok()) {
        bytes += info->bytes;
      }
    }
  };
  add(folder);
  return bytes;
}

std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), std::ssize(bytes));
}

}  // namespace deepinfer::test
