#include "api/messages_request.h"

#include <limits>

#include "api/content_fields.h"
#include "api/grammar_fields.h"
#include "api/json_reader.h"
#include "api/open_calls.h"
#include "api/request_fields.h"
#include "api/sampling_fields.h"
#include "api/tool_fields.h"

namespace deepinfer {
namespace {

// {"type": "base64", media_type, data} or {"type": "url", url}
Result<ContentPart> ReadImage(const ObjectReader& block) {
  DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader source, block.Object("source"));
  DEEPINFER_ASSIGN_OR_RETURN(const std::string type, source.OneOf("type", {"base64", "url", "file"}));
  if (type == "file") {
    return FieldError(source.PathOf("type"), "stored files are not available; send the image as base64 or url");
  }
  if (type == "url") {
    DEEPINFER_ASSIGN_OR_RETURN(std::string url, source.String("url"));
    return ImagePart(std::move(url), "", source.PathOf("url"));
  }
  DEEPINFER_ASSIGN_OR_RETURN(const std::string media_type, source.String("media_type"));
  DEEPINFER_RETURN_IF_ERROR(CheckImageType(media_type, source.PathOf("media_type")));
  DEEPINFER_ASSIGN_OR_RETURN(const std::string data, source.String("data"));
  return ImagePart("data:" + media_type + ";base64," + data, "", source.PathOf("data"));
}

// The blocks that stand for text or an image wherever they occur; nullopt for any other type.
Result<std::optional<ContentPart>> ReadTextOrImage(const ObjectReader& block, std::string_view type) {
  if (type == "text") {
    DEEPINFER_ASSIGN_OR_RETURN(std::string text, block.String("text"));
    return std::optional<ContentPart>(TextPart(std::move(text)));
  }
  if (type == "image") {
    DEEPINFER_ASSIGN_OR_RETURN(ContentPart image, ReadImage(block));
    return std::optional<ContentPart>(std::move(image));
  }
  if (type == "document") return std::optional<ContentPart>(TextPart(std::string(kUnsupportedDocument)));
  if (type == "tool_reference") {
    DEEPINFER_ASSIGN_OR_RETURN(std::string name, block.String("tool_name"));
    return std::optional<ContentPart>(TextPart(std::move(name)));
  }
  return std::optional<ContentPart>();
}

// A block of the system prompt, of a system message or of a tool result.
Result<ContentPart> ReadTextBlock(const ObjectReader& block) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::string type, block.String("type"));
  DEEPINFER_ASSIGN_OR_RETURN(std::optional<ContentPart> part, ReadTextOrImage(block, type));
  if (part.has_value()) return std::move(*part);
  return FieldError(block.PathOf("type"),
                    "expected " + Choices({"text", "image", "document", "tool_reference"}) + ", found " + Quoted(type));
}

class MessagesParser {
 public:
  explicit MessagesParser(const RequestOptions& options) : options_(options) {}

  Result<ConversationRequest> Parse(const ObjectReader& body) {
    RequestSettings* settings = &request_.settings;
    DEEPINFER_RETURN_IF_ERROR(ReadCommonSettings(body, settings));
    DEEPINFER_ASSIGN_OR_RETURN(settings->max_tokens, ReadMaxTokens(body, "max_tokens"));
    DEEPINFER_ASSIGN_OR_RETURN(settings->top_k, body.OptionalInteger("top_k", 0, std::numeric_limits<int32_t>::max()));
    DEEPINFER_RETURN_IF_ERROR(ReadStopSequences(body, settings));
    DEEPINFER_RETURN_IF_ERROR(ReadServingFields(body, settings));
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> metadata, body.OptionalObject("metadata"));
    if (metadata.has_value()) DEEPINFER_RETURN_IF_ERROR(ReadUser(*metadata, "user_id", settings));
    if (body.Find("thread") != nullptr) {
      // Ignored, the request would run without the messages that its client believes to be kept here.
      return Status::Unsupported("thread: conversations are not kept; leave it out and send all messages");
    }
    // The name of the beta; output_config.format is the same.
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> format, body.OptionalObject("output_format"));
    if (format.has_value()) DEEPINFER_RETURN_IF_ERROR(ReadFormat(*format));
    DEEPINFER_RETURN_IF_ERROR(ReadGuidedFields(body, options_, &request_.settings));
    DEEPINFER_RETURN_IF_ERROR(ReadThinkingAndEffort(body));
    DEEPINFER_RETURN_IF_ERROR(ReadTools(body));
    DEEPINFER_RETURN_IF_ERROR(ReadToolChoice(body));
    DEEPINFER_RETURN_IF_ERROR(ReadSystem(body));
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* messages, body.NonEmptyArray("messages"));
    for (size_t i = 0; i < messages->size(); ++i) {
      DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader message, ObjectReader::Of((*messages)[i], ItemPath("messages", i)));
      DEEPINFER_RETURN_IF_ERROR(ReadMessage(message));
    }
    DEEPINFER_RETURN_IF_ERROR(open_calls_.CheckAnswered());
    DEEPINFER_RETURN_IF_ERROR(CheckConversation(conversation(), "response_format"));
    return std::move(request_);
  }

 private:
  Conversation& conversation() { return request_.conversation; }

  Status ReadStopSequences(const ObjectReader& body, RequestSettings* settings) {
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* sequences, body.OptionalArray("stop_sequences"));
    if (sequences == nullptr) return Status::Ok();
    if (sequences->size() > kMaxStopSequences) {
      return FieldError("stop_sequences", "expected at most " + std::to_string(kMaxStopSequences) +
                                              " stop sequences, found " + std::to_string(sequences->size()));
    }
    for (size_t i = 0; i < sequences->size(); ++i) {
      const std::string* sequence = (*sequences)[i].AsString();
      if (sequence == nullptr || sequence->empty()) {
        return ExpectedError(ItemPath("stop_sequences", i), "a string that is not empty", (*sequences)[i]);
      }
      settings->stop.push_back(*sequence);
    }
    return Status::Ok();
  }

  Status ReadFormat(const ObjectReader& format) {
    return ReadResponseFormat(format, options_, &request_.settings, &conversation().response_format);
  }

  Status ReadThinkingAndEffort(const ObjectReader& body) {
    static constexpr std::string_view kEfforts[] = {"low", "medium", "high", "xhigh", "ultra", "max"};
    std::optional<int> effort;
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> output, body.OptionalObject("output_config"));
    if (output.has_value()) {
      DEEPINFER_ASSIGN_OR_RETURN(effort, ReadEffort(*output, "effort", kEfforts));
      DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> format, output->OptionalObject("format"));
      if (format.has_value()) DEEPINFER_RETURN_IF_ERROR(ReadFormat(*format));
    }
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<bool> thinking, ReadThinking(body));
    ApplyThinking(thinking, effort, options_, &conversation());
    return Status::Ok();
  }

  Status ReadTools(const ObjectReader& body) {
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* tools, body.OptionalArray("tools"));
    if (tools == nullptr) return Status::Ok();
    for (size_t i = 0; i < tools->size(); ++i) {
      DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader tool, ObjectReader::Of((*tools)[i], ItemPath("tools", i)));
      DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> type, tool.OptionalString("type"));
      // Anthropic's own name for a client tool is "custom"; every other type is a tool that the server runs.
      if (type.has_value() && *type != "custom") {
        if (type->starts_with("web_search") && options_.messages_web_search == WebSearchTools::kIgnore) continue;
        return FieldError(tool.PathOf("type"), "server tools are not available, found " + Quoted(*type));
      }
      DEEPINFER_RETURN_IF_ERROR(tool.Object("input_schema").status());
      DEEPINFER_ASSIGN_OR_RETURN(Tool read, ReadFunction(tool, "input_schema"));
      conversation().tools.push_back(std::move(read));
    }
    return CheckUniqueToolNames(conversation(), "tools");
  }

  Status ReadToolChoice(const ObjectReader& body) {
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> choice, body.OptionalObject("tool_choice"));
    if (!choice.has_value()) return Status::Ok();
    DEEPINFER_ASSIGN_OR_RETURN(const std::string type, choice->OneOf("type", {"auto", "any", "tool", "none"}));
    DEEPINFER_ASSIGN_OR_RETURN(const bool one_call, choice->Bool("disable_parallel_tool_use", false));
    if (one_call) request_.settings.max_tool_calls = 1;
    if (type == "none") conversation().tool_choice = ToolChoice::kNone;
    if (type != "tool") return Status::Ok();  // the hosted service takes any as auto
    DEEPINFER_ASSIGN_OR_RETURN(std::string name, choice->String("name"));
    return RequireCall(std::move(name), choice->PathOf("name"), &conversation());
  }

  Status ReadSystem(const ObjectReader& body) {
    const JsonValue* system = body.Find("system");
    if (system == nullptr) return Status::Ok();
    Message message;
    message.role = Role::kSystem;
    DEEPINFER_RETURN_IF_ERROR(ReadContent(*system, "system", false, ReadTextBlock, &message));
    if (!TextOf(message).empty()) conversation().messages.push_back(std::move(message));
    return Status::Ok();
  }

  Status ReadMessage(const ObjectReader& reader) {
    DEEPINFER_ASSIGN_OR_RETURN(const std::string role, reader.OneOf("role", {"user", "assistant", "system"}));
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue* content, reader.Require("content"));
    if (role != "user") DEEPINFER_RETURN_IF_ERROR(open_calls_.CheckAnswered());
    if (role == "system") return ReadReminder(*content, reader.PathOf("content"));
    if (content->AsArray() == nullptr && content->AsString() == nullptr) {
      return ExpectedError(reader.PathOf("content"), "a string or an array of blocks", *content);
    }
    if (content->AsArray() != nullptr) DEEPINFER_RETURN_IF_ERROR(reader.NonEmptyArray("content").status());
    return role == "user" ? ReadUserMessage(*content, reader.PathOf("content"))
                          : ReadAssistant(*content, reader.PathOf("content"));
  }

  void AppendUser(ContentPart part) {
    Message message;
    message.role = Role::kUser;
    message.content.push_back(std::move(part));
    conversation().messages.push_back(std::move(message));
  }

  // A system message between turns reaches the model as a reminder of the user.
  Status ReadReminder(const JsonValue& content, const std::string& path) {
    Message message;
    DEEPINFER_RETURN_IF_ERROR(ReadContent(content, path, false, ReadTextBlock, &message));
    AppendUser(TextPart("<system-reminder>\n" + TextOf(message) + "\n</system-reminder>"));
    return Status::Ok();
  }

  Status ReadUserMessage(const JsonValue& content, const std::string& path) {
    if (const std::string* text = content.AsString()) {
      DEEPINFER_RETURN_IF_ERROR(open_calls_.CheckAnswered());
      AppendUser(TextPart(*text));
      return Status::Ok();
    }
    for (size_t i = 0; i < content.AsArray()->size(); ++i) {
      DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader block,
                                 ObjectReader::Of((*content.AsArray())[i], ItemPath(path, i)));
      DEEPINFER_ASSIGN_OR_RETURN(const std::string type, block.String("type"));
      if (type == "tool_result") {
        DEEPINFER_RETURN_IF_ERROR(ReadToolResult(block));
        continue;
      }
      DEEPINFER_ASSIGN_OR_RETURN(std::optional<ContentPart> part, ReadTextOrImage(block, type));
      if (part.has_value()) {
        DEEPINFER_RETURN_IF_ERROR(open_calls_.CheckAnswered());
        AppendUser(std::move(*part));
      } else {
        DEEPINFER_RETURN_IF_ERROR(CheckDroppable(block, type, "a user"));
      }
    }
    return open_calls_.CheckAnswered();
  }

  Status ReadToolResult(const ObjectReader& block) {
    Message message;
    message.role = Role::kTool;
    DEEPINFER_ASSIGN_OR_RETURN(message.tool_call_id, block.String("tool_use_id"));
    DEEPINFER_RETURN_IF_ERROR(open_calls_.Answer(message.tool_call_id, block, "tool_use_id"));
    if (const JsonValue* content = block.Find("content")) {
      DEEPINFER_RETURN_IF_ERROR(ReadContent(*content, block.PathOf("content"), true, ReadTextBlock, &message));
    }
    conversation().messages.push_back(std::move(message));
    return Status::Ok();
  }

  Status ReadAssistant(const JsonValue& content, const std::string& path) {
    Message message;
    message.role = Role::kAssistant;
    if (const std::string* text = content.AsString()) {
      message.content.push_back(TextPart(*text));
    } else {
      size_t thoughts = 0;
      for (size_t i = 0; i < content.AsArray()->size(); ++i) {
        DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader block,
                                   ObjectReader::Of((*content.AsArray())[i], ItemPath(path, i)));
        DEEPINFER_RETURN_IF_ERROR(ReadAssistantBlock(block, &thoughts, &message));
      }
    }
    conversation().messages.push_back(std::move(message));
    return Status::Ok();
  }

  Status ReadAssistantBlock(const ObjectReader& block, size_t* thoughts, Message* message) {
    DEEPINFER_ASSIGN_OR_RETURN(const std::string type, block.String("type"));
    if (type == "thinking") {
      DEEPINFER_ASSIGN_OR_RETURN(const std::string thinking, block.String("thinking"));
      if ((*thoughts)++ > 0) message->reasoning += "\n\n";
      message->reasoning += thinking;
      return Status::Ok();
    }
    if (type == "tool_use") return ReadToolUse(block, message);
    DEEPINFER_ASSIGN_OR_RETURN(std::optional<ContentPart> part, ReadTextOrImage(block, type));
    if (!part.has_value()) return CheckDroppable(block, type, "an assistant");
    if (part->image.has_value()) {
      return FieldError(block.path(), "images can stand in user messages and tool results only");
    }
    if (!message->tool_calls.empty()) {
      return FieldError(block.path(), "text cannot follow a tool_use in the same message");
    }
    message->content.push_back(std::move(*part));
    return Status::Ok();
  }

  Status ReadToolUse(const ObjectReader& block, Message* message) {
    ToolCall call;
    DEEPINFER_ASSIGN_OR_RETURN(call.id, block.String("id"));
    DEEPINFER_ASSIGN_OR_RETURN(call.name, block.String("name"));
    DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader input, block.Object("input"));
    AppendPythonJson(input.value(), &call.arguments);
    DEEPINFER_RETURN_IF_ERROR(open_calls_.Add(call.id, block, "id"));
    message->tool_calls.push_back(std::move(call));
    return Status::Ok();
  }

  // Blocks of tools that the hosted service runs itself are dropped where such tools are ignored.
  Status CheckDroppable(const ObjectReader& block, std::string_view type, std::string_view whose) const {
    if ((type == "server_tool_use" || type == "web_search_tool_result") &&
        options_.messages_web_search == WebSearchTools::kIgnore) {
      return Status::Ok();
    }
    return FieldError(block.PathOf("type"),
                      Quoted(type) + " blocks are not accepted in " + std::string(whose) + " message");
  }

  const RequestOptions& options_;
  ConversationRequest request_;
  OpenCalls open_calls_;  // of the last assistant message
};

}  // namespace

Result<ConversationRequest> ParseMessagesRequest(std::string_view body, const RequestOptions& options) {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue value, ParseBody(body));
  DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader reader, ObjectReader::Of(value, ""));
  return MessagesParser(options).Parse(reader);
}

}  // namespace deepinfer
