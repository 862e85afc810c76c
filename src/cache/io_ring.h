// IoRing: an IoQueue that runs several pieces at a time, with io_uring.
//
// Ownership: owns the ring.
#ifndef DEEPINFER_CACHE_IO_RING_H_
#define DEEPINFER_CACHE_IO_RING_H_

#include <liburing.h>

#include <memory>
#include <span>

#include "cache/io_queue.h"

namespace deepinfer {

class IoRing : public IoQueue {
 public:
  static constexpr unsigned kDepth = 16;  ///< operations in flight

  /// Nothing when the kernel, or a filter of system calls, refuses.
  static std::unique_ptr<IoRing> Create();
  ~IoRing() override;
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;

  void Start(std::span<IoPiece> pieces) override;
  bool Finish(double patience_seconds) override;
  bool Drain() override;

 private:
  IoRing() = default;

  void Submit();
  bool Push(IoPiece* piece);
  void Count(io_uring_cqe* entry);

  io_uring ring_ = {};
  std::span<IoPiece> pieces_;
  size_t next_ = 0;  // of pieces_, not yet given to the kernel
  unsigned in_flight_ = 0;
  double last_ = 0;  // when a piece ended, or the first ones began
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_IO_RING_H_
