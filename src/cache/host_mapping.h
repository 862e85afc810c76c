// HostMapping: the memory of the host tier. Private to this process, or a file that several processes map.
//
// A file begins with a HostFileHeader. It is made under a lock and its magic comes last, so a file is either whole or
// known to be unfinished; space is allocated at once, so that a full file system refuses it here and not by a signal
// later. The contents are memory: a file of an earlier boot is begun anew, because the lock in it may be held by a dead
// thread. A file of somebody else, of another version, namespace or size is refused and left alone.
//
// Thread-safety: a value that one thread moves; the bytes have their own rules (host_table.h). Ownership: owns the
// mapping; a file stays when the mapping goes.
#ifndef DEEPINFER_CACHE_HOST_MAPPING_H_
#define DEEPINFER_CACHE_HOST_MAPPING_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "deepinfer/status.h"

namespace deepinfer {

inline constexpr uint32_t kHostFileVersion = 1;

/// What all processes that map a file must agree on. All sizes in bytes but block_tokens.
struct HostFileHeader {
  std::array<char, 8> magic = {};  ///< set by HostMapping
  uint32_t version = kHostFileVersion;
  uint32_t block_tokens = 0;
  std::array<uint8_t, 32> fingerprint = {};  ///< of the namespace
  int64_t file_bytes = 0;
  int64_t block_bytes = 0;
  int64_t rings_bytes = 0;
  std::array<char, 40> boot = {};  ///< of this start of the kernel; set by HostMapping
};
static_assert(sizeof(HostFileHeader) == 112);

class HostMapping {
 public:
  /// Zeros; resident as they are written. kResourceExhausted: no address space.
  static Result<HostMapping> Private(int64_t bytes);

  /// Maps the file, header.file_bytes long. A file that is new, unfinished or of an earlier boot is filled with zeros
  /// and given to `format`, which leaves the bytes of the header alone, before others can see it. kInvalidArgument: a
  /// file that is refused. kResourceExhausted: no space. kIo: everything else.
  static Result<HostMapping> Open(const std::string& path, HostFileHeader header,
                                  const std::function<void(uint8_t*)>& format);

  HostMapping(HostMapping&& other) noexcept;
  HostMapping& operator=(HostMapping&& other) noexcept;
  ~HostMapping();

  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  HostMapping(uint8_t* data, int64_t bytes) : data_(data), bytes_(bytes) {}

  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_HOST_MAPPING_H_
