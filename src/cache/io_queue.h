// IoQueue: runs one list of reads and writes at a time while its caller does something else: IoRing, IoThread.
//
// Thread-safety: one thread at a time. Ownership: descriptors and memory belong to the caller and stay until Finish or
// Drain has returned true.
#ifndef DEEPINFER_CACHE_IO_QUEUE_H_
#define DEEPINFER_CACHE_IO_QUEUE_H_

#include <cstdint>
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

/// Does the piece on this thread.
void RunPiece(IoPiece* piece);

class IoQueue {
 public:
  virtual ~IoQueue() = default;

  /// Puts the pieces under way. Once, until Finish.
  virtual void Start(std::span<IoPiece> pieces) = 0;
  /// Waits for all pieces. False: none ended for `patience_seconds`, since Start or the last that did; the kernel may
  /// still use the pieces and their memory, and the queue must not start again.
  virtual bool Finish(double patience_seconds) = 0;
  /// After a Finish that returned false. True: nothing is under way any more.
  virtual bool Drain() = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_IO_QUEUE_H_
