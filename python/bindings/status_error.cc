#include "status_error.h"

namespace py = pybind11;

namespace deepinfer::python {
namespace {

const char* ClassName(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
      return "InvalidArgumentError";
    case StatusCode::kNotFound:
      return "NotFoundError";
    case StatusCode::kCorruption:
      return "CorruptionError";
    case StatusCode::kUnsupported:
      return "UnsupportedError";
    case StatusCode::kResourceExhausted:
      return "ResourceExhaustedError";
    case StatusCode::kIo:
      return "IoError";
    case StatusCode::kCancelled:
      return "CancelledError";
    case StatusCode::kOk:
    case StatusCode::kInternal:
      break;
  }
  return "InternalError";
}

}  // namespace

py::object ErrorObject(const Status& status) {
  if (status.ok()) return py::none();
  // A message may quote bytes that are no UTF-8, such as the name of a file.
  const py::object text = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
      status.message().data(), static_cast<Py_ssize_t>(status.message().size()), "backslashreplace"));
  return py::module_::import("deepinfer._errors").attr(ClassName(status.code()))(text);
}

void RegisterErrors() {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const StatusError& error) {
      const py::object object = ErrorObject(error.status());
      PyErr_SetObject(py::type::handle_of(object).ptr(), object.ptr());
    }
  });
}

}  // namespace deepinfer::python
