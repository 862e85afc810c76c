#include "api/chat_request.h"

#include "api/content_fields.h"
#include "api/grammar_fields.h"
#include "api/json_reader.h"
#include "api/open_calls.h"
#include "api/request_fields.h"
#include "api/sampling_fields.h"
#include "api/tool_fields.h"

namespace deepinfer {
namespace {

// {"file_data": "data:image/png;base64,..."}, in the part itself or, as OpenAI has it, under "file".
Result<ContentPart> ReadFilePart(const ObjectReader& part) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> nested, part.OptionalObject("file"));
  const ObjectReader& file = nested.has_value() ? *nested : part;
  if (file.Find("file_id") != nullptr) {
    return FieldError(file.PathOf("file_id"), "stored files are not available; send the image as file_data");
  }
  DEEPINFER_ASSIGN_OR_RETURN(std::string data, file.String("file_data"));
  if (!data.starts_with("data:")) {
    return FieldError(file.PathOf("file_data"), "expected a base64 data URL of an image, found " + Quoted(data));
  }
  return ImagePart(std::move(data), "", file.PathOf("file_data"));
}

Result<ContentPart> ReadPart(const ObjectReader& part) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::string type, part.OneOf("type", {"text", "image_url", "file"}));
  if (type == "text") {
    DEEPINFER_ASSIGN_OR_RETURN(std::string text, part.String("text"));
    return TextPart(std::move(text));
  }
  if (type == "file") return ReadFilePart(part);
  DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader image, part.Object("image_url"));
  DEEPINFER_ASSIGN_OR_RETURN(std::string url, image.String("url"));
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> detail,
                             image.OptionalOneOf("detail", {"auto", "low", "high"}));
  return ImagePart(std::move(url), detail.value_or(""), image.PathOf("url"));
}

class ChatParser {
 public:
  explicit ChatParser(const RequestOptions& options) : options_(options) {}

  Result<ConversationRequest> Parse(const ObjectReader& body) {
    RequestSettings* settings = &request_.settings;
    DEEPINFER_RETURN_IF_ERROR(ReadCommonSettings(body, settings));
    DEEPINFER_RETURN_IF_ERROR(ReadEitherMaxTokens(body, settings));
    DEEPINFER_RETURN_IF_ERROR(ReadOpenAiSettings(body, settings));
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<int> effort, ReadEffort(body, "reasoning_effort", kOpenAiEfforts));
    DEEPINFER_RETURN_IF_ERROR(ReadSamplingFields(body, settings));
    DEEPINFER_RETURN_IF_ERROR(ReadServingFields(body, settings));
    DEEPINFER_RETURN_IF_ERROR(ReadUser(body, "user_id", settings));  // DeepSeek's name
    DEEPINFER_RETURN_IF_ERROR(ReadUser(body, "user", settings));
    DEEPINFER_RETURN_IF_ERROR(ReadLogprobs(body, settings));
    DEEPINFER_ASSIGN_OR_RETURN(std::optional<bool> thinking, ReadThinking(body));
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<bool> template_thinking, ReadTemplateThinking(body));
    if (!thinking.has_value()) thinking = template_thinking;
    ApplyThinking(thinking, effort, options_, &conversation());
    DEEPINFER_ASSIGN_OR_RETURN(const bool parallel_calls, body.Bool("parallel_tool_calls", true));
    if (!parallel_calls) settings->max_tool_calls = 1;
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> format, body.OptionalObject("response_format"));
    if (format.has_value())
      DEEPINFER_RETURN_IF_ERROR(ReadResponseFormat(*format, options_, settings, &conversation().response_format));
    DEEPINFER_RETURN_IF_ERROR(ReadGuidedFields(body, options_, settings));
    DEEPINFER_RETURN_IF_ERROR(ReadTools(body));
    DEEPINFER_RETURN_IF_ERROR(ReadToolChoice(body));
    DEEPINFER_RETURN_IF_ERROR(ReadMessages(body));
    DEEPINFER_RETURN_IF_ERROR(CheckConversation(conversation(), "response_format"));
    return std::move(request_);
  }

 private:
  Conversation& conversation() { return request_.conversation; }

  // max_completion_tokens is OpenAI's newer name of the same limit; it counts when both are given.
  Status ReadEitherMaxTokens(const ObjectReader& body, RequestSettings* settings) {
    DEEPINFER_ASSIGN_OR_RETURN(settings->max_tokens, ReadMaxTokens(body, "max_tokens"));
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<int64_t> newer, ReadMaxTokens(body, "max_completion_tokens"));
    if (newer.has_value()) settings->max_tokens = newer;
    return Status::Ok();
  }

  static Status ReadLogprobs(const ObjectReader& body, RequestSettings* settings) {
    DEEPINFER_ASSIGN_OR_RETURN(const bool logprobs, body.Bool("logprobs", false));
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<int64_t> top,
                               body.OptionalInteger("top_logprobs", 0, SamplingParams::kMaxLogprobs));
    if (logprobs) {
      settings->logprobs = top.value_or(0);
    } else if (top.value_or(0) > 0) {
      return FieldError("top_logprobs", "this field needs logprobs to be true");
    }
    return Status::Ok();
  }

  Status ReadTools(const ObjectReader& body) {
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* tools, body.OptionalArray("tools"));
    if (tools == nullptr) return Status::Ok();
    for (size_t i = 0; i < tools->size(); ++i) {
      DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader tool, ObjectReader::Of((*tools)[i], ItemPath("tools", i)));
      DEEPINFER_RETURN_IF_ERROR(tool.OneOf("type", {"function"}).status());
      DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader function, tool.Object("function"));
      DEEPINFER_ASSIGN_OR_RETURN(Tool read, ReadFunction(function, "parameters"));
      conversation().tools.push_back(std::move(read));
    }
    return CheckUniqueToolNames(conversation(), "tools");
  }

  Status ReadToolChoice(const ObjectReader& body) {
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue* choice, ReadChoiceWord(body, &conversation()));
    if (choice == nullptr) return Status::Ok();
    DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader named, body.Object("tool_choice"));
    DEEPINFER_RETURN_IF_ERROR(named.OneOf("type", {"function"}).status());
    DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader function, named.Object("function"));
    DEEPINFER_ASSIGN_OR_RETURN(std::string name, function.String("name"));
    return RequireCall(std::move(name), function.PathOf("name"), &conversation());
  }

  Status ReadMessages(const ObjectReader& body) {
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* messages, body.NonEmptyArray("messages"));
    for (size_t i = 0; i < messages->size(); ++i) {
      DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader message, ObjectReader::Of((*messages)[i], ItemPath("messages", i)));
      DEEPINFER_RETURN_IF_ERROR(ReadMessage(message, i + 1 == messages->size()));
    }
    DEEPINFER_RETURN_IF_ERROR(open_calls_.CheckAnswered());
    if (conversation().messages.empty()) {
      return FieldError("messages", "expected at least one message besides empty system messages");
    }
    return Status::Ok();
  }

  Status ReadMessage(const ObjectReader& reader, bool last) {
    DEEPINFER_ASSIGN_OR_RETURN(const std::string role, reader.OneOf("role", {"system", "developer", "user", "assistant",
                                                                             "tool", "latest_reminder"}));
    if (role == "tool") return ReadToolMessage(reader);
    DEEPINFER_RETURN_IF_ERROR(open_calls_.CheckAnswered());
    if (role == "assistant") return ReadAssistant(reader, last);

    Message message;
    message.role = role == "user" ? Role::kUser : role == "latest_reminder" ? Role::kLatestReminder : Role::kSystem;
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue* content, reader.Require("content"));
    if (message.role == Role::kLatestReminder && content->AsString() == nullptr) {
      return ExpectedError(reader.PathOf("content"), "a string", *content);
    }
    DEEPINFER_RETURN_IF_ERROR(
        ReadContent(*content, reader.PathOf("content"), message.role == Role::kUser, ReadPart, &message));
    // DeepSeek's reference drops an empty system message before rendering.
    if (message.role == Role::kSystem && TextOf(message).empty()) return Status::Ok();
    conversation().messages.push_back(std::move(message));
    return Status::Ok();
  }

  Status ReadAssistant(const ObjectReader& reader, bool last) {
    Message message;
    message.role = Role::kAssistant;
    const JsonValue* content = reader.Find("content");
    if (content != nullptr) {
      DEEPINFER_RETURN_IF_ERROR(ReadContent(*content, reader.PathOf("content"), false, ReadPart, &message));
    }
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> reasoning, reader.OptionalString("reasoning_content"));
    message.reasoning = reasoning.value_or("");
    if (reader.Find("tool_calls") != nullptr) {
      DEEPINFER_RETURN_IF_ERROR(ReadToolCalls(reader, &message));
      if (options_.require_reasoning_with_calls && conversation().thinking && !reasoning.has_value()) {
        return FieldError(reader.PathOf("reasoning_content"),
                          "an assistant message with tool_calls must come back with its reasoning while thinking");
      }
    } else if (content == nullptr) {
      return FieldError(reader.PathOf("content"), "an assistant message needs content or tool_calls");
    }
    DEEPINFER_ASSIGN_OR_RETURN(message.prefix, reader.Bool("prefix", false));
    if (message.prefix && !last) {
      return FieldError(reader.PathOf("prefix"), "only the last message can be a prefix");
    }
    conversation().messages.push_back(std::move(message));
    return Status::Ok();
  }

  Status ReadToolCalls(const ObjectReader& reader, Message* message) {
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* calls, reader.NonEmptyArray("tool_calls"));
    for (size_t i = 0; i < calls->size(); ++i) {
      DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader call,
                                 ObjectReader::Of((*calls)[i], ItemPath(reader.PathOf("tool_calls"), i)));
      DEEPINFER_RETURN_IF_ERROR(call.OptionalOneOf("type", {"function"}).status());
      DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader function, call.Object("function"));
      ToolCall read;
      DEEPINFER_ASSIGN_OR_RETURN(read.id, call.String("id"));
      DEEPINFER_ASSIGN_OR_RETURN(read.name, function.String("name"));
      DEEPINFER_ASSIGN_OR_RETURN(read.arguments, function.String("arguments"));
      DEEPINFER_RETURN_IF_ERROR(open_calls_.Add(read.id, call, "id"));
      message->tool_calls.push_back(std::move(read));
    }
    return Status::Ok();
  }

  Status ReadToolMessage(const ObjectReader& reader) {
    Message message;
    message.role = Role::kTool;
    DEEPINFER_ASSIGN_OR_RETURN(message.tool_call_id, reader.String("tool_call_id"));
    DEEPINFER_RETURN_IF_ERROR(open_calls_.Answer(message.tool_call_id, reader, "tool_call_id"));
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue* content, reader.Require("content"));
    DEEPINFER_RETURN_IF_ERROR(ReadContent(*content, reader.PathOf("content"), true, ReadPart, &message));
    conversation().messages.push_back(std::move(message));
    return Status::Ok();
  }

  const RequestOptions& options_;
  ConversationRequest request_;
  OpenCalls open_calls_;  // of the last assistant message
};

}  // namespace

Result<ConversationRequest> ParseChatRequest(std::string_view body, const RequestOptions& options) {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue value, ParseBody(body));
  DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader reader, ObjectReader::Of(value, ""));
  return ChatParser(options).Parse(reader);
}

}  // namespace deepinfer
