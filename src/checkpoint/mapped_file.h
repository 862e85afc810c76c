// MappedFile: a whole file, mapped read-only and shared with the page cache.
//
// Thread-safety: immutable after Open(). Ownership: unmaps on destruction; moving keeps the address.
#ifndef DEEPINFER_CHECKPOINT_MAPPED_FILE_H_
#define DEEPINFER_CHECKPOINT_MAPPED_FILE_H_

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "deepinfer/status.h"

namespace deepinfer {

class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// kNotFound: no such file; kIo: anything else the system refuses, with its reason.
  static Result<MappedFile> Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::filesystem::path path_;
  std::span<const uint8_t> bytes_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_MAPPED_FILE_H_
