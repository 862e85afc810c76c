#include "app/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <iterator>

namespace deepinfer {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler sets it

/// One for the whole program: a handler that still runs never finds it closed.
const int wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

void Drain() {
  uint64_t count = 0;
  (void)!read(wake, &count, sizeof count);
}

void OnInterrupt(int signal_number) {
  if (!interrupted.exchange(true)) {
    const int error = errno;
    const uint64_t one = 1;
    (void)!write(wake, &one, sizeof one);
    errno = error;
    return;
  }
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

}  // namespace

Interrupt::Interrupt() {
  Clear();
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;  // no SA_RESTART: a read of the terminal returns
  sigaction(SIGINT, &action, &previous_);
}

Interrupt::~Interrupt() { sigaction(SIGINT, &previous_, nullptr); }

bool Interrupt::flag() { return interrupted; }

void Interrupt::Clear() {
  interrupted = false;
  Drain();
}

bool Interrupt::WaitForInput(int descriptor) {
  while (!interrupted) {
    pollfd waits[] = {{descriptor, POLLIN, 0}, {wake, POLLIN, 0}};
    if (poll(waits, std::size(waits), -1) < 0 && errno != EINTR) return true;  // the read will tell
    if (interrupted) return false;
    if (waits[0].revents != 0) return true;
    Drain();  // a handler that was overtaken by Clear()
  }
  return false;
}

}  // namespace deepinfer
