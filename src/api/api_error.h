// ApiError: what a client did wrong or the server cannot do, and its form in each protocol.
//
// Thread-safety: values and pure functions. Source: docs/http-api.md, "Errors" (spec prompt-format.md section 6).
#ifndef DEEPINFER_API_API_ERROR_H_
#define DEEPINFER_API_API_ERROR_H_

#include <string>
#include <string_view>

#include "deepinfer/status.h"

namespace deepinfer {

enum class Protocol : uint8_t { kChat, kCompletions, kResponses, kMessages };

/// chat, completions, responses, messages.
std::string_view ProtocolName(Protocol protocol);

struct ApiError {
  int http_status = 500;
  std::string type;             ///< OpenAI's: invalid_request_error, authentication_error, rate_limit_error, ...
  std::string code;             ///< OpenAI's, empty for null
  std::string param;            ///< path of the field at fault, empty for null
  std::string message;          ///< one line, names the field and the remedy
  int retry_after_seconds = 0;  ///< header Retry-After; 0: none

  static ApiError InvalidRequest(std::string message, std::string param = "");  ///< 400
  static ApiError Authentication(std::string message);                          ///< 401
  static ApiError NotFound(std::string message, std::string param = "");        ///< 404
  static ApiError MethodNotAllowed(std::string message);                        ///< 405
  static ApiError TooLarge(std::string message);                                ///< 413
  static ApiError RateLimit(std::string message, int retry_after_seconds);      ///< 429
  static ApiError Overloaded(std::string message, int retry_after_seconds);     ///< 503
  static ApiError Internal(std::string message);                                ///< 500
};

/// Of a failed parse or submission: kInvalidArgument, kUnsupported and kResourceExhausted are the client's (400), with
/// `param` taken from the "path: problem" form of FieldError; kNotFound is 404; the rest is 500.
ApiError ErrorOfStatus(const Status& status);

/// The JSON body: OpenAI's {"error": {...}} or for kMessages Anthropic's {"type": "error", "error": {...}}.
std::string ErrorBody(Protocol protocol, const ApiError& error);

}  // namespace deepinfer

#endif  // DEEPINFER_API_API_ERROR_H_
