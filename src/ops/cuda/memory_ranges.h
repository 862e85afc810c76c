// MemoryRanges: which bytes of device memory the commands of a branch read or write (command_list.h).
//
// Thread-safety: one thread. Ownership: none; nothing is allocated.
#ifndef DEEPINFER_OPS_CUDA_MEMORY_RANGES_H_
#define DEEPINFER_OPS_CUDA_MEMORY_RANGES_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace deepinfer::cuda {

class MemoryRanges {
 public:
  void Add(const void* data, int64_t bytes) {
    if (data == nullptr || bytes <= 0) return;
    const auto* begin = static_cast<const uint8_t*>(data);
    if (count_ == kMost) {
      full_ = true;
    } else {
      ranges_[count_++] = {begin, begin + bytes};
    }
  }
  /// Whether one of them has a byte of these; when there were more than kMost, every byte may be.
  bool Touch(const void* data, int64_t bytes) const {
    if (data == nullptr || bytes <= 0) return false;
    const auto* begin = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < count_; ++i) {
      if (begin < ranges_[i].end && ranges_[i].begin < begin + bytes) return true;
    }
    return full_;
  }
  void Clear() {
    count_ = 0;
    full_ = false;
  }

  static constexpr size_t kMost = 24;

 private:
  struct Range {
    const uint8_t* begin;
    const uint8_t* end;
  };
  std::array<Range, kMost> ranges_{};
  size_t count_ = 0;
  bool full_ = false;
};

}  // namespace deepinfer::cuda

#endif  // DEEPINFER_OPS_CUDA_MEMORY_RANGES_H_
