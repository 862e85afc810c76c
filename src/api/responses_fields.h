// The fields of a Responses request besides its conversation: what is stored, told and repeated in the response.
//
// Errors name the field (json_reader.h). Thread-safety: pure functions. Ownership: results own their texts; the JSON
// they read must outlive the call.
#ifndef DEEPINFER_API_RESPONSES_FIELDS_H_
#define DEEPINFER_API_RESPONSES_FIELDS_H_

#include <string>

#include "api/json_reader.h"
#include "api/responses_request.h"

namespace deepinfer {

/// previous_response_id, store, metadata, include, top_logprobs, truncation, parallel_tool_calls and max_tool_calls;
/// refuses background, conversation and prompt.
Status ReadResponsesFields(const ObjectReader& body, ResponsesRequest* request);

/// Appends the JSON object of the members that the response repeats from its request, with OpenAI's defaults.
void AppendRepeatedFields(const ObjectReader& body, const ResponsesRequest& request, std::string* out);

}  // namespace deepinfer

#endif  // DEEPINFER_API_RESPONSES_FIELDS_H_
