#include "api/completions_request.h"

#include "api/json_reader.h"
#include "api/request_fields.h"

namespace deepinfer {

Result<CompletionsRequest> ParseCompletionsRequest(std::string_view body) {
  constexpr int64_t kMaxLogprobs = 20;
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue value, ParseBody(body));
  DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader reader, ObjectReader::Of(value, ""));
  CompletionsRequest request;
  DEEPINFER_RETURN_IF_ERROR(ReadCommonSettings(reader, &request.settings));
  DEEPINFER_ASSIGN_OR_RETURN(request.settings.max_tokens, ReadMaxTokens(reader, "max_tokens"));
  DEEPINFER_RETURN_IF_ERROR(ReadOpenAiSettings(reader, &request.settings));
  DEEPINFER_ASSIGN_OR_RETURN(request.settings.echo, reader.Bool("echo", false));
  DEEPINFER_ASSIGN_OR_RETURN(request.settings.logprobs, reader.OptionalInteger("logprobs", 0, kMaxLogprobs));
  DEEPINFER_ASSIGN_OR_RETURN(request.prompt, reader.String("prompt"));
  DEEPINFER_ASSIGN_OR_RETURN(request.suffix, reader.OptionalString("suffix"));
  return request;
}

}  // namespace deepinfer
