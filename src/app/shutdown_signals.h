// ShutdownSignals: SIGTERM and SIGINT as something to wait for.
//
// Made before any other thread, so that all threads inherit the blocked signals and only Wait receives them.
// Thread-safety: the main thread only, one at a time.
#ifndef DEEPINFER_APP_SHUTDOWN_SIGNALS_H_
#define DEEPINFER_APP_SHUTDOWN_SIGNALS_H_

#include <chrono>
#include <csignal>

namespace deepinfer {

class ShutdownSignals {
 public:
  ShutdownSignals();
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  /// Waits for one of them.
  void Wait();
  /// The same, but so long at most: whether one came.
  bool WaitFor(std::chrono::milliseconds longest);

 private:
  sigset_t signals_;
  sigset_t previous_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_SHUTDOWN_SIGNALS_H_
