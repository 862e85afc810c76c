// MakePosixFileSystem of cache/file_system.h.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>

#include "cache/file_system.h"
#include "cache/io_ring.h"
#include "cache/io_thread.h"

namespace deepinfer {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;

class PosixFile : public File {
 public:
  PosixFile(std::string path, int descriptor) : File(std::move(path)), descriptor_(descriptor) {}
  ~PosixFile() override { close(descriptor_); }

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

int Descriptor(File& file) { return static_cast<PosixFile&>(file).descriptor(); }

Status Failure(const std::string& path, const char* what, int error) {
  std::string message = fmt::format("{}: {}: {}", path, what, std::strerror(error));
  switch (error) {
    case ENOENT:
    case ESTALE:
    case ENOTDIR:
      return Status::NotFound(std::move(message));
    case ENOSPC:
    case EDQUOT:
      return Status::ResourceExhausted(std::move(message));
    default:
      return Status::Io(std::move(message));
  }
}

Status NoRegularFile(const std::string& path) { return Status::Io(path + ": no regular file"); }

FileInfo ToInfo(const struct stat& from) {
  return {.bytes = from.st_size,
          .accessed = from.st_atim.tv_sec,
          .modified = from.st_mtim.tv_sec * 1000000000 + from.st_mtim.tv_nsec,
          .device = from.st_dev,
          .inode = from.st_ino,
          .links = static_cast<int64_t>(from.st_nlink)};
}

/// What a call that did not end keeps alive.
struct Batch {
  std::vector<FileOperation> operations;
  std::vector<IoPiece> pieces;
  bool writes = false;
  std::unique_ptr<IoQueue> queue;
};

class PosixFileSystem : public FileSystem {
 public:
  explicit PosixFileSystem(const PosixOptions& options) : options_(options) {}

  // The kernel may yet write to the memory of operations that did not end: it is never given back.
  ~PosixFileSystem() override {
    for (std::unique_ptr<Batch>& batch : abandoned_) {
      if (!batch->queue->Drain()) static_cast<void>(batch.release());
    }
  }

  Result<std::shared_ptr<File>> Open(const std::string& path, OpenMode mode, bool direct) override {
    // A FIFO would keep us until somebody writes to it, and a link may lead out of the folder.
    const int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
                      (mode == OpenMode::kRead     ? O_RDONLY
                       : mode == OpenMode::kCreate ? O_RDWR | O_CREAT | O_EXCL
                                                   : O_RDWR);
    // The time of access is ours (SetAccessed); only the owner may ask for O_NOATIME, and tmpfs has had no O_DIRECT.
    int extra = O_NOATIME | (direct ? O_DIRECT : 0);
    int descriptor = open(path.c_str(), flags | extra, 0600);
    if (descriptor < 0 && errno == EPERM) {
      extra &= ~O_NOATIME;
      descriptor = open(path.c_str(), flags | extra, 0600);
    }
    if (descriptor < 0 && errno == EINVAL && direct) {
      // Some file systems create the file and refuse O_DIRECT then.
      if (mode == OpenMode::kCreate) unlink(path.c_str());
      descriptor = open(path.c_str(), flags | (extra & ~O_DIRECT), 0600);
    }
    if (descriptor < 0 && (errno == ELOOP || errno == ENXIO || errno == EISDIR)) return NoRegularFile(path);
    if (descriptor < 0) return Failure(path, "open", errno);
    std::shared_ptr<File> file = std::make_shared<PosixFile>(path, descriptor);
    struct stat info = {};
    if (fstat(descriptor, &info) != 0) return Failure(path, "stat", errno);
    if (!S_ISREG(info.st_mode)) return NoRegularFile(path);
    // Rings may answer EAGAIN for a file that must not block.
    const int opened = fcntl(descriptor, F_GETFL);
    if (opened < 0 || fcntl(descriptor, F_SETFL, opened & ~O_NONBLOCK) != 0) return Failure(path, "fcntl", errno);
    return file;
  }

  std::unique_ptr<Transfer> Start(std::span<FileOperation> operations) override {
    auto batch = std::make_unique<Batch>();
    std::vector<size_t> owner;
    for (size_t i = 0; i < operations.size(); ++i) {
      FileOperation& operation = operations[i];
      operation.done = 0;
      operation.status = Status::Ok();
      for (int64_t at = 0; at < operation.bytes; at += kPieceBytes) {
        batch->pieces.push_back({.write = operation.kind == IoKind::kWrite,
                                 .descriptor = Descriptor(*operation.file),
                                 .offset = operation.offset + at,
                                 .data = operation.data().data() + at,
                                 .bytes = std::min(kPieceBytes, operation.bytes - at)});
        owner.push_back(i);
      }
    }
    batch->writes = std::ranges::any_of(batch->pieces, &IoPiece::write);
    if (!batch->pieces.empty()) batch->queue = TakeQueue(batch->writes);
    if (batch->queue != nullptr) {
      batch->queue->Start(batch->pieces);
    } else {
      std::ranges::for_each(batch->pieces, [](IoPiece& piece) { RunPiece(&piece); });
    }
    return std::make_unique<PosixTransfer>(this, operations, std::move(batch), std::move(owner));
  }

  Status Sync(File& file) override {
    return fdatasync(Descriptor(file)) == 0 ? Status::Ok() : Failure(file.path(), "fsync", errno);
  }

  Status Preallocate(File& file, int64_t bytes) override {
    int result = 0;
    do {
      result = fallocate(Descriptor(file), 0, 0, bytes);
    } while (result != 0 && errno == EINTR);
    if (result == 0) return Status::Ok();
    if (errno != EOPNOTSUPP && errno != ENOSYS) return Failure(file.path(), "fallocate", errno);
    return Truncate(file, bytes);
  }

  Status Truncate(File& file, int64_t bytes) override {
    return ftruncate(Descriptor(file), bytes) == 0 ? Status::Ok() : Failure(file.path(), "truncate", errno);
  }

  Result<FileInfo> Info(File& file) override {
    struct stat info = {};
    if (fstat(Descriptor(file), &info) != 0) return Failure(file.path(), "stat", errno);
    return ToInfo(info);
  }

  Result<FileInfo> Info(const std::string& path) override {
    struct stat info = {};
    if (lstat(path.c_str(), &info) != 0) return Failure(path, "stat", errno);
    return ToInfo(info);
  }

  Status SetAccessed(File& file, int64_t time) override {
    const struct timespec times[2] = {{time, 0}, {0, UTIME_OMIT}};
    return futimens(Descriptor(file), times) == 0 ? Status::Ok() : Failure(file.path(), "utime", errno);
  }

  Result<bool> TryLock(File& file) override {
    while (flock(Descriptor(file), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return false;
      if (errno != EINTR) return Failure(file.path(), "flock", errno);
    }
    return true;
  }

  void Unlock(File& file) override { flock(Descriptor(file), LOCK_UN); }

  Status MakeFolder(const std::string& path) override {
    if (mkdir(path.c_str(), 0700) == 0) return Status::Ok();
    if (errno != EEXIST) return Failure(path, "mkdir", errno);
    struct stat info = {};
    if (lstat(path.c_str(), &info) != 0) return Failure(path, "stat", errno);
    return S_ISDIR(info.st_mode) ? Status::Ok() : Status::Io(path + ": no folder");
  }

  Status SyncFolder(const std::string& path) override {
    const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return Failure(path, "open", errno);
    const bool synced = fsync(descriptor) == 0;
    const int error = errno;
    close(descriptor);
    // Some network file systems cannot sync a folder; their server orders names itself.
    return synced || error == EINVAL ? Status::Ok() : Failure(path, "fsync", error);
  }

  Result<std::vector<FolderEntry>> List(const std::string& path) override {
    const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) return Failure(path, "open", errno);
    DIR* const folder = fdopendir(descriptor);
    if (folder == nullptr) {
      const int error = errno;
      close(descriptor);
      return Failure(path, "opendir", error);
    }
    std::vector<FolderEntry> entries;
    errno = 0;
    while (const dirent* const entry = readdir(folder)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") {
        unsigned char type = entry->d_type;
        if (type == DT_UNKNOWN) {
          struct stat info = {};
          if (fstatat(descriptor, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0) type = IFTODT(info.st_mode);
        }
        if (type == DT_DIR || type == DT_REG) entries.push_back({std::string(name), type == DT_DIR});
      }
      errno = 0;
    }
    const int error = errno;
    closedir(folder);
    if (error != 0) return Failure(path, "readdir", error);
    std::ranges::sort(entries, {}, &FolderEntry::name);
    return entries;
  }

  Status Rename(const std::string& from, const std::string& to) override {
    return rename(from.c_str(), to.c_str()) == 0 ? Status::Ok() : Failure(from, "rename", errno);
  }

  Status Unlink(const std::string& path) override {
    return unlink(path.c_str()) == 0 ? Status::Ok() : Failure(path, "unlink", errno);
  }

  Status RemoveFolder(const std::string& path) override {
    return rmdir(path.c_str()) == 0 ? Status::Ok() : Failure(path, "rmdir", errno);
  }

 private:
  class PosixTransfer : public Transfer {
   public:
    PosixTransfer(PosixFileSystem* files, std::span<FileOperation> operations, std::unique_ptr<Batch> batch,
                  std::vector<size_t> owner)
        : files_(files), operations_(operations), batch_(std::move(batch)), owner_(std::move(owner)) {}
    ~PosixTransfer() override { PosixTransfer::Finish(); }

    void Finish() override {
      if (batch_ != nullptr) files_->Finish(operations_, owner_, std::move(batch_));
    }

   private:
    PosixFileSystem* files_;
    std::span<FileOperation> operations_;
    std::unique_ptr<Batch> batch_;  // nothing once it has ended
    std::vector<size_t> owner_;     // [pieces], index in operations_
  };

  void Finish(std::span<FileOperation> operations, const std::vector<size_t>& owner, std::unique_ptr<Batch> batch) {
    const bool ended = batch->queue == nullptr || batch->queue->Finish(options_.patience_seconds);
    bool short_before = false;
    for (size_t i = 0; i < owner.size(); ++i) {
      FileOperation& operation = operations[owner[i]];
      if (i == 0 || owner[i] != owner[i - 1]) short_before = false;
      const IoPiece& piece = batch->pieces[i];
      if (!ended) {
        operation.status = Status::Cancelled(
            fmt::format("{}: no answer within {} s", operation.file->path(), options_.patience_seconds));
      } else if (piece.error != 0) {
        if (operation.status.ok()) {
          operation.status = Failure(operation.file->path(), piece.write ? "write" : "read", piece.error);
        }
      } else if (!short_before) {
        operation.done += piece.done;
        short_before = piece.done < piece.bytes;
      }
    }
    if (ended) return GiveBack(*batch, std::move(batch->queue));
    batch->operations.assign(operations.begin(), operations.end());
    const std::lock_guard lock(mutex_);
    abandoned_.push_back(std::move(batch));
  }

  /// A queue that nobody uses, or a new one. Nothing: the caller's thread does the work.
  std::unique_ptr<IoQueue> TakeQueue(bool writes) {
    if (!writes && (!options_.rings || refused_)) return nullptr;
    std::vector<std::unique_ptr<Batch>> drained;  // their threads end and files close without the lock
    {
      const std::lock_guard lock(mutex_);
      const auto ended = std::partition(abandoned_.begin(), abandoned_.end(),
                                        [](const std::unique_ptr<Batch>& batch) { return !batch->queue->Drain(); });
      std::move(ended, abandoned_.end(), std::back_inserter(drained));
      abandoned_.erase(ended, abandoned_.end());
      std::vector<std::unique_ptr<IoQueue>>& free = writes ? threads_ : rings_;
      if (!free.empty()) {
        std::unique_ptr<IoQueue> queue = std::move(free.back());
        free.pop_back();
        return queue;
      }
    }
    if (writes) return IoThread::Create();
    std::unique_ptr<IoQueue> ring = IoRing::Create();
    if (ring == nullptr) refused_ = true;
    return ring;
  }

  void GiveBack(const Batch& batch, std::unique_ptr<IoQueue> queue) {
    if (queue == nullptr) return;
    const std::lock_guard lock(mutex_);
    (batch.writes ? threads_ : rings_).push_back(std::move(queue));
  }

  const PosixOptions options_;
  std::atomic<bool> refused_{false};
  std::mutex mutex_;  // of what follows; never held while waiting
  std::vector<std::unique_ptr<IoQueue>> rings_;
  std::vector<std::unique_ptr<IoQueue>> threads_;
  std::vector<std::unique_ptr<Batch>> abandoned_;
};

}  // namespace

std::unique_ptr<FileSystem> MakePosixFileSystem(const PosixOptions& options) {
  return std::make_unique<PosixFileSystem>(options);
}

}  // namespace deepinfer
