// IoThread: an IoQueue that runs pieces one after the other with pread and pwrite, on a thread of its own. For writes:
// a ring leaves the end of a write into new blocks to a worker of the kernel, which waits for a processor behind
// whatever keeps all of them busy; this thread has the priority of the one that made it, whoever uses it later.
#ifndef DEEPINFER_CACHE_IO_THREAD_H_
#define DEEPINFER_CACHE_IO_THREAD_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "cache/io_queue.h"

namespace deepinfer {

class IoThread : public IoQueue {
 public:
  /// Nothing when the system has no thread.
  static std::unique_ptr<IoThread> Create();
  /// Waits for the piece under way.
  ~IoThread() override;
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  void Start(std::span<IoPiece> pieces) override;
  bool Finish(double patience_seconds) override;
  bool Drain() override;

 private:
  IoThread() = default;
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::span<IoPiece> pieces_;
  size_t ended_ = 0;  // of pieces_
  double last_ = 0;   // when a piece ended, or the first one began
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_CACHE_IO_THREAD_H_
