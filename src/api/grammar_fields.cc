#include "api/grammar_fields.h"

#include <initializer_list>
#include <utility>

namespace deepinfer {
namespace {

using Kind = StructuredOutput::Kind;

Status Ask(Kind kind, std::string source, std::string field, RequestSettings* settings) {
  if (settings->structured_output.wanted()) {
    return FieldError(
        field, "the form of the output is given already by " + settings->grammar_field + "; give only one of them");
  }
  settings->structured_output = {kind, std::move(source)};
  settings->grammar_field = std::move(field);
  return Status::Ok();
}

/// A schema: an object or a boolean, or (vLLM) a string that holds one.
Status AskSchema(const JsonValue& schema, std::string field, RequestSettings* settings) {
  std::string text;
  if (const std::string* spelt = schema.AsString()) {
    text = *spelt;
  } else if (schema.AsObject() != nullptr || schema.AsBool() != nullptr) {
    AppendPythonJson(schema, &text);
  } else {
    return ExpectedError(field, "a JSON Schema", schema);
  }
  return Ask(Kind::kJsonSchema, std::move(text), std::move(field), settings);
}

/// The first of `keys` that is given.
Status AskText(Kind kind, const ObjectReader& holder, std::initializer_list<std::string_view> keys,
               RequestSettings* settings) {
  for (const std::string_view key : keys) {
    DEEPINFER_ASSIGN_OR_RETURN(std::optional<std::string> text, holder.OptionalString(key));
    if (text.has_value()) return Ask(kind, std::move(*text), holder.PathOf(key), settings);
  }
  return FieldError(holder.PathOf(*keys.begin()), "this field is required");
}

/// One of a list of texts, as a regular expression.
Status AskChoice(const JsonValue& choices, std::string field, RequestSettings* settings) {
  const JsonValue::Array* list = choices.AsArray();
  if (list == nullptr || list->empty()) return ExpectedError(field, "a list of texts that is not empty", choices);
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string pattern;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string* text = (*list)[i].AsString();
    if (text == nullptr) return ExpectedError(ItemPath(field, i), "a string", (*list)[i]);
    if (i > 0) pattern += '|';
    for (const char c : *text) {
      const auto byte = static_cast<unsigned char>(c);
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || byte >= 0x80;
      if (plain) {
        pattern += c;
      } else {
        pattern += "\\x";
        pattern += kDigits[byte / 16];
        pattern += kDigits[byte % 16];
      }
    }
  }
  return Ask(Kind::kRegex, std::move(pattern), std::move(field), settings);
}

/// What `holder` has of one set of names; vLLM's structured_outputs and its older guided_ fields differ in these only.
Status ReadForms(const ObjectReader& holder, const std::string& prefix, RequestSettings* settings) {
  const std::string json = prefix + "json";
  if (const JsonValue* schema = holder.Find(json)) {
    DEEPINFER_RETURN_IF_ERROR(AskSchema(*schema, holder.PathOf(json), settings));
  }
  const std::string object = prefix + "json_object";
  DEEPINFER_ASSIGN_OR_RETURN(const bool any_object, holder.Bool(object, false));
  if (any_object) {
    StructuredOutput form = StructuredOutput::AnyObject();
    DEEPINFER_RETURN_IF_ERROR(Ask(form.kind, std::move(form.source), holder.PathOf(object), settings));
  }
  const std::string choice = prefix + "choice";
  if (const JsonValue* choices = holder.Find(choice)) {
    DEEPINFER_RETURN_IF_ERROR(AskChoice(*choices, holder.PathOf(choice), settings));
  }
  for (const auto& [key, kind] : {std::pair{prefix + "regex", Kind::kRegex}, {prefix + "grammar", Kind::kEbnf}}) {
    if (holder.Find(key) != nullptr) DEEPINFER_RETURN_IF_ERROR(AskText(kind, holder, {key}, settings));
  }
  return Status::Ok();
}

}  // namespace

Status ReadResponseFormat(const ObjectReader& format, const RequestOptions& options, RequestSettings* settings,
                          ResponseFormat* prompt_format) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::string type,
                             format.OneOf("type", {"text", "json_object", "json_schema", "regex", "ebnf", "grammar"}));
  if (type == "json_object") {
    *prompt_format = ResponseFormat::kJsonObject;
    if (options.ignore_schemas) return Status::Ok();
    StructuredOutput form = StructuredOutput::AnyObject();
    return Ask(form.kind, std::move(form.source), format.path(), settings);
  }
  if (type == "text" || options.ignore_schemas) return Status::Ok();
  if (type == "json_schema") {
    // Chat Completions wraps what Responses and Messages have in place.
    DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> inner, format.OptionalObject("json_schema"));
    const ObjectReader& holder = inner.has_value() ? *inner : format;
    DEEPINFER_RETURN_IF_ERROR(holder.OptionalString("name").status());
    DEEPINFER_RETURN_IF_ERROR(holder.Bool("strict", true).status());
    const JsonValue* schema = holder.Find("schema");
    if (schema == nullptr) {
      const bool lacks_wrapper = !inner.has_value() && format.path() == "response_format";
      return FieldError(holder.PathOf(lacks_wrapper ? "json_schema" : "schema"), "this field is required");
    }
    return AskSchema(*schema, holder.PathOf("schema"), settings);
  }
  if (type == "regex") return AskText(Kind::kRegex, format, {"pattern", "regex", "value"}, settings);
  return AskText(Kind::kEbnf, format, {"grammar", "ebnf", "value"}, settings);
}

Status ReadGuidedFields(const ObjectReader& body, const RequestOptions& options, RequestSettings* settings) {
  if (options.ignore_schemas) return Status::Ok();
  if (body.Find("structural_tag") != nullptr) {
    return Status::Unsupported("structural_tag: not available; use response_format, tools or structured_outputs");
  }
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> outputs, body.OptionalObject("structured_outputs"));
  if (outputs.has_value()) {
    if (outputs->Find("structural_tag") != nullptr) {
      return Status::Unsupported(outputs->PathOf("structural_tag") + ": not available");
    }
    DEEPINFER_RETURN_IF_ERROR(ReadForms(*outputs, "", settings));
  }
  return ReadForms(body, "guided_", settings);
}

}  // namespace deepinfer
