#include "app/shutdown_signals.h"

#include <cerrno>
#include <ctime>

namespace deepinfer {

ShutdownSignals::ShutdownSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, &previous_);
}

ShutdownSignals::~ShutdownSignals() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

void ShutdownSignals::Wait() {
  while (sigwaitinfo(&signals_, nullptr) < 0 && errno == EINTR) {
  }
}

bool ShutdownSignals::WaitFor(std::chrono::milliseconds longest) {
  const timespec wait{.tv_sec = longest.count() / 1000, .tv_nsec = longest.count() % 1000 * 1'000'000};
  return sigtimedwait(&signals_, nullptr, &wait) > 0;
}

}  // namespace deepinfer
