#include "api/api_error.h"

#include <algorithm>

#include "api/json_writer.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

constexpr std::string_view kInvalidRequest = "invalid_request_error";

ApiError MakeError(int http_status, std::string_view type, std::string_view code, std::string message) {
  ApiError error;
  error.http_status = http_status;
  error.type = type;
  error.code = code;
  error.message = std::move(message);
  return error;
}

// Anthropic names errors by their HTTP status.
std::string_view AnthropicType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    default:
      return http_status < 500 ? kInvalidRequest : "api_error";
  }
}

// The path of "messages[2].content: expected ..."; empty when the message does not begin with one.
std::string ParamOf(std::string_view message) {
  const std::string_view path = message.substr(0, message.find(": "));
  const auto stands_in_path = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '[' || c == ']' || c == '$';
  };
  if (path.size() == message.size() || !std::all_of(path.begin(), path.end(), stands_in_path)) return "";
  return std::string(path);
}

}  // namespace

std::string_view ProtocolName(Protocol protocol) {
  static constexpr std::string_view kNames[] = {"chat", "completions", "responses", "messages"};
  return kNames[static_cast<size_t>(protocol)];
}

ApiError ApiError::InvalidRequest(std::string message, std::string param) {
  ApiError error = MakeError(400, kInvalidRequest, kInvalidRequest, std::move(message));
  error.param = std::move(param);
  return error;
}

ApiError ApiError::Authentication(std::string message) {
  return MakeError(401, "authentication_error", "invalid_api_key", std::move(message));
}

ApiError ApiError::NotFound(std::string message, std::string param) {
  ApiError error = MakeError(404, "not_found_error", "not_found", std::move(message));
  error.param = std::move(param);
  return error;
}

ApiError ApiError::MethodNotAllowed(std::string message) {
  return MakeError(405, kInvalidRequest, "method_not_allowed", std::move(message));
}

ApiError ApiError::TooLarge(std::string message) {
  return MakeError(413, kInvalidRequest, "request_too_large", std::move(message));
}

ApiError ApiError::RateLimit(std::string message, int retry_after_seconds) {
  ApiError error = MakeError(429, "rate_limit_error", "rate_limit_exceeded", std::move(message));
  error.retry_after_seconds = retry_after_seconds;
  return error;
}

ApiError ApiError::Overloaded(std::string message, int retry_after_seconds) {
  ApiError error = MakeError(503, "overloaded_error", "overloaded", std::move(message));
  error.retry_after_seconds = retry_after_seconds;
  return error;
}

ApiError ApiError::Internal(std::string message) {
  return MakeError(500, "internal_error", "internal_error", std::move(message));
}

ApiError ErrorOfStatus(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
    case StatusCode::kResourceExhausted:
      return ApiError::InvalidRequest(status.message(), ParamOf(status.message()));
    case StatusCode::kNotFound:
      return ApiError::NotFound(status.message(), ParamOf(status.message()));
    default:
      return ApiError::Internal(status.message());
  }
}

std::string ErrorBody(Protocol protocol, const ApiError& error) {
  std::string body;
  JsonWriter json(&body);
  if (protocol == Protocol::kMessages) {
    json.Raw(R"({"type":"error","error":{"type":)").Text(AnthropicType(error.http_status));
    json.Raw(R"(,"message":)").Text(RepairUtf8(error.message));
    // What Anthropic's SDKs look for before they send the whole conversation themselves.
    if (error.param == "thread") {
      json.Raw(R"(,"details":{"error_code":"thread_unsupported_request","unsupported":["thread"]})");
    }
    json.Raw("}}");
    return body;
  }
  json.Raw(R"({"error":{"message":)").Text(RepairUtf8(error.message)).Raw(R"(,"type":)").Text(error.type);
  json.Raw(R"(,"param":)").TextOrNull(RepairUtf8(error.param)).Raw(R"(,"code":)").TextOrNull(error.code).Raw("}}");
  return body;
}

}  // namespace deepinfer
