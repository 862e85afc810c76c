#include "api/completions_request.h"

#include "api/grammar_fields.h"
#include "api/json_reader.h"
#include "api/request_fields.h"
#include "api/sampling_fields.h"

namespace deepinfer {
namespace {

Result<CompletionPrompt> ReadIds(const JsonValue::Array& ids, const std::string& path) {
  std::vector<int32_t> read;
  read.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    DEEPINFER_ASSIGN_OR_RETURN(const int32_t id, ReadTokenId(ids[i], ItemPath(path, i)));
    read.push_back(id);
  }
  if (read.empty()) return FieldError(path, "expected at least one token id, found an empty array");
  return CompletionPrompt(std::move(read));
}

// A string, an array of strings, an array of token ids, or an array of such arrays.
Status ReadPrompts(const ObjectReader& body, CompletionsRequest* request) {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue* prompt, body.Require("prompt"));
  if (const std::string* text = prompt->AsString()) {
    request->prompts.emplace_back(*text);
    return Status::Ok();
  }
  const JsonValue::Array* items = prompt->AsArray();
  if (items == nullptr) return ExpectedError("prompt", "a string or an array", *prompt);
  if (!items->empty() && items->front().AsNumber() != nullptr) {
    DEEPINFER_ASSIGN_OR_RETURN(CompletionPrompt ids, ReadIds(*items, "prompt"));
    request->prompts.push_back(std::move(ids));
    return Status::Ok();
  }
  DEEPINFER_RETURN_IF_ERROR(body.NonEmptyArray("prompt").status());
  for (size_t i = 0; i < items->size(); ++i) {
    const JsonValue& item = (*items)[i];
    if (const std::string* text = item.AsString()) {
      request->prompts.emplace_back(*text);
    } else if (item.AsArray() != nullptr) {
      DEEPINFER_ASSIGN_OR_RETURN(CompletionPrompt ids, ReadIds(*item.AsArray(), ItemPath("prompt", i)));
      request->prompts.push_back(std::move(ids));
    } else {
      return ExpectedError(ItemPath("prompt", i), "a string or an array of token ids", item);
    }
  }
  return Status::Ok();
}

Status CheckChoices(const ObjectReader& body, const CompletionsRequest& request) {
  const int64_t n = request.settings.n;
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<int64_t> best_of,
                             body.OptionalInteger("best_of", 1, SamplingParams::kMaxChoices));
  if (best_of.has_value() && *best_of != n) {
    return FieldError(
        "best_of", "answers are not ranked; expected n = " + std::to_string(n) + ", found " + std::to_string(*best_of));
  }
  const auto prompts = static_cast<int64_t>(request.prompts.size());
  if (prompts * n > kMaxCompletionChoices) {
    return FieldError("prompt", "expected at most " + std::to_string(kMaxCompletionChoices) +
                                    " answers in all, found " + std::to_string(prompts) +
                                    " prompts with n = " + std::to_string(n));
  }
  return Status::Ok();
}

}  // namespace

Result<CompletionsRequest> ParseCompletionsRequest(std::string_view body, const RequestOptions& options) {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue value, ParseBody(body));
  DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader reader, ObjectReader::Of(value, ""));
  CompletionsRequest request;
  RequestSettings* settings = &request.settings;
  DEEPINFER_RETURN_IF_ERROR(ReadCommonSettings(reader, settings));
  DEEPINFER_ASSIGN_OR_RETURN(settings->max_tokens, ReadMaxTokens(reader, "max_tokens"));
  DEEPINFER_RETURN_IF_ERROR(ReadOpenAiSettings(reader, settings));
  DEEPINFER_RETURN_IF_ERROR(ReadSamplingFields(reader, settings));
  DEEPINFER_RETURN_IF_ERROR(ReadServingFields(reader, settings));
  DEEPINFER_RETURN_IF_ERROR(ReadUser(reader, "user", settings));
  DEEPINFER_ASSIGN_OR_RETURN(settings->echo, reader.Bool("echo", false));
  DEEPINFER_ASSIGN_OR_RETURN(settings->logprobs, reader.OptionalInteger("logprobs", 0, SamplingParams::kMaxLogprobs));
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> format, reader.OptionalObject("response_format"));
  if (format.has_value()) {
    ResponseFormat of_prompts = ResponseFormat::kText;  // prompts are the client's own
    DEEPINFER_RETURN_IF_ERROR(ReadResponseFormat(*format, options, settings, &of_prompts));
  }
  DEEPINFER_RETURN_IF_ERROR(ReadGuidedFields(reader, options, settings));
  DEEPINFER_RETURN_IF_ERROR(ReadPrompts(reader, &request));
  DEEPINFER_RETURN_IF_ERROR(CheckChoices(reader, request));
  DEEPINFER_ASSIGN_OR_RETURN(request.suffix, reader.OptionalString("suffix"));
  if (request.suffix.has_value() &&
      (request.prompts.size() != 1 || !std::holds_alternative<std::string>(request.prompts[0]))) {
    return FieldError("suffix", "a suffix needs a single prompt, given as text");
  }
  return request;
}

}  // namespace deepinfer
