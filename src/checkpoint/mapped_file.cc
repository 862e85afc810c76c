#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace deepinfer {
namespace {

Status SystemError(const std::filesystem::path& path, std::string_view action, int error) {
  std::string message = fmt::format("{}: cannot {}: {}", path.string(), action, std::generic_category().message(error));
  return error == ENOENT ? Status::NotFound(std::move(message)) : Status::Io(std::move(message));
}

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

}  // namespace

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

Result<MappedFile> MappedFile::Open(const std::filesystem::path& path) {
  // O_NONBLOCK: a FIFO in place of the file must not block.
  const Descriptor descriptor{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (descriptor.value < 0) return SystemError(path, "open", errno);
  struct stat info {};
  if (fstat(descriptor.value, &info) != 0) return SystemError(path, "examine", errno);
  if (!S_ISREG(info.st_mode)) return Status::Io(fmt::format("{}: expected a regular file", path.string()));
  MappedFile file;
  file.path_ = path;
  if (info.st_size == 0) return file;
  const size_t size = static_cast<size_t>(info.st_size);
  void* address = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor.value, 0);
  if (address == MAP_FAILED) return SystemError(path, "map", errno);
  file.bytes_ = {static_cast<const uint8_t*>(address), size};
  return file;
}

}  // namespace deepinfer
