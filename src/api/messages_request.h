// Anthropic Messages request (POST /v1/messages) -> neutral conversation and settings.
//
// Accepted fields, checks and their sources: docs/prompt-format.md, "Messages". Pure; callable from any thread.
#ifndef DEEPINFER_API_MESSAGES_REQUEST_H_
#define DEEPINFER_API_MESSAGES_REQUEST_H_

#include <string_view>

#include "api/request.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// Parses a request body, also of count_tokens, which has no max_tokens. A fault of the client is kInvalidArgument,
/// something that this build cannot do is kUnsupported; both name the field (HTTP 400).
Result<ConversationRequest> ParseMessagesRequest(std::string_view body, const RequestOptions& options = {});

}  // namespace deepinfer

#endif  // DEEPINFER_API_MESSAGES_REQUEST_H_
