// DeviceMemory: zero-filled memory that a device computes on: host memory for the CPU, its own memory for a GPU.
//
// Only Ops of that device read and write memory of Ops::Allocate(); data() may be used for address arithmetic anywhere.
// Thread-safety: as a pointer. Ownership: owns its bytes; move-only; must not outlive the device's Ops. A device may
// run ops later than they are called: Ops::Finish() goes before the memory they use goes.
#ifndef DEEPINFER_BASE_DEVICE_MEMORY_H_
#define DEEPINFER_BASE_DEVICE_MEMORY_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "base/aligned_buffer.h"
#include "deepinfer/status.h"

namespace deepinfer {

class DeviceMemory {
 public:
  using Free = void (*)(uint8_t* data);

  DeviceMemory() = default;
  /// Takes memory that `free` gives back.
  DeviceMemory(uint8_t* data, int64_t bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}
  ~DeviceMemory() { Release(); }
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    if (this == &other) return *this;
    Release();
    host_ = std::move(other.host_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    free_ = std::exchange(other.free_, nullptr);
    return *this;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// Memory of the host, resident page by page as it is written. kResourceExhausted: the system refuses.
  static Result<DeviceMemory> OnHost(int64_t bytes) {
    DeviceMemory memory;
    if (!memory.host_.Allocate(bytes)) return Status::ResourceExhausted("no memory: the system refuses");
    memory.data_ = memory.host_.data();
    memory.bytes_ = memory.host_.bytes();
    return memory;
  }

  /// On a 64-byte boundary.
  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void Release() {
    if (free_ != nullptr) free_(data_);
  }

  AlignedBuffer<uint8_t> host_;
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
  Free free_ = nullptr;
};

/// Bytes on their way between memory of the host and memory of a device.
struct MemoryPiece {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t bytes = 0;
};

/// Ops::Allocate of some device.
using DeviceAllocator = std::function<Result<DeviceMemory>(int64_t bytes)>;

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_DEVICE_MEMORY_H_
