// Interrupt: while one is alive, Ctrl-C (SIGINT) sets a flag instead of ending the program. A second Ctrl-C before the
// flag is cleared ends it at once, so a step that takes long never traps the user.
//
// Thread-safety: one at a time, made and destroyed by the main thread; the flag may be read anywhere.
#ifndef DEEPINFER_APP_INTERRUPT_H_
#define DEEPINFER_APP_INTERRUPT_H_

#include <csignal>

#include <atomic>

namespace deepinfer {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// Set by Ctrl-C; the owner clears it.
  static std::atomic<bool>& flag();

 private:
  struct sigaction previous_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_INTERRUPT_H_
