#include "text/call_arguments.h"

#include "text/json_text.h"

namespace deepinfer {
namespace {

// Whether `text` is one JSON value that may stand in the object of arguments. The brackets count the object's level.
bool IsValue(std::string_view text) {
  std::string bracketed = "[";
  bracketed += text;
  bracketed += "]";
  const Result<JsonValue> parsed = ParseJson(bracketed);
  return parsed.ok() && parsed->AsArray()->size() == 1;
}

}  // namespace

void CallArguments::AppendName(const std::string& name, std::string* json) {
  const bool first = names_.empty();
  repeated_ = !names_.insert(name).second;
  if (repeated_) return;
  *json += first ? "{" : ", ";
  AppendPythonString(name, json);
  *json += ": ";
}

void CallArguments::BeginString(const std::string& name, std::string* json) {
  AppendName(name, json);
  if (!repeated_) *json += "\"";
}

void CallArguments::StringPiece(std::string_view text, std::string* json) {
  if (repeated_) return;
  std::string quoted;
  AppendPythonString(text, &quoted);
  json->append(quoted, 1, quoted.size() - 2);
}

void CallArguments::EndString(std::string* json) {
  if (!repeated_) *json += "\"";
}

void CallArguments::BeginValue(const std::string& name, std::string* json) { AppendName(name, json); }

void CallArguments::EndValue(std::string_view text, std::string* json) {
  if (repeated_) return;
  if (IsValue(text)) {
    *json += text;
  } else {
    AppendPythonString(text, json);
  }
}

void CallArguments::CutValue(std::string_view text, std::string* json) {
  if (!repeated_) *json += text;
}

void CallArguments::Close(std::string* json) { *json += names_.empty() ? "{}" : "}"; }

}  // namespace deepinfer
