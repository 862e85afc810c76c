// What the tests of the disk tier share: chains of blocks whose contents follow from their keys, a clock that stands
// still, and a file system with faults.
//
// Thread-safety: FaultyFileSystem as FileSystem; the rest one thread.
#ifndef DEEPINFER_TESTS_CACHE_DISK_FIXTURE_H_
#define DEEPINFER_TESTS_CACHE_DISK_FIXTURE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/disk_tier.h"
#include "cache/file_system.h"
#include "cache/kv_record.h"

namespace deepinfer::test {

inline constexpr int64_t kBlockTokens = 8;
inline constexpr int64_t kSmallBlock = 3000;      // bytes; a record of 4096
inline constexpr int64_t kSmallRings = 5000;      // bytes; a record of 8192
inline constexpr int64_t kStart = 20000 * 86400;  // a day's first second
inline constexpr int64_t kDay = 86400;

KvNamespace SmallNamespace(const std::string& description = R"({"model": "small"})");

/// The bytes that a record of this key and kind must have.
std::vector<uint8_t> PayloadOf(const KvKey& key, KvRecordKind kind, int64_t bytes);

/// The blocks of one prompt, and the rings behind each.
class Chain {
 public:
  Chain(const KvNamespace& name_space, const std::string& salt, uint32_t seed, int64_t blocks);

  int64_t size() const { return std::ssize(keys_); }
  const KvScope& scope() const { return scope_; }
  const std::vector<KvKey>& keys() const { return keys_; }
  std::span<const int32_t> ids(int64_t block) const;

  /// Blocks begin .. end - 1.
  std::vector<KvWrite> Writes(int64_t begin, int64_t end, int64_t expires_at) const;
  KvWrite Write(int64_t block, int64_t expires_at, KvRecordKind kind = KvRecordKind::kBlock) const;
  /// Reads for the same; payloads belong to the chain and are overwritten by the next call.
  std::vector<KvRead> Reads(int64_t begin, int64_t end, KvRecordKind kind = KvRecordKind::kBlock);
  /// Whether a read that was found has the bytes it must have.
  bool IsRight(const KvRead& read) const;

 private:
  KvKey Parent(int64_t block) const { return block == 0 ? scope_.root : keys_[static_cast<size_t>(block - 1)]; }

  KvNamespace name_space_;
  KvScope scope_;
  std::vector<int32_t> ids_;
  std::vector<KvKey> keys_;
  std::vector<std::vector<uint8_t>> blocks_;  // [size], payload
  std::vector<std::vector<uint8_t>> rings_;   // [size], payload
  std::vector<std::vector<uint8_t>> buffers_;
};

/// Reads the blocks; how many were found, -1 when one of them is wrong or the call failed.
int64_t CountRight(KvTier& tier, Chain& chain, int64_t begin, int64_t end, KvRecordKind kind = KvRecordKind::kBlock);

/// Fails calls on demand; all else goes to the system.
class FaultyFileSystem : public FileSystem {
 public:
  explicit FaultyFileSystem(const PosixOptions& options = {}) : system_(MakePosixFileSystem(options)) {}

  std::atomic<bool> full{false};          ///< no space for new bytes
  std::atomic<bool> read_only{false};     ///< nothing may be changed
  std::atomic<bool> read_errors{false};   ///< EIO
  std::atomic<bool> write_errors{false};  ///< EIO
  std::atomic<bool> preallocates{true};   ///< false: space is only missed as it is written to
  std::atomic<int64_t> writes_left{-1};   ///< operations until the disk is full; -1: never
  std::atomic<bool> late_writes{false};   ///< writes take their bytes as late as they may: when they are waited for
  std::atomic<int64_t> short_reads{0};    ///< so many reads from now on end after a half
  std::atomic<int64_t> operations{0};     ///< seen
  std::atomic<int64_t> runs{0};           ///< calls of Start, seen
  std::atomic<int64_t> answers{-1};       ///< calls of Start until the disk does not answer any more; -1: never
  std::string broken;                     ///< EIO for paths that contain it; empty: none
  std::string unreadable;                 ///< EIO when this path is opened
  /// Called in front of every call that changes names or sizes.
  std::function<void()> on_change;

  Result<std::shared_ptr<File>> Open(const std::string& path, OpenMode mode, bool direct) override;
  std::unique_ptr<Transfer> Start(std::span<FileOperation> operations) override;
  Status Sync(File& file) override;
  Status Preallocate(File& file, int64_t bytes) override;
  Status Truncate(File& file, int64_t bytes) override;
  Result<FileInfo> Info(File& file) override { return system_->Info(file); }
  Result<FileInfo> Info(const std::string& path) override;
  Status SetAccessed(File& file, int64_t time) override { return system_->SetAccessed(file, time); }
  Result<bool> TryLock(File& file) override { return system_->TryLock(file); }
  void Unlock(File& file) override { system_->Unlock(file); }
  Status MakeFolder(const std::string& path) override;
  Status SyncFolder(const std::string& path) override { return system_->SyncFolder(path); }
  Result<std::vector<FolderEntry>> List(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Unlink(const std::string& path) override;
  Status RemoveFolder(const std::string& path) override;

 private:
  class Passed;

  Status Broken(const std::string& path) const;
  Status Change(const std::string& path);

  std::unique_ptr<FileSystem> system_;
};

/// Options for a folder: a budget of 4 MiB, and a clock that reads `*now`.
DiskTierOptions SmallOptions(const std::string& folder, const int64_t* now, int64_t budget_bytes = int64_t{4} << 20);
/// A tier that has looked at its folder; fails the test when it cannot.
std::unique_ptr<DiskTier> OpenTier(const DiskTierOptions& options, FileSystem* files,
                                   const KvNamespace& name_space = SmallNamespace(),
                                   std::optional<KvKey> secret = std::nullopt);

/// Paths of all files below, sorted; those that end with `suffix`.
std::vector<std::string> FilesBelow(const std::string& folder, const std::string& suffix = "");
/// Of all files below.
int64_t BytesBelow(const std::string& folder);
std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_CACHE_DISK_FIXTURE_H_
