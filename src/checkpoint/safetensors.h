// Safetensors: the header of a file, read as untrusted input, and the file itself as a read-only mapping.
//
// File: 8 bytes little-endian header length, that many bytes of JSON, then the tensors' bytes. The JSON maps each name
// to {"dtype", "shape", "data_offsets": [begin, end]}, offsets counted from the first byte after the header; the
// tensors cover that area without gap or overlap. "__metadata__", unknown fields and any padding after the JSON are
// ignored. Tensors start at any byte offset: no alignment may be assumed.
//
// Thread-safety: an open file is immutable. Ownership: SafetensorsFile owns the mapping, data() points into it; moving
// the object keeps the pointers valid. The file must not be truncated by others while it is mapped.
// Source: the safetensors format; spec section (b) for the element types.
#ifndef DEEPINFER_CHECKPOINT_SAFETENSORS_H_
#define DEEPINFER_CHECKPOINT_SAFETENSORS_H_

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/mapped_file.h"
#include "deepinfer/status.h"

namespace deepinfer {

struct TensorInfo {
  static constexpr int kMaxRank = 4;

  std::string name;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};  ///< the first `rank` entries
  uint64_t begin = 0;                     ///< bytes from the start of the data area
  uint64_t end = 0;

  std::span<const int64_t> dimensions() const { return {shape.data(), static_cast<size_t>(rank)}; }
};

/// Longest header that is read, in bytes.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Parses the JSON of a header whose data area has `data_bytes` bytes; tensors in header order. Messages name the
/// tensor, or the byte of the header.
Result<std::vector<TensorInfo>> ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes);

class SafetensorsFile {
 public:
  /// Maps the file and parses its header; no tensor byte is read. Messages start with the path.
  static Result<SafetensorsFile> Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const uint8_t* data(const TensorInfo& tensor) const { return file_.bytes().data() + data_start_ + tensor.begin; }
  uint64_t file_bytes() const { return file_.bytes().size(); }
  std::span<const uint8_t> bytes() const { return file_.bytes(); }

 private:
  SafetensorsFile() = default;

  MappedFile file_;
  uint64_t data_start_ = 0;
  std::vector<TensorInfo> tensors_;
};

/// "[32, 64]", for messages.
std::string ShapeText(std::span<const int64_t> shape);

/// A name from a file made fit for a one-line message: control characters escaped, at most 120 bytes.
std::string PrintableName(std::string_view name);

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_SAFETENSORS_H_
