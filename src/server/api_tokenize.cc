// /tokenize and /detokenize, with vLLM's fields.
#include <nlohmann/json.hpp>

#include "api/chat_request.h"
#include "api/json_reader.h"
#include "server/api_service.h"
#include "server/generation_planner.h"

namespace deepinfer {
namespace {

Result<std::vector<int32_t>> TokensOf(const ServedModel& model, const RequestOptions& options, const std::string& text,
                                      const ObjectReader& body) {
  if (body.Find("messages") != nullptr) {
    DEEPINFER_ASSIGN_OR_RETURN(const ConversationRequest request, ParseChatRequest(text, options));
    return PromptOf(model, request.conversation);
  }
  DEEPINFER_ASSIGN_OR_RETURN(const std::string prompt, body.String("prompt"));
  DEEPINFER_ASSIGN_OR_RETURN(const bool begin, body.Bool("add_special_tokens", true));
  std::vector<int32_t> ids;
  if (begin) ids.push_back(model.engine->bos_token_id());
  DEEPINFER_RETURN_IF_ERROR(model.tokenizer->Encode(prompt, &ids));
  return ids;
}

Result<std::string> TokenizeBody(const ServedModel& model, const RequestOptions& options, const std::string& text) {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue json, ParseBody(text));
  DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader body, ObjectReader::Of(json, ""));
  DEEPINFER_ASSIGN_OR_RETURN(const bool with_texts, body.Bool("return_token_strs", false));
  DEEPINFER_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, TokensOf(model, options, text, body));
  nlohmann::ordered_json answer = {{"count", ids.size()}, {"max_model_len", model.max_model_len}, {"tokens", ids}};
  if (with_texts) {
    auto& texts = answer["token_strs"] = nlohmann::ordered_json::array();
    for (const int32_t id : ids) texts.push_back(model.tokenizer->TokenText(id));
  }
  return answer.dump() + "\n";
}

Result<std::string> DetokenizeBody(const ServedModel& model, const std::string& text) {
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue json, ParseBody(text));
  DEEPINFER_ASSIGN_OR_RETURN(const ObjectReader body, ObjectReader::Of(json, ""));
  DEEPINFER_ASSIGN_OR_RETURN(const JsonValue* tokens, body.Require("tokens"));
  const JsonValue::Array* const items = tokens->AsArray();
  if (items == nullptr) return ExpectedError("tokens", "an array of token ids", *tokens);
  std::vector<int32_t> ids;
  ids.reserve(items->size());
  for (size_t i = 0; i < items->size(); ++i) {
    const std::optional<int64_t> id = (*items)[i].AsInt64();
    if (!id.has_value() || *id < 0 || *id >= model.tokenizer->vocab_size()) {
      return FieldError(ItemPath("tokens", i),
                        "expected a token id from 0 to " + std::to_string(model.tokenizer->vocab_size() - 1));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  const nlohmann::ordered_json answer = {{"prompt", model.tokenizer->Decode(ids, false)}};
  return answer.dump() + "\n";
}

HttpResponse ResponseOf(const Result<std::string>& body) {
  if (!body.ok()) return ErrorResponse(Protocol::kChat, ErrorOfStatus(body.status()));
  HttpResponse response;
  response.body = *body;
  return response;
}

}  // namespace

HttpResponse ApiService::Tokenize(const HttpRequest& request) const {
  return ResponseOf(TokenizeBody(parts_.model, options_.requests, request.body));
}

HttpResponse ApiService::Detokenize(const HttpRequest& request) const {
  return ResponseOf(DetokenizeBody(parts_.model, request.body));
}

}  // namespace deepinfer
