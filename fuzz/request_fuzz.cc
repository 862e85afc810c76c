// Any bytes as the body of a request of one protocol (DEEPINFER_FUZZ_PROTOCOL): refused with one line that is the
// client's fault, or read into something that can be rendered.
#include <cstdint>
#include <cstdlib>

#include "api/api_error.h"
#include "api/chat_request.h"
#include "api/completions_request.h"
#include "api/messages_request.h"
#include "api/responses_request.h"
#include "text/json_text.h"
#include "text/prompt_renderer.h"

namespace deepinfer {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckRefusal(Protocol protocol, const Status& status) {
  Require(status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kUnsupported);
  Require(!status.message().empty() && status.message().find_first_of("\r\n") == std::string::npos);
  const ApiError error = ErrorOfStatus(status);
  Require(error.http_status == 400);
  Require(ParseJson(ErrorBody(protocol, error)).ok());
}

void CheckSettings(const RequestSettings& settings) {
  Require(settings.n >= 1 && settings.n <= SamplingParams::kMaxChoices);
  Require(settings.max_tokens.value_or(1) >= 1);
  Require(settings.stop.size() <= SamplingParams::kMaxStops);
  Require(settings.logprobs.value_or(0) >= 0 && settings.logprobs.value_or(0) <= SamplingParams::kMaxLogprobs);
  Require(settings.temperature.value_or(1) >= 0 && settings.temperature.value_or(1) <= 2);
  Require(settings.top_p.value_or(1) > 0 && settings.top_p.value_or(1) <= 1);
  Require(settings.repetition_penalty.value_or(1) > 0);
  Require(settings.max_tool_calls.value_or(1) >= 1);
}

[[maybe_unused]] void CheckConversation(const ConversationRequest& request) {
  CheckSettings(request.settings);
  Require(RenderPrompt(request.conversation).ok());
}

[[maybe_unused]] void CheckCompletions(const CompletionsRequest& request) {
  CheckSettings(request.settings);
  Require(!request.prompts.empty());
  for (const CompletionPrompt& prompt : request.prompts) {
    if (const std::string* text = std::get_if<std::string>(&prompt)) {
      Require(!RenderCompletion(*text, request.suffix).segments.empty());
    } else {
      Require(!std::get<std::vector<int32_t>>(prompt).empty());
    }
  }
}

// The items of an accepted request are those of a turn that another one can continue.
[[maybe_unused]] void CheckResponses(const ResponsesRequest& request) {
  CheckConversation(request);
  Require(ParseJson(request.repeated_fields).ok());
  const Result<JsonValue> items = ParseJson(request.items);
  Require(items.ok() && items->AsArray() != nullptr);
  const auto stored = [&](const std::string&) -> Result<std::string> { return request.items; };
  Require(ParseResponsesRequest(R"({"model":"m","input":"q","previous_response_id":"r"})", {}, stored).ok());
}

template <typename Request, typename Check>
void Run(Protocol protocol, const Result<Request>& request, Check check) {
  if (request.ok()) {
    check(request.value());
  } else {
    CheckRefusal(protocol, request.status());
  }
}

}  // namespace
}  // namespace deepinfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  constexpr Protocol kProtocol = Protocol::DEEPINFER_FUZZ_PROTOCOL;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const RequestOptions lenient{.thinking = false,
                               .reasoning_history = ReasoningHistory::kKeep,
                               .messages_web_search = WebSearchTools::kIgnore,
                               .ignore_schemas = true};
  for (const RequestOptions& options : {RequestOptions{}, lenient}) {
    if constexpr (kProtocol == Protocol::kChat) Run(kProtocol, ParseChatRequest(body, options), CheckConversation);
    if constexpr (kProtocol == Protocol::kMessages) {
      Run(kProtocol, ParseMessagesRequest(body, options), CheckConversation);
    }
    if constexpr (kProtocol == Protocol::kCompletions) {
      Run(kProtocol, ParseCompletionsRequest(body, options), CheckCompletions);
    }
    if constexpr (kProtocol == Protocol::kResponses) {
      Run(kProtocol, ParseResponsesRequest(body, options), CheckResponses);
    }
  }
  return 0;
}
