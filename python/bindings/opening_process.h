// OpeningProcess: the process that made an object with threads. A child that was forked later has a copy of the object
// and none of its threads: it must neither use nor destroy it.
//
// Thread-safety: all. Ownership: none.
#ifndef DEEPINFER_PYTHON_OPENING_PROCESS_H_
#define DEEPINFER_PYTHON_OPENING_PROCESS_H_

#include <unistd.h>

#include "status_error.h"

namespace deepinfer::python {

class OpeningProcess {
 public:
  bool is_this() const { return getpid() == id_; }

  /// CancelledError in a forked child.
  void Check() const {
    if (is_this()) return;
    throw StatusError(
        Status::Cancelled("this LLM was opened by another process, before a fork: start this process with 'spawn', or, "
                          "without a GPU, open one here"));
  }

 private:
  pid_t id_ = getpid();
};

}  // namespace deepinfer::python

#endif  // DEEPINFER_PYTHON_OPENING_PROCESS_H_
