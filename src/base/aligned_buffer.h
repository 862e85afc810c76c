// AlignedBuffer: zero-filled memory on 64-byte boundaries, for activations and packed caches.
//
// Thread-safety: as a pointer. Ownership: owns its bytes; move-only. Large buffers come from the kernel untouched, so
// memory becomes resident when it is first written.
#ifndef DEEPINFER_BASE_ALIGNED_BUFFER_H_
#define DEEPINFER_BASE_ALIGNED_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace deepinfer {

template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer() { Release(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept { Swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  /// Replaces the contents by `count` zeros. False when the kernel refuses.
  [[nodiscard]] bool Allocate(int64_t count) {
    Release();
    if (count <= 0) return true;
    void* memory = mmap(nullptr, static_cast<size_t>(count) * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    data_ = static_cast<T*>(memory);
    size_ = count;
    return true;
  }

  T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }
  T& operator[](int64_t index) const { return data_[index]; }

 private:
  void Release() {
    if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_) * sizeof(T));
    data_ = nullptr;
    size_ = 0;
  }
  void Swap(AlignedBuffer& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_ALIGNED_BUFFER_H_
