// IoRing: an io_uring that runs lists of reads and writes, several at a time.
//
// Thread-safety: one thread at a time. Ownership: owns the ring; descriptors and memory belong to the caller and stay
// until Run has returned true.
#ifndef DEEPINFER_CACHE_IO_RING_H_
#define DEEPINFER_CACHE_IO_RING_H_

#include <liburing.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace deepinfer {

/// One read or write of a few MiB at most.
struct IoPiece {
  bool write = false;
  int descriptor = -1;
  int64_t offset = 0;
  uint8_t* data = nullptr;
  int64_t bytes = 0;
  int64_t done = 0;  ///< out: bytes
  int error = 0;     ///< out: errno
};

/// Counts `result` (bytes, or minus errno) of a system call for what was left of the piece. True: the piece has ended.
bool EndsPiece(IoPiece* piece, int64_t result);

class IoRing {
 public:
  static constexpr unsigned kDepth = 16;  ///< operations in flight

  /// Nothing when the kernel, or a filter of system calls, refuses.
  static std::unique_ptr<IoRing> Create();
  ~IoRing();
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;

  /// Runs all pieces; calls `meanwhile`, if there is one, as soon as the first are under way. False: none ended for
  /// `patience_seconds`; the kernel may still use the pieces and their memory, and the ring must not run again.
  bool Run(std::span<IoPiece> pieces, const std::function<void()>& meanwhile, double patience_seconds);

  /// Takes what ended since a Run that returned false. True: nothing is under way any more.
  bool Drain();

 private:
  IoRing() = default;

  bool Push(IoPiece* piece);
  void Count(io_uring_cqe* entry);

  io_uring ring_ = {};
  std::span<IoPiece> pieces_;
  size_t next_ = 0;  // of pieces_, not yet given to the kernel
  unsigned in_flight_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_IO_RING_H_
