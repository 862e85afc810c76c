#include "cache/host_mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace deepinfer {
namespace {

constexpr std::array<char, 8> kMagic = {'D', 'I', 'K', 'H', 'O', 'S', 'T', '\n'};
/// Of a file that is being made.
constexpr std::array<char, 8> kUnfinished = {'D', 'I', 'K', 'H', 'O', 'S', 'T', '?'};
/// How long another process may take to make the file.
constexpr double kMakingSeconds = 10;

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ < 0) return;
    flock(descriptor_, LOCK_UN);  // closing alone would not: the mapping keeps the file open
    close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

Status SystemError(const std::string& path, std::string_view what) {
  return Status::Io(fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

Status Refused(const std::string& path, const std::string& why) {
  return Status::InvalidArgument(
      fmt::format("{}: {}; the file is left alone: name another one, or remove it when no process uses it", path, why));
}

std::array<char, 40> ThisBoot() {
  std::array<char, 40> boot = {};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(boot.data(), boot.size() - 1);
  return boot;
}

Status LockFile(const std::string& path, int descriptor) {
  const double deadline = NowSeconds() + kMakingSeconds;
  while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return SystemError(path, "cannot be locked");
    if (NowSeconds() > deadline) {
      return Status::Io(fmt::format("{}: another process has kept the file locked for {} s", path, kMakingSeconds));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return Status::Ok();
}

/// Whether the file must be made; the reason when it is refused.
Result<bool> MustBeMade(const std::string& path, int descriptor, const HostFileHeader& wanted) {
  struct stat about = {};
  if (fstat(descriptor, &about) != 0) return SystemError(path, "cannot be examined");
  if (!S_ISREG(about.st_mode)) return Refused(path, "is no regular file");
  if (about.st_uid != geteuid()) return Refused(path, "belongs to another user");
  if ((about.st_mode & 077) != 0) {
    return Refused(path, "may be read by others, and prompts are in it (chmod 600 makes it private)");
  }
  if (about.st_size == 0) return true;
  HostFileHeader found;
  const ssize_t count = pread(descriptor, &found, sizeof(found), 0);
  if (count < 0) return SystemError(path, "cannot be read");
  if (count >= std::ssize(kUnfinished) && found.magic == kUnfinished) return true;
  if (count != static_cast<ssize_t>(sizeof(found)) || found.magic != kMagic) {
    return Refused(path, "is no file of the host tier");
  }
  if (found.version != wanted.version) {
    return Refused(path, fmt::format("has format version {}, this program version {}", found.version, wanted.version));
  }
  if (found.fingerprint != wanted.fingerprint) {
    return Refused(path, "belongs to another namespace (checkpoint, formats or numerics)");
  }
  if (found.file_bytes != wanted.file_bytes || about.st_size != wanted.file_bytes) {
    return Refused(path, fmt::format("has {} bytes and not {}; processes that share it need the same budget",
                                     about.st_size, wanted.file_bytes));
  }
  if (found.block_tokens != wanted.block_tokens || found.block_bytes != wanted.block_bytes ||
      found.rings_bytes != wanted.rings_bytes) {
    return Refused(path, "holds records of other sizes");
  }
  return found.boot != wanted.boot;
}

/// Makes it a file of zeros behind an unfinished header.
Status Begin(const std::string& path, int descriptor, int64_t bytes) {
  if (ftruncate(descriptor, 0) != 0) return SystemError(path, "cannot be emptied");
  const ssize_t written = pwrite(descriptor, kUnfinished.data(), kUnfinished.size(), 0);
  int error = written == std::ssize(kUnfinished) ? 0 : ENOSPC;
  if (error == 0) {
    do {
      error = posix_fallocate(descriptor, 0, bytes);
    } while (error == EINTR);
  }
  if (error == 0) return Status::Ok();
  if (ftruncate(descriptor, 0) != 0) return SystemError(path, "cannot be emptied");
  if (error == ENOSPC || error == EFBIG || error == EDQUOT) {
    return Status::ResourceExhausted(fmt::format(
        "{}: its file system has no room for {} bytes; give the host tier less, or another file system", path, bytes));
  }
  errno = error;
  return SystemError(path, "cannot be filled");
}

}  // namespace

Result<HostMapping> HostMapping::Private(int64_t bytes) {
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return Status::ResourceExhausted(fmt::format("the system has no room for {} bytes of the host tier", bytes));
  }
  return HostMapping(static_cast<uint8_t*>(memory), bytes);
}

Result<HostMapping> HostMapping::Open(const std::string& path, HostFileHeader header,
                                      const std::function<void(uint8_t*)>& format) {
  header.boot = ThisBoot();
  const File file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (file.get() < 0) return SystemError(path, "cannot be opened");
  DEEPINFER_RETURN_IF_ERROR(LockFile(path, file.get()));
  DEEPINFER_ASSIGN_OR_RETURN(const bool make, MustBeMade(path, file.get(), header));
  if (make) DEEPINFER_RETURN_IF_ERROR(Begin(path, file.get(), header.file_bytes));

  void* memory =
      mmap(nullptr, static_cast<size_t>(header.file_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return SystemError(path, "cannot be mapped");
  HostMapping mapping(static_cast<uint8_t*>(memory), header.file_bytes);
  if (make) {
    format(mapping.data());
    header.magic = kUnfinished;
    std::memcpy(mapping.data(), &header, sizeof(header));
    // One write of eight bytes: what is there before it is an unfinished file.
    if (pwrite(file.get(), kMagic.data(), kMagic.size(), 0) != std::ssize(kMagic)) {
      return SystemError(path, "cannot be written");
    }
  }
  return mapping;
}

HostMapping::HostMapping(HostMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostMapping& HostMapping::operator=(HostMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

HostMapping::~HostMapping() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

}  // namespace deepinfer
