#include "prompt_vectors.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "api/chat_request.h"
#include "api/completions_request.h"
#include "api/messages_request.h"
#include "api/responses_request.h"
#include "text/prompt_renderer.h"

namespace deepinfer::testing {

std::ostream& operator<<(std::ostream& out, const PromptVector& vector) { return out << vector.name; }

const std::vector<PromptVector>& PromptVectors() {
  static const std::vector<PromptVector> vectors = [] {
    std::vector<PromptVector> read;
    std::ifstream file(std::string(DEEPINFER_SOURCE_DIR) + "/tests/data/api/prompt_vectors.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::ordered_json::parse(line);
      read.push_back({json["name"], json["protocol"], json["request"].dump(), json["expected_prompt"],
                      json.value("expected_prompt_keep_reasoning", "")});
    }
    return read;
  }();
  return vectors;
}

Result<Prompt> PromptOf(std::string_view protocol, std::string_view body, const RequestOptions& options) {
  if (protocol == "completions") {
    DEEPINFER_ASSIGN_OR_RETURN(const CompletionsRequest request, ParseCompletionsRequest(body, options));
    const std::string* text = std::get_if<std::string>(&request.prompts.front());
    return RenderCompletion(text != nullptr ? *text : "", request.suffix);
  }
  Result<ConversationRequest> request = Status::Internal("unknown protocol");
  if (protocol == "chat_completions") request = ParseChatRequest(body, options);
  if (protocol == "messages") request = ParseMessagesRequest(body, options);
  if (protocol == "responses") {
    Result<ResponsesRequest> responses = ParseResponsesRequest(body, options);
    request = responses.ok() ? Result<ConversationRequest>(std::move(responses.value())) : responses.status();
  }
  if (!request.ok()) return request.status();
  Result<Prompt> prompt = RenderPrompt(request->conversation);
  // What a parser accepts, the renderer can render.
  EXPECT_TRUE(prompt.ok()) << prompt.status().message() << "\n" << body;
  return prompt;
}

bool IsRefusal(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kUnsupported;
}

std::string ErrorOf(std::string_view protocol, std::string_view body, const RequestOptions& options) {
  const Result<Prompt> prompt = PromptOf(protocol, body, options);
  if (prompt.ok()) {
    ADD_FAILURE() << "accepted: " << body.substr(0, 400);
    return "";
  }
  EXPECT_TRUE(IsRefusal(prompt.status()));
  EXPECT_EQ(prompt.status().message().find('\n'), std::string::npos) << prompt.status().message();
  return prompt.status().message();
}

std::string TextOf(std::string_view protocol, std::string_view body, const RequestOptions& options) {
  const Result<Prompt> prompt = PromptOf(protocol, body, options);
  if (!prompt.ok()) {
    ADD_FAILURE() << prompt.status().message() << "\n" << body;
    return "";
  }
  return prompt->Text();
}

}  // namespace deepinfer::testing
