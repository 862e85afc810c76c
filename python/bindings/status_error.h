// Status <-> the exceptions of python/deepinfer/_errors.py.
//
// Exceptions are how Python reports failure, so they begin and end in this folder. Thread-safety: any thread; RaiseIf
// may be called without the GIL, the rest needs it.
#ifndef DEEPINFER_PYTHON_STATUS_ERROR_H_
#define DEEPINFER_PYTHON_STATUS_ERROR_H_

#include <pybind11/pybind11.h>

#include <exception>
#include <utility>

#include "deepinfer/status.h"

namespace deepinfer::python {

/// A Status on its way to Python.
class StatusError : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

inline void RaiseIf(Status status) {
  if (!status.ok()) throw StatusError(std::move(status));
}

template <typename T>
T ValueOrRaise(Result<T> result) {
  RaiseIf(result.status());
  return std::move(result).value();
}

/// The exception object for a status that is not ok; None for one that is.
pybind11::object ErrorObject(const Status& status);

/// From now on a StatusError that leaves a binding is the Python exception of its code.
void RegisterErrors();

}  // namespace deepinfer::python

#endif  // DEEPINFER_PYTHON_STATUS_ERROR_H_
