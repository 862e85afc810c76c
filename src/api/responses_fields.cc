#include "api/responses_fields.h"

#include <limits>
#include <utility>

#include "api/json_writer.h"
#include "deepinfer/sampling_params.h"

namespace deepinfer {
namespace {

// What the server does not do at all: saying nothing would look as if it did.
Status RefuseMissingFeatures(const ObjectReader& body) {
  DEEPINFER_ASSIGN_OR_RETURN(const bool background, body.Bool("background", false));
  if (background) {
    return Status::Unsupported("background: responses are not made in the background; leave it out and wait or stream");
  }
  if (body.Find("conversation") != nullptr) {
    return Status::Unsupported("conversation: conversations are not kept; use previous_response_id");
  }
  if (body.Find("prompt") != nullptr) {
    return Status::Unsupported("prompt: stored prompts are not available; send input and instructions");
  }
  return Status::Ok();
}

// Up to 16 texts, as OpenAI limits them.
Status CheckMetadata(const ObjectReader& body) {
  constexpr size_t kMaxEntries = 16;
  constexpr size_t kMaxKeyBytes = 64;
  constexpr size_t kMaxValueBytes = 512;
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<ObjectReader> metadata, body.OptionalObject("metadata"));
  if (!metadata.has_value()) return Status::Ok();
  const JsonValue::Object& members = *metadata->value().AsObject();
  if (members.size() > kMaxEntries) {
    return FieldError("metadata", "expected at most 16 entries, found " + std::to_string(members.size()));
  }
  for (const JsonMember& member : members) {
    if (member.key.size() > kMaxKeyBytes) {
      return FieldError("metadata", "expected keys of at most 64 bytes, found " + Quoted(member.key));
    }
    const std::string* text = member.value.AsString();
    if (text == nullptr || text->size() > kMaxValueBytes) {
      return ExpectedError("metadata", "texts of at most 512 bytes", member.value);
    }
  }
  return Status::Ok();
}

// Log probabilities are asked for in `include`, their number in top_logprobs.
Status ReadLogprobs(const ObjectReader& body, RequestSettings* settings) {
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<int64_t> top,
                             body.OptionalInteger("top_logprobs", 0, SamplingParams::kMaxLogprobs));
  bool included = top.value_or(0) > 0;
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue::Array* include, body.OptionalArray("include"));
  for (size_t i = 0; include != nullptr && i < include->size(); ++i) {
    const std::string* name = (*include)[i].AsString();
    if (name == nullptr) return ExpectedError(ItemPath("include", i), "a string", (*include)[i]);
    included = included || *name == "message.output_text.logprobs";
  }
  if (included) settings->logprobs = top.value_or(0);
  return Status::Ok();
}

Status ReadCallLimit(const ObjectReader& body, RequestSettings* settings) {
  DEEPINFER_ASSIGN_OR_RETURN(settings->max_tool_calls,
                             body.OptionalInteger("max_tool_calls", 1, std::numeric_limits<int32_t>::max()));
  DEEPINFER_ASSIGN_OR_RETURN(const bool parallel, body.Bool("parallel_tool_calls", true));
  if (!parallel) settings->max_tool_calls = 1;
  return Status::Ok();
}

}  // namespace

Status ReadResponsesFields(const ObjectReader& body, ResponsesRequest* request) {
  DEEPINFER_RETURN_IF_ERROR(RefuseMissingFeatures(body));
  DEEPINFER_ASSIGN_OR_RETURN(const std::optional<std::string> previous, body.OptionalString("previous_response_id"));
  request->previous_response_id = previous.value_or("");
  DEEPINFER_ASSIGN_OR_RETURN(request->store, body.Bool("store", true));
  // Checked, not used: a prompt that does not fit is an error, nothing is cut off.
  DEEPINFER_RETURN_IF_ERROR(body.OptionalOneOf("truncation", {"auto", "disabled"}).status());
  DEEPINFER_RETURN_IF_ERROR(CheckMetadata(body));
  DEEPINFER_RETURN_IF_ERROR(ReadLogprobs(body, &request->settings));
  return ReadCallLimit(body, &request->settings);
}

void AppendRepeatedFields(const ObjectReader& body, const ResponsesRequest& request, std::string* out) {
  // The member as it was given, or what OpenAI says when it was not.
  static constexpr std::pair<std::string_view, std::string_view> kFields[] = {
      {"instructions", "null"},
      {"max_output_tokens", "null"},
      {"max_tool_calls", "null"},
      {"metadata", "{}"},
      {"parallel_tool_calls", "true"},
      {"previous_response_id", "null"},
      {"reasoning", R"({"effort":null,"summary":null})"},
      {"temperature", "null"},
      {"text", R"({"format":{"type":"text"}})"},
      {"tool_choice", R"("auto")"},
      {"tools", "[]"},
      {"top_logprobs", "0"},
      {"top_p", "null"},
      {"truncation", R"("disabled")"},
      {"user", "null"},
  };
  JsonWriter json(out);
  json.Raw(R"({"background":false,"store":)").Raw(request.store ? "true" : "false");
  for (const auto& [key, when_absent] : kFields) {
    json.Raw(",").Text(key).Raw(":");
    if (const JsonValue* given = body.Find(key)) {
      AppendPythonJson(*given, out);
    } else {
      json.Raw(when_absent);
    }
  }
  json.Raw("}");
}

}  // namespace deepinfer
