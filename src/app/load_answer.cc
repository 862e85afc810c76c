#include "app/load_answer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/terminal.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongestError = 300;  // bytes of a server's text

/// The member, or a null value.
const Json& Member(const Json& object, const char* key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found != object.end() ? *found : null;
}

bool HasText(const Json& object, const char* key) {
  const Json& value = Member(object, key);
  return value.is_string() && !value.get_ref<const std::string&>().empty();
}

int64_t Count(const Json& object, const char* key) {
  const Json& value = Member(object, key);
  return value.is_number_integer() ? value.get<int64_t>() : 0;
}

/// The message of OpenAI's, Anthropic's, FastAPI's or vLLM's error object; empty when there is none.
std::string ErrorMessage(const Json& json) {
  const Json& error = Member(json, "error");
  for (const Json* place : {&Member(error, "message"), &error, &Member(json, "message"), &Member(json, "detail")}) {
    if (place->is_string()) return place->get<std::string>();
  }
  return "";
}

std::string Shortened(std::string_view text) {
  std::string clean = WithoutControls(text.substr(0, kLongestError));
  for (char& c : clean) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  while (clean.ends_with(' ')) clean.pop_back();
  return clean;
}

}  // namespace

std::string HttpErrorText(int status, std::string_view body) {
  const std::string message = ErrorMessage(Json::parse(body, nullptr, false));
  const std::string text = Shortened(message.empty() ? body : message);
  return text.empty() ? fmt::format("HTTP {}", status) : fmt::format("HTTP {}: {}", status, text);
}

LoadAnswer::LoadAnswer(double sent) {
  record_.outcome = LoadRecord::Outcome::kRunning;
  record_.sent = sent;
}

void LoadAnswer::Fail(std::string why) {
  if (record_.error.empty()) record_.error = std::move(why);
}

void LoadAnswer::AddPiece(double now) {
  if (record_.pieces++ == 0) {
    record_.first_piece = now;
  } else {
    record_.gaps.push_back(now - record_.last_piece);
  }
  record_.last_piece = now;
}

void LoadAnswer::AddChoices(const Json& choices, double now) {
  for (const Json& choice : choices) {
    const Json& delta = Member(choice, "delta");
    const Json& calls = Member(delta, "tool_calls");
    if (HasText(choice, "text") || HasText(delta, "content") || HasText(delta, "reasoning_content") ||
        HasText(delta, "reasoning") || (calls.is_array() && !calls.empty())) {
      AddPiece(now);
    }
    if (HasText(choice, "finish_reason")) {
      record_.finish_reason = choice["finish_reason"].get<std::string>();
      complete_ = true;
    }
  }
}

void LoadAnswer::AddUsage(const Json& usage) {
  record_.has_usage = true;
  record_.prompt_tokens = Count(usage, "prompt_tokens");
  record_.output_tokens = Count(usage, "completion_tokens");
  record_.cached_tokens = Count(Member(usage, "prompt_tokens_details"), "cached_tokens");
}

void LoadAnswer::AddEvent(std::string_view name, std::string_view data, double now) {
  if (data == "[DONE]") {
    complete_ = true;
    return;
  }
  const Json json = Json::parse(data, nullptr, false);
  if (!json.is_object()) return Fail("an event is no JSON object: " + Shortened(data));
  if (name == "error" || !Member(json, "error").is_null()) {
    const std::string message = ErrorMessage(json);
    return Fail("error event: " + Shortened(message.empty() ? data : message));
  }
  const Json& choices = Member(json, "choices");
  if (choices.is_array()) AddChoices(choices, now);
  const Json& usage = Member(json, "usage");
  if (usage.is_object()) AddUsage(usage);
}

void LoadAnswer::Finish(int status, std::string_view body, std::string_view broken, double now) {
  record_.ended = now;
  if (status != 0 && status != 200) {
    Fail(HttpErrorText(status, body));
  } else if (!broken.empty()) {
    Fail(std::string(broken));
  } else if (!complete_) {
    Fail("the stream ended before the answer did");
  }
  record_.outcome = record_.error.empty() ? LoadRecord::Outcome::kDone : LoadRecord::Outcome::kFailed;
  if (!record_.has_usage) record_.output_tokens = record_.pieces;
}

}  // namespace deepinfer
