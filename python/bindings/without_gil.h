// WithoutGil: the GIL is given up while such an object lives.
//
// pybind11's gil_scoped_release has a destructor that must not throw. A daemon thread that wants the GIL back while the
// interpreter leaves is ended by Python 3.11 with pthread_exit, which unwinds like an exception and there aborted the
// program. Such a thread waits here instead, until the process has ended, as Python does from 3.14 on.
//
// What such a thread holds, an engine maybe, works on until the process has ended.
//
// Thread-safety: lives and dies on one thread. Ownership: none.
#ifndef DEEPINFER_PYTHON_WITHOUT_GIL_H_
#define DEEPINFER_PYTHON_WITHOUT_GIL_H_

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

namespace deepinfer::python {

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  /// May throw: a thread that is ended otherwise, by pthread_cancel, unwinds through here.
  ~WithoutGil() noexcept(false) {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      while (true) pause();  // to leave this block without throwing on would abort
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace deepinfer::python

#endif  // DEEPINFER_PYTHON_WITHOUT_GIL_H_
