// Interrupt: while one is alive, Ctrl-C (SIGINT) sets a flag instead of ending the program. A second Ctrl-C before the
// flag is cleared ends it at once, so a step that takes long never traps the user.
//
// The signal may reach any thread, so it need not interrupt a read of the main thread: wait with WaitForInput() first.
// Thread-safety: one at a time, made and destroyed by the main thread; the flag may be read anywhere.
#ifndef DEEPINFER_APP_INTERRUPT_H_
#define DEEPINFER_APP_INTERRUPT_H_

#include <csignal>

namespace deepinfer {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// Whether Ctrl-C was pressed since the last Clear().
  static bool flag();
  static void Clear();
  /// Waits until `descriptor` can be read, or has ended: true. False as soon as the flag is set.
  static bool WaitForInput(int descriptor);

 private:
  struct sigaction previous_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_INTERRUPT_H_
