// Errors in the form of each protocol, and what becomes of a Status.
#include "api/api_error.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace deepinfer {
namespace {

TEST(ApiError, OpenAiForm) {
  const ApiError error = ApiError::InvalidRequest("n: expected an \"integer\"\xff", "n");
  EXPECT_EQ(error.http_status, 400);
  for (const Protocol protocol : {Protocol::kChat, Protocol::kCompletions, Protocol::kResponses}) {
    EXPECT_EQ(ErrorBody(protocol, error),
              R"({"error":{"message":"n: expected an \"integer\")"
              "\xEF\xBF\xBD"
              R"(","type":"invalid_request_error","param":"n","code":"invalid_request_error"}})");
  }
  EXPECT_EQ(ErrorBody(Protocol::kChat, ApiError::Internal("oops")),
            R"({"error":{"message":"oops","type":"internal_error","param":null,"code":"internal_error"}})");
}

TEST(ApiError, AnthropicFormNamesTheStatus) {
  const std::pair<ApiError, std::string> cases[] = {
      {ApiError::InvalidRequest("m"), "invalid_request_error"},
      {ApiError::Authentication("m"), "authentication_error"},
      {ApiError::NotFound("m"), "not_found_error"},
      {ApiError::MethodNotAllowed("m"), "invalid_request_error"},
      {ApiError::TooLarge("m"), "request_too_large"},
      {ApiError::RateLimit("m", 3), "rate_limit_error"},
      {ApiError::Overloaded("m", 3), "overloaded_error"},
      {ApiError::Internal("m"), "api_error"},
  };
  for (const auto& [error, type] : cases) {
    EXPECT_EQ(ErrorBody(Protocol::kMessages, error),
              R"({"type":"error","error":{"type":")" + type + R"(","message":"m"}})");
  }
  ApiError forbidden = ApiError::Internal("m");
  forbidden.http_status = 403;
  EXPECT_NE(ErrorBody(Protocol::kMessages, forbidden).find("permission_error"), std::string::npos);
}

TEST(ApiError, StatusAndRetry) {
  EXPECT_EQ(ApiError::Authentication("m").http_status, 401);
  EXPECT_EQ(ApiError::NotFound("m").http_status, 404);
  EXPECT_EQ(ApiError::MethodNotAllowed("m").http_status, 405);
  EXPECT_EQ(ApiError::TooLarge("m").http_status, 413);
  EXPECT_EQ(ApiError::RateLimit("m", 3).http_status, 429);
  EXPECT_EQ(ApiError::RateLimit("m", 3).retry_after_seconds, 3);
  EXPECT_EQ(ApiError::Overloaded("m", 4).http_status, 503);
  EXPECT_EQ(ApiError::Overloaded("m", 4).retry_after_seconds, 4);
}

TEST(ApiError, OfStatus) {
  const struct {
    Status status;
    int http_status;
    std::string param;
  } cases[] = {
      {Status::InvalidArgument("messages[2].content[0].type: expected text"), 400, "messages[2].content[0].type"},
      {Status::InvalidArgument("request body: not valid JSON: line 1"), 400, ""},
      {Status::InvalidArgument("no path here"), 400, ""},
      {Status::InvalidArgument(": no path"), 400, ""},
      {Status::Unsupported("guided_json: not available"), 400, "guided_json"},
      {Status::ResourceExhausted("prompt: 9 tokens do not fit 8"), 400, "prompt"},
      {Status::NotFound("previous_response_id: no response r"), 404, "previous_response_id"},
      {Status::Internal("x: y"), 500, ""},
      {Status::Io("disk"), 500, ""},
      {Status::Corruption("torn"), 500, ""},
  };
  for (const auto& one : cases) {
    const ApiError error = ErrorOfStatus(one.status);
    EXPECT_EQ(error.http_status, one.http_status) << one.status.message();
    EXPECT_EQ(error.param, one.param) << one.status.message();
    EXPECT_EQ(error.message, one.status.message());
  }
}

TEST(ApiError, ProtocolNames) {
  EXPECT_EQ(ProtocolName(Protocol::kChat), "chat");
  EXPECT_EQ(ProtocolName(Protocol::kCompletions), "completions");
  EXPECT_EQ(ProtocolName(Protocol::kResponses), "responses");
  EXPECT_EQ(ProtocolName(Protocol::kMessages), "messages");
}

}  // namespace
}  // namespace deepinfer
