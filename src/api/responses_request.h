// OpenAI Responses request (POST /v1/responses) -> neutral conversation and settings.
//
// Accepted fields, checks and their sources: docs/prompt-format.md, "Responses". Pure; callable from any thread.
#ifndef DEEPINFER_API_RESPONSES_REQUEST_H_
#define DEEPINFER_API_RESPONSES_REQUEST_H_

#include <string_view>

#include "api/request.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// Parses a request body. Every fault of the client is kInvalidArgument (HTTP 400) with a message that names the field.
Result<ConversationRequest> ParseResponsesRequest(std::string_view body, const RequestOptions& options = {});

}  // namespace deepinfer

#endif  // DEEPINFER_API_RESPONSES_REQUEST_H_
