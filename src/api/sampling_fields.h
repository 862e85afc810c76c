// Readers of the request fields that vLLM adds to OpenAI's, and of those that say how a request is served.
//
// Errors name the field (json_reader.h). Thread-safety: pure functions. Ownership: results own their texts; the JSON
// they read must outlive the call. Source: docs/http-api.md, "Fields of vLLM".
#ifndef DEEPINFER_API_SAMPLING_FIELDS_H_
#define DEEPINFER_API_SAMPLING_FIELDS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "api/json_reader.h"
#include "api/request.h"

namespace deepinfer {

/// top_k, min_p, repetition_penalty, logit_bias, bad_words, min_tokens, stop_token_ids, include_stop_str_in_output and
/// ignore_eos. To be read after max_tokens.
Status ReadSamplingFields(const ObjectReader& body, RequestSettings* settings);

/// cache_salt, cache_ttl (or OpenAI's prompt_cache_retention), no_store, priority and replay.
Status ReadServingFields(const ObjectReader& body, RequestSettings* settings);

/// Whom the client serves, in the field `key`; stays as it is when the field is not given.
Status ReadUser(const ObjectReader& holder, std::string_view key, RequestSettings* settings);

/// A token id: an integer from 0 on. Whether the vocabulary has it is checked where the tokenizer is known.
Result<int32_t> ReadTokenId(const JsonValue& value, std::string_view path);

}  // namespace deepinfer

#endif  // DEEPINFER_API_SAMPLING_FIELDS_H_
