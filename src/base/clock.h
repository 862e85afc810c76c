// The program's monotonic clock. Thread-safety: any thread.
#ifndef DEEPINFER_BASE_CLOCK_H_
#define DEEPINFER_BASE_CLOCK_H_

#include <chrono>

namespace deepinfer {

/// Seconds since some fixed moment before the program started.
inline double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_CLOCK_H_
