#include "api/request_fields.h"

#include <algorithm>
#include <limits>

namespace deepinfer {
namespace {

Status ReadStop(const ObjectReader& body, RequestSettings* settings) {
  const JsonValue* stop = body.Find("stop");
  if (stop == nullptr) return Status::Ok();
  const std::string path = body.PathOf("stop");
  const auto add = [settings](const std::string& sequence) {
    if (!sequence.empty()) settings->stop.push_back(sequence);  // an empty sequence never stops anything
  };
  if (const std::string* one = stop->AsString()) {
    add(*one);
    return Status::Ok();
  }
  const JsonValue::Array* sequences = stop->AsArray();
  if (sequences == nullptr) return ExpectedError(path, "a string or an array of strings", *stop);
  if (sequences->size() > kMaxStopSequences) {
    return FieldError(path, "expected at most " + std::to_string(kMaxStopSequences) + " stop sequences, found " +
                                std::to_string(sequences->size()));
  }
  for (size_t i = 0; i < sequences->size(); ++i) {
    const std::string* sequence = (*sequences)[i].AsString();
    if (sequence == nullptr) return ExpectedError(ItemPath(path, i), "a string", (*sequences)[i]);
    add(*sequence);
  }
  return Status::Ok();
}

bool MentionsJson(const Conversation& conversation) {
  constexpr std::string_view kWord = "json";
  const auto same_letter = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  for (const Message& message : conversation.messages) {
    for (const ContentPart& part : message.content) {
      const auto found = std::search(part.text.begin(), part.text.end(), kWord.begin(), kWord.end(), same_letter);
      if (!part.image.has_value() && found != part.text.end()) return true;
    }
  }
  return false;
}

}  // namespace

Result<std::optional<int64_t>> ReadMaxTokens(const ObjectReader& body, std::string_view key) {
  return body.OptionalInteger(key, 1, std::numeric_limits<uint32_t>::max());
}

Status ReadCommonSettings(const ObjectReader& body, RequestSettings* settings) {
  DEEPINFER_ASSIGN_OR_RETURN(settings->model, body.String("model"));
  DEEPINFER_ASSIGN_OR_RETURN(settings->temperature, body.OptionalNumber("temperature", 0, 2));
  DEEPINFER_ASSIGN_OR_RETURN(settings->top_p, body.OptionalNumber("top_p", 0, 1));
  if (settings->top_p == 0.0) {
    return FieldError(body.PathOf("top_p"), "expected a number above 0 and up to 1, found 0");
  }
  DEEPINFER_ASSIGN_OR_RETURN(settings->stream, body.Bool("stream", false));
  return Status::Ok();
}

Status ReadOpenAiSettings(const ObjectReader& body, RequestSettings* settings) {
  DEEPINFER_ASSIGN_OR_RETURN(settings->frequency_penalty, body.OptionalNumber("frequency_penalty", -2, 2));
  DEEPINFER_ASSIGN_OR_RETURN(settings->presence_penalty, body.OptionalNumber("presence_penalty", -2, 2));
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<int64_t> n, body.OptionalInteger("n", 1, SamplingParams::kMaxChoices));
  settings->n = n.value_or(1);
  DEEPINFER_ASSIGN_OR_RETURN(settings->seed, body.OptionalInteger("seed", 0, std::numeric_limits<int64_t>::max()));
  DEEPINFER_RETURN_IF_ERROR(ReadStop(body, settings));
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> stream_options, body.OptionalObject("stream_options"));
  if (!stream_options.has_value()) return Status::Ok();
  if (!settings->stream) return FieldError(stream_options->path(), "this field needs stream to be true");
  DEEPINFER_ASSIGN_OR_RETURN(settings->include_usage, stream_options->Bool("include_usage", false));
  return Status::Ok();
}

Result<std::optional<int>> ReadEffort(const ObjectReader& holder, std::string_view key,
                                      std::span<const std::string_view> names) {
  const JsonValue* field = holder.Find(key);
  if (field == nullptr) return std::optional<int>();
  if (const std::string* name = field->AsString()) {
    if (std::find(names.begin(), names.end(), *name) != names.end()) {
      return *name == "none" ? std::optional<int>(kEffortNone) : EffortByName(*name);
    }
  } else if (const std::optional<int64_t> value = field->AsInt64();
             value.has_value() && *value >= kMinEffort && *value <= kMaxEffort) {
    return std::optional<int>(static_cast<int>(*value));
  }
  return ExpectedError(holder.PathOf(key), Choices(names) + ", or an integer from 1 to 100", *field);
}

Result<std::optional<bool>> ReadThinking(const ObjectReader& body) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> thinking, body.OptionalObject("thinking"));
  if (!thinking.has_value()) return std::optional<bool>();
  DEEPINFER_ASSIGN_OR_RETURN(const std::string type, thinking->OneOf("type", {"enabled", "adaptive", "disabled"}));
  // Checked, not used: the model has no budget of reasoning tokens.
  DEEPINFER_RETURN_IF_ERROR(
      thinking->OptionalInteger("budget_tokens", 0, std::numeric_limits<int64_t>::max()).status());
  return std::optional<bool>(type != "disabled");
}

Result<std::optional<bool>> ReadTemplateThinking(const ObjectReader& body) {
  std::optional<bool> thinking;
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> arguments, body.OptionalObject("chat_template_kwargs"));
  if (!arguments.has_value()) return thinking;
  for (const std::string_view key : {"enable_thinking", "thinking"}) {
    DEEPINFER_ASSIGN_OR_RETURN(const bool on, arguments->Bool(key, false));
    if (arguments->Find(key) != nullptr) thinking = on;
  }
  return thinking;
}

void ApplyThinking(std::optional<bool> thinking, std::optional<int> effort, const RequestOptions& options,
                   Conversation* conversation) {
  const bool effort_given = effort.has_value() && *effort != kEffortNone;
  if (thinking.has_value()) {
    conversation->thinking = *thinking;
  } else if (effort.has_value()) {
    conversation->thinking = effort_given;
  } else {
    conversation->thinking = options.thinking;
  }
  conversation->effort = effort_given ? *effort : options.effort;
  conversation->reasoning_history = options.reasoning_history;
}

Status CheckConversation(const Conversation& conversation, std::string_view format_field) {
  if (conversation.response_format == ResponseFormat::kJsonObject && !MentionsJson(conversation)) {
    return FieldError(format_field, "json_object needs the word json in the text of a message");
  }
  return Status::Ok();
}

}  // namespace deepinfer
