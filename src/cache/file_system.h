// FileSystem: all disk I/O of the cache goes through it, so that tests can put faults in its way: a full disk, an I/O
// error, a short read, a folder that cannot be written.
//
// Thread-safety: all calls from any thread; one file by several threads too, as long as their bytes do not overlap.
// Ownership: an operation shares its file and its memory with the file system until it has ended, also when the disk
// does not answer in time and the caller has gone on.
//
// Links: none is followed at the end of a path, unless it is a folder's and ends in "/".
//
// Errors: kNotFound for what is not there (any more), kResourceExhausted for a full disk or quota, kCancelled for an
// operation that was waited for in vain, kIo for the rest; the message names the path and the reason of the system.
#ifndef DEEPINFER_CACHE_FILE_SYSTEM_H_
#define DEEPINFER_CACHE_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// Offsets, counts and addresses of operations are multiples of it: what O_DIRECT asks for.
inline constexpr int64_t kIoAlignment = 4096;

/// An open file; closed, and its lock given up, with the last reference.
class File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {}
  virtual ~File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// What it was opened as, for messages.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

using IoMemory = std::shared_ptr<AlignedBuffer<uint8_t>>;

/// `bytes` bytes of memory for operations; nothing when the system has none.
IoMemory MakeIoMemory(int64_t bytes);

enum class IoKind : uint8_t { kRead, kWrite };

/// One contiguous piece of I/O.
struct FileOperation {
  IoKind kind = IoKind::kRead;
  std::shared_ptr<File> file;
  int64_t offset = 0;  ///< bytes
  IoMemory memory;
  int64_t memory_offset = 0;  ///< bytes
  int64_t bytes = 0;
  int64_t done = 0;    ///< out: bytes; a read has fewer than asked only at the end of the file
  Status status = {};  ///< out

  std::span<uint8_t> data() const { return {memory->data() + memory_offset, static_cast<size_t>(bytes)}; }
};

struct FileInfo {
  int64_t bytes = 0;
  int64_t accessed = 0;  ///< seconds since 1970
  int64_t modified = 0;  ///< nanoseconds since 1970
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t links = 0;  ///< 0: no name leads to it any more
};

struct FolderEntry {
  std::string name;
  bool is_folder = false;
};

enum class OpenMode : uint8_t {
  kRead,
  kWrite,   ///< read and write a file that exists
  kCreate,  ///< read and write; kIo when it exists
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// Regular files only, kIo for all others; never waits for a FIFO. New files have mode 0600. direct: past the page
  /// cache where the folder allows it.
  virtual Result<std::shared_ptr<File>> Open(const std::string& path, OpenMode mode, bool direct) = 0;

  /// Operations under way. One thread; ends with Finish, which its destructor calls too.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    /// Waits, and sets `done` and `status` of the operations. A second call does nothing.
    virtual void Finish() = 0;
  };

  /// Puts the operations under way, several at a time and in any order. They stay where they are until Finish.
  virtual std::unique_ptr<Transfer> Start(std::span<FileOperation> operations) = 0;

  /// Start and Finish.
  void Run(std::span<FileOperation> operations);

  virtual Status Sync(File& file) = 0;
  /// The file has `bytes` bytes afterwards, those that are new zero and with blocks of their own where the file system
  /// can do that.
  virtual Status Preallocate(File& file, int64_t bytes) = 0;
  virtual Status Truncate(File& file, int64_t bytes) = 0;
  virtual Result<FileInfo> Info(File& file) = 0;
  virtual Result<FileInfo> Info(const std::string& path) = 0;
  /// Leaves the time of modification alone. time: seconds since 1970.
  virtual Status SetAccessed(File& file, int64_t time) = 0;

  /// The advisory lock that one open file can hold of all that are open on the same file. False: another has it.
  virtual Result<bool> TryLock(File& file) = 0;
  virtual void Unlock(File& file) = 0;
  /// Waits for it; kIo after `seconds`.
  Status Lock(File& file, double seconds);

  /// Mode 0700; fine when a folder is there, kIo when anything else is. Parents must exist.
  virtual Status MakeFolder(const std::string& path) = 0;
  virtual Status SyncFolder(const std::string& path) = 0;
  /// Regular files and folders, sorted by name, without "." and "..".
  virtual Result<std::vector<FolderEntry>> List(const std::string& path) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status Unlink(const std::string& path) = 0;
  /// An empty one.
  virtual Status RemoveFolder(const std::string& path) = 0;

  /// One operation; its status.
  Status RunOne(FileOperation* operation);
  /// A new file with this text, for things that are not segments. Replaces nothing: kIo when it exists.
  Status WriteText(const std::string& path, std::string_view text);
};

struct PosixOptions {
  bool rings = true;             ///< io_uring for reads where the kernel lets us
  double patience_seconds = 30;  ///< no operation ended for so long: they fail with kCancelled
};

/// The system's. A list of reads has an io_uring of its own, or runs in Start where the kernel refuses rings; one with
/// writes has a thread (io_thread.h).
std::unique_ptr<FileSystem> MakePosixFileSystem(const PosixOptions& options = {});

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_FILE_SYSTEM_H_
