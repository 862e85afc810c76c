#include "api/json_reader.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr std::string_view kBody = "request body";

std::string PythonSpelling(double value) {
  std::string text;
  AppendPythonFloat(value, &text);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

// Scalars by value, so that a typing error can be seen; containers by kind.
std::string Describe(const JsonValue& value) {
  if (const std::string* string = value.AsString()) return Quoted(*string);
  if (const JsonValue::Number* number = value.AsNumber()) {
    return number->spelling.size() <= 40 ? number->spelling : number->spelling.substr(0, 37) + "...";
  }
  if (const bool* boolean = value.AsBool()) return *boolean ? "true" : "false";
  return std::string(value.KindName());
}

}  // namespace

Status FieldError(std::string_view path, std::string_view problem) {
  return Status::InvalidArgument(std::string(path) + (path.empty() ? "" : ": ") + std::string(problem));
}

Status ExpectedError(std::string_view path, std::string_view expected, const JsonValue& found) {
  return FieldError(path, "expected " + std::string(expected) + ", found " + Describe(found));
}

std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 60;
  std::string quoted;
  if (text.size() <= kShown) {
    AppendPythonString(text, &quoted);
    return quoted;
  }
  size_t cut = kShown;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;  // do not split a character
  AppendPythonString(text.substr(0, cut), &quoted);
  return quoted + "...";
}

std::string Choices(std::span<const std::string_view> names) {
  std::string text;
  size_t left = names.size();
  for (const std::string_view name : names) {
    text += name;
    --left;
    if (left > 0) text += left == 1 ? " or " : ", ";
  }
  return text;
}

Result<ObjectReader> ObjectReader::Of(const JsonValue& value, std::string path) {
  if (value.AsObject() == nullptr) return ExpectedError(path, "an object", value);
  return ObjectReader(&value, std::move(path));
}

std::string ObjectReader::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

const JsonValue* ObjectReader::Find(std::string_view key) const {
  const JsonValue* field = value_->Find(key);
  return field == nullptr || field->IsNull() ? nullptr : field;
}

Status ObjectReader::MissingError(std::string_view key) const {
  return FieldError(PathOf(key), "this field is required");
}

Result<const JsonValue*> ObjectReader::Require(std::string_view key) const {
  const JsonValue* field = Find(key);
  if (field == nullptr) return MissingError(key);
  return field;
}

Result<std::optional<std::string>> ObjectReader::OptionalString(std::string_view key) const {
  const JsonValue* field = Find(key);
  if (field == nullptr) return std::optional<std::string>();
  if (field->AsString() == nullptr) return ExpectedError(PathOf(key), "a string", *field);
  return std::optional<std::string>(*field->AsString());
}

Result<std::string> ObjectReader::String(std::string_view key) const {
  DEEPINFER_ASSIGN_OR_RETURN(std::optional<std::string> text, OptionalString(key));
  if (!text.has_value()) return MissingError(key);
  return std::move(*text);
}

Result<bool> ObjectReader::Bool(std::string_view key, bool when_absent) const {
  const JsonValue* field = Find(key);
  if (field == nullptr) return when_absent;
  if (field->AsBool() == nullptr) return ExpectedError(PathOf(key), "true or false", *field);
  return *field->AsBool();
}

Result<std::optional<int64_t>> ObjectReader::OptionalInteger(std::string_view key, int64_t min, int64_t max) const {
  const JsonValue* field = Find(key);
  if (field == nullptr) return std::optional<int64_t>();
  const std::optional<int64_t> value = field->AsInt64();
  if (!value.has_value() || *value < min || *value > max) {
    const std::string range =
        min == max ? std::to_string(min) : "an integer from " + std::to_string(min) + " to " + std::to_string(max);
    return ExpectedError(PathOf(key), range, *field);
  }
  return value;
}

Result<std::optional<double>> ObjectReader::OptionalNumber(std::string_view key, double min, double max) const {
  const JsonValue* field = Find(key);
  if (field == nullptr) return std::optional<double>();
  const std::optional<double> value = field->AsDouble();
  if (!value.has_value() || !(*value >= min && *value <= max)) {
    return ExpectedError(PathOf(key), "a number from " + PythonSpelling(min) + " to " + PythonSpelling(max), *field);
  }
  return value;
}

Result<const JsonValue::Array*> ObjectReader::OptionalArray(std::string_view key) const {
  const JsonValue* field = Find(key);
  if (field == nullptr) return static_cast<const JsonValue::Array*>(nullptr);
  if (field->AsArray() == nullptr) return ExpectedError(PathOf(key), "an array", *field);
  return field->AsArray();
}

Result<const JsonValue::Array*> ObjectReader::NonEmptyArray(std::string_view key) const {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* array, OptionalArray(key));
  if (array == nullptr) return MissingError(key);
  if (array->empty()) return FieldError(PathOf(key), "expected at least one item, found an empty array");
  return array;
}

Result<std::optional<ObjectReader>> ObjectReader::OptionalObject(std::string_view key) const {
  const JsonValue* field = Find(key);
  if (field == nullptr) return std::optional<ObjectReader>();
  DEEPINFER_ASSIGN_OR_RETURN(ObjectReader reader, Of(*field, PathOf(key)));
  return std::optional<ObjectReader>(std::move(reader));
}

Result<ObjectReader> ObjectReader::Object(std::string_view key) const {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue* field, Require(key));
  return Of(*field, PathOf(key));
}

Result<std::optional<std::string>> ObjectReader::OptionalOneOf(std::string_view key,
                                                               std::initializer_list<std::string_view> names) const {
  const JsonValue* field = Find(key);
  if (field == nullptr) return std::optional<std::string>();
  const std::string* text = field->AsString();
  if (text == nullptr || std::find(names.begin(), names.end(), *text) == names.end()) {
    return ExpectedError(PathOf(key), Choices(names), *field);
  }
  return std::optional<std::string>(*text);
}

Result<std::string> ObjectReader::OneOf(std::string_view key, std::initializer_list<std::string_view> names) const {
  DEEPINFER_ASSIGN_OR_RETURN(std::optional<std::string> name, OptionalOneOf(key, names));
  if (!name.has_value()) return MissingError(key);
  return std::move(*name);
}

Result<JsonValue> ParseBody(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return FieldError(kBody, "expected a JSON object, found nothing");
  }
  Result<JsonValue> parsed = ParseJson(body);
  if (!parsed.ok()) return FieldError(kBody, "not valid JSON: " + parsed.status().message());
  if (parsed->AsObject() == nullptr) return ExpectedError(kBody, "a JSON object", *parsed);
  return parsed;
}

}  // namespace deepinfer
