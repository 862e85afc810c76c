#include "api/responses_request.h"

#include <algorithm>
#include <map>
#include <optional>

#include "api/content_fields.h"
#include "api/grammar_fields.h"
#include "api/json_reader.h"
#include "api/request_fields.h"
#include "api/responses_fields.h"
#include "api/responses_tools.h"
#include "api/sampling_fields.h"

namespace deepinfer {
namespace {

// A content part of a message or of a call's output.
Result<ContentPart> ReadPart(const ObjectReader& part) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::string type,
                             part.OneOf("type", {"input_text", "output_text", "input_image", "input_file"}));
  if (type == "input_file") return TextPart(std::string(kUnsupportedDocument));
  if (type != "input_image") {
    DEEPINFER_ASSIGN_OR_RETURN(std::string text, part.String("text"));
    return TextPart(std::move(text));
  }
  if (part.Find("image_url") == nullptr && part.Find("file_id") != nullptr) {
    return FieldError(part.PathOf("file_id"), "stored files are not available; send the image as image_url");
  }
  DEEPINFER_ASSIGN_OR_RETURN(std::string url, part.String("image_url"));
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> detail,
                             part.OptionalOneOf("detail", {"auto", "low", "high"}));
  return ImagePart(std::move(url), detail.value_or(""), part.PathOf("image_url"));
}

// Turns the flat list of input items into messages. Consecutive calls form one assistant turn; the group is complete
// when every call has its output.
class ItemReader {
 public:
  ItemReader(const ResponsesTools& tools, Conversation* conversation) : tools_(tools), conversation_(conversation) {}

  Status ReadItem(const ObjectReader& item) {
    if (item.Find("type") == nullptr && item.Find("role") == nullptr) {
      return FieldError(item.path(), "expected an item with a type, or a message with a role");
    }
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> given, item.OptionalString("type"));
    const std::string type = given.value_or("message");
    if (type == "message") return ReadMessage(item);
    if (type == "reasoning") return ReadReasoning(item);
    if (type == "function_call" || type == "custom_tool_call") return ReadCall(item, type == "custom_tool_call");
    if (type == "function_call_output" || type == "custom_tool_call_output") return ReadOutput(item);
    return Status::Ok();  // other types are ignored
  }

  Status Finish() {
    DEEPINFER_RETURN_IF_ERROR(CheckNoOpenCalls("each call needs an output item"));
    DropEmptyTurn();
    return Status::Ok();
  }

 private:
  struct OpenCall {
    ToolCall call;
    std::optional<Message> output;
    std::string path;
  };

  bool EndsWithAssistant() const {
    return !conversation_->messages.empty() && conversation_->messages.back().role == Role::kAssistant;
  }

  // The assistant turn at the end; a new empty one when there is none.
  Message* AssistantTurn() {
    if (!EndsWithAssistant()) {
      conversation_->messages.emplace_back();
      conversation_->messages.back().role = Role::kAssistant;
    }
    return &conversation_->messages.back();
  }

  // A turn that reasoning opened and nothing filled says nothing to the model.
  void DropEmptyTurn() {
    if (!EndsWithAssistant()) return;
    const Message& last = conversation_->messages.back();
    if (last.content.empty() && last.tool_calls.empty()) conversation_->messages.pop_back();
  }

  Status CheckNoOpenCalls(std::string_view problem) const {
    for (const auto& [id, open] : open_) {
      if (!open.output.has_value()) {
        return FieldError(open.path, std::string(problem) + "; none answers " + Quoted(id));
      }
    }
    return Status::Ok();
  }

  Status ReadMessage(const ObjectReader& item) {
    DEEPINFER_RETURN_IF_ERROR(CheckNoOpenCalls("each call needs an output item before the next message"));
    DEEPINFER_ASSIGN_OR_RETURN(const std::string role,
                               item.OneOf("role", {"user", "assistant", "system", "developer"}));
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue* content, item.Require("content"));
    const bool from_user = role == "user" || role == "developer";
    Message message;
    message.role = from_user ? Role::kUser : role == "system" ? Role::kSystem : Role::kAssistant;
    DEEPINFER_RETURN_IF_ERROR(ReadContent(*content, item.PathOf("content"), from_user, ReadPart, &message));
    if (message.role == Role::kAssistant) {
      // Adjacent assistant texts become the parts of one turn.
      Message* turn = AssistantTurn();
      if (message.content.empty()) turn->content.push_back(TextPart(""));
      for (ContentPart& part : message.content) turn->content.push_back(std::move(part));
      return Status::Ok();
    }
    if (message.role == Role::kSystem && TextOf(message).empty()) return Status::Ok();
    DropEmptyTurn();
    conversation_->messages.push_back(std::move(message));
    return Status::Ok();
  }

  // Belongs to the answer that follows, so it opens a turn unless an empty one is open.
  Status ReadReasoning(const ObjectReader& item) {
    DEEPINFER_RETURN_IF_ERROR(CheckNoOpenCalls("each call needs an output item before the next reasoning"));
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* parts, item.OptionalArray("content"));
    if (parts == nullptr) return Status::Ok();  // encrypted or summarised reasoning is not shown
    std::string reasoning;
    for (size_t i = 0; i < parts->size(); ++i) {
      DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader part,
                                 ObjectReader::Of((*parts)[i], ItemPath(item.PathOf("content"), i)));
      DEEPINFER_ASSIGN_OR_RETURN(const std::string text, part.String("text"));
      if (i > 0) reasoning += "\n";
      reasoning += text;
    }
    if (reasoning.empty()) return Status::Ok();
    const bool opens = !EndsWithAssistant() || !conversation_->messages.back().content.empty();
    if (opens) {
      conversation_->messages.emplace_back();
      conversation_->messages.back().role = Role::kAssistant;
    }
    Message& turn = conversation_->messages.back();
    if (!turn.reasoning.empty()) turn.reasoning += "\n";
    turn.reasoning += reasoning;
    return Status::Ok();
  }

  Status ReadCall(const ObjectReader& item, bool custom) {
    OpenCall open;
    open.path = item.path();
    DEEPINFER_ASSIGN_OR_RETURN(open.call.id, item.String("call_id"));
    if (open.call.id.empty()) return FieldError(item.PathOf("call_id"), "expected a string that is not empty");
    DEEPINFER_ASSIGN_OR_RETURN(const std::string name, item.String("name"));
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> tool_namespace, item.OptionalString("namespace"));
    open.call.name = tools_.RenderedName(tool_namespace.value_or(""), name);
    if (custom) {
      DEEPINFER_ASSIGN_OR_RETURN(const std::string input, item.String("input"));
      AppendPythonJson(JsonValue(JsonValue::Object{{"input", JsonValue(input)}}), &open.call.arguments);
    } else {
      DEEPINFER_ASSIGN_OR_RETURN(open.call.arguments, item.String("arguments"));
    }
    const std::string id = open.call.id;
    if (!open_.emplace(id, std::move(open)).second) {
      return FieldError(item.PathOf("call_id"), "two calls have the id " + Quoted(id) + "; ids must be unique");
    }
    ++unanswered_;
    return Status::Ok();
  }

  Status ReadOutput(const ObjectReader& item) {
    Message output;
    output.role = Role::kTool;
    DEEPINFER_ASSIGN_OR_RETURN(output.tool_call_id, item.String("call_id"));
    const auto found = open_.find(output.tool_call_id);
    if (found == open_.end() || found->second.output.has_value()) {
      return FieldError(item.PathOf("call_id"), Quoted(output.tool_call_id) + " is no unanswered call");
    }
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue* content, item.Require("output"));
    DEEPINFER_RETURN_IF_ERROR(ReadContent(*content, item.PathOf("output"), true, ReadPart, &output));
    found->second.output = std::move(output);
    if (--unanswered_ == 0) CloseGroup();
    return Status::Ok();
  }

  // Calls and outputs in the order of their ids, which is the order that open_ has.
  void CloseGroup() {
    Message* turn = AssistantTurn();
    for (auto& [id, open] : open_) turn->tool_calls.push_back(std::move(open.call));
    for (auto& [id, open] : open_) conversation_->messages.push_back(std::move(*open.output));
    open_.clear();
  }

  const ResponsesTools& tools_;
  Conversation* conversation_;            // not owned
  std::map<std::string, OpenCall> open_;  // by call id
  size_t unanswered_ = 0;                 // in open_
};

// The input as an array of items: a text is one message of the user.
Result<JsonValue::Array> InputItems(const ObjectReader& body) {
  JsonValue::Array items;
  const JsonValue* input = body.Find("input");
  if (input == nullptr) return items;
  if (const std::string* text = input->AsString()) {
    const auto string = [](std::string_view value) { return JsonValue(std::string(value)); };
    JsonValue::Object part = {{"type", string("input_text")}, {"text", JsonValue(*text)}};
    JsonValue::Array content;
    content.push_back(JsonValue(std::move(part)));
    items.push_back(JsonValue(JsonValue::Object{
        {"type", string("message")}, {"role", string("user")}, {"content", JsonValue(std::move(content))}}));
    return items;
  }
  if (input->AsArray() == nullptr) return ExpectedError("input", "a string or an array of items", *input);
  DEEPINFER_RETURN_IF_ERROR(body.NonEmptyArray("input").status());
  return *input->AsArray();
}

Status ReadItems(const JsonValue::Array& items, std::string_view path, ItemReader* reader) {
  for (size_t i = 0; i < items.size(); ++i) {
    DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader item, ObjectReader::Of(items[i], ItemPath(path, i)));
    DEEPINFER_RETURN_IF_ERROR(reader->ReadItem(item));
  }
  return Status::Ok();
}

// Instructions, then what the stored turns hold, then the input.
Status ReadInput(const ObjectReader& body, const ResponsesTools& tools, const StoredItems& stored_items,
                 ResponsesRequest* request) {
  Conversation* conversation = &request->conversation;
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> instructions, body.OptionalString("instructions"));
  if (instructions.has_value() && !instructions->empty()) {
    Message message;
    message.role = Role::kSystem;
    message.content.push_back(TextPart(*instructions));
    conversation->messages.push_back(std::move(message));
  }
  ItemReader reader(tools, conversation);
  std::string stored = "[]";
  if (!request->previous_response_id.empty()) {
    if (stored_items == nullptr) {
      return Status::Unsupported("previous_response_id: this server keeps no responses; send the whole conversation");
    }
    DEEPINFER_ASSIGN_OR_RETURN(stored, stored_items(request->previous_response_id));
    DEEPINFER_ASSIGN_OR_RETURN(const JsonValue earlier, ParseJson(stored));
    if (earlier.AsArray() == nullptr) return Status::Corruption("the items of a stored response are no array");
    DEEPINFER_RETURN_IF_ERROR(ReadItems(*earlier.AsArray(), "previous_response_id", &reader));
  }
  DEEPINFER_ASSIGN_OR_RETURN(JsonValue::Array items, InputItems(body));
  DEEPINFER_RETURN_IF_ERROR(ReadItems(items, "input", &reader));
  DEEPINFER_RETURN_IF_ERROR(reader.Finish());
  if (conversation->messages.empty()) {
    return FieldError(
        "input", items.empty() ? "a request needs input or instructions" : "expected at least one message, found none");
  }
  AppendPythonJson(JsonValue(std::move(items)), &request->input_items);
  request->items = JoinItems(stored, request->input_items);
  return Status::Ok();
}

Result<ResponsesRequest> Read(const ObjectReader& body, const RequestOptions& options,
                              const StoredItems& stored_items) {
  ResponsesRequest request;
  Conversation* conversation = &request.conversation;
  DEEPINFER_RETURN_IF_ERROR(ReadCommonSettings(body, &request.settings));
  DEEPINFER_ASSIGN_OR_RETURN(request.settings.max_tokens, ReadMaxTokens(body, "max_output_tokens"));
  DEEPINFER_RETURN_IF_ERROR(ReadServingFields(body, &request.settings));
  DEEPINFER_RETURN_IF_ERROR(ReadUser(body, "user", &request.settings));
  DEEPINFER_RETURN_IF_ERROR(ReadResponsesFields(body, &request));

  std::optional<int> effort;
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> reasoning, body.OptionalObject("reasoning"));
  if (reasoning.has_value()) {
    DEEPINFER_ASSIGN_OR_RETURN(effort, ReadEffort(*reasoning, "effort", kOpenAiEfforts));
  }
  ApplyThinking(std::nullopt, effort, options, conversation);

  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> text, body.OptionalObject("text"));
  if (text.has_value()) {
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> format, text->OptionalObject("format"));
    if (format.has_value())
      DEEPINFER_RETURN_IF_ERROR(
          ReadResponseFormat(*format, options, &request.settings, &conversation->response_format));
  }
  DEEPINFER_RETURN_IF_ERROR(ReadGuidedFields(body, options, &request.settings));
  ResponsesTools tools;
  DEEPINFER_RETURN_IF_ERROR(tools.Read(body, options, conversation));
  DEEPINFER_RETURN_IF_ERROR(ReadInput(body, tools, stored_items, &request));
  DEEPINFER_RETURN_IF_ERROR(CheckConversation(*conversation, "text.format"));
  AppendRepeatedFields(body, request, &request.repeated_fields);
  return request;
}

}  // namespace

Result<ResponsesRequest> ParseResponsesRequest(std::string_view body, const RequestOptions& options,
                                               const StoredItems& stored_items) {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue value, ParseBody(body));
  DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader reader, ObjectReader::Of(value, ""));
  return Read(reader, options, stored_items);
}

Result<std::string> OutputItems(std::string_view response) {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue value, ParseJson(response));
  const JsonValue* output = value.Find("output");
  if (output == nullptr || output->AsArray() == nullptr) return Status::Corruption("the response has no output");
  std::string items;
  AppendPythonJson(*output, &items);
  return items;
}

std::string JoinItems(std::string_view first, std::string_view second) {
  const auto inner = [](std::string_view array) {
    const size_t open = array.find('[');
    const size_t close = array.rfind(']');
    return open == std::string_view::npos || close <= open ? "" : array.substr(open + 1, close - open - 1);
  };
  const auto blank = [](std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; };
  const bool both = !blank(inner(first)) && !blank(inner(second));
  std::string joined = "[";
  joined.append(inner(first)).append(both ? ", " : "").append(inner(second)).append("]");
  return joined;
}

}  // namespace deepinfer
