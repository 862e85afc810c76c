// Status and Result<T>: how every module reports failure. Exceptions do not cross module boundaries.
//
// Thread-safety: values; share them like a std::string. Ownership: a Status owns its message.
#ifndef DEEPINFER_STATUS_H_
#define DEEPINFER_STATUS_H_

#include <cassert>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace deepinfer {

/// What kind of thing went wrong; callers branch on this, people read the message.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument,    ///< the user's input or flag is wrong; the message names it and the remedy
  kNotFound,           ///< a file, model or name that does not exist
  kCorruption,         ///< data that contradicts itself: a damaged checkpoint, a bad checksum
  kUnsupported,        ///< well formed, but not something this build can do
  kResourceExhausted,  ///< does not fit the plan; the message carries both numbers
  kIo,                 ///< the operating system refused; the message carries its reason
  kCancelled,          ///< stopped by the caller
  kInternal,           ///< a bug of ours
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }
  static Status InvalidArgument(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
  static Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
  static Status Corruption(std::string m) { return {StatusCode::kCorruption, std::move(m)}; }
  static Status Unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
  static Status ResourceExhausted(std::string m) { return {StatusCode::kResourceExhausted, std::move(m)}; }
  static Status Io(std::string m) { return {StatusCode::kIo, std::move(m)}; }
  static Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
  static Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

/// A value or the reason there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}                                        // NOLINT: implicit on purpose
  Result(Status status) : state_(std::move(status)) { assert(!this->status().ok()); }  // NOLINT: implicit on purpose

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status::Ok() : std::get<Status>(state_); }

  /// The value; only when ok().
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace deepinfer

#define DEEPINFER_CONCAT_INNER(a, b) a##b
#define DEEPINFER_CONCAT(a, b) DEEPINFER_CONCAT_INNER(a, b)

/// Returns from the enclosing function when `expression` is not ok.
#define DEEPINFER_RETURN_IF_ERROR(expression)              \
  do {                                                     \
    ::deepinfer::Status deepinfer_status_ = (expression);  \
    if (!deepinfer_status_.ok()) return deepinfer_status_; \
  } while (false)

/// `DEEPINFER_ASSIGN_OR_RETURN(auto x, MakeX());` binds the value or returns the error.
#define DEEPINFER_ASSIGN_OR_RETURN(declaration, expression) \
  DEEPINFER_ASSIGN_OR_RETURN_INNER(DEEPINFER_CONCAT(deepinfer_result_, __LINE__), declaration, expression)
#define DEEPINFER_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                             \
  if (!result.ok()) return result.status();                               \
  declaration = std::move(result).value()

#endif  // DEEPINFER_STATUS_H_
