#include "app/interrupt.h"

namespace deepinfer {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler sets it

void OnInterrupt(int signal_number) {
  if (!interrupted.exchange(true)) return;
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

}  // namespace

Interrupt::Interrupt() {
  interrupted = false;
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;  // no SA_RESTART: a read of the terminal returns
  sigaction(SIGINT, &action, &previous_);
}

Interrupt::~Interrupt() { sigaction(SIGINT, &previous_, nullptr); }

std::atomic<bool>& Interrupt::flag() { return interrupted; }

}  // namespace deepinfer
