// OpenAI Responses request (POST /v1/responses) -> neutral conversation and settings.
//
// Accepted fields, checks and their sources: docs/prompt-format.md, "Responses". Pure; callable from any thread.
#ifndef DEEPINFER_API_RESPONSES_REQUEST_H_
#define DEEPINFER_API_RESPONSES_REQUEST_H_

#include <functional>
#include <string>
#include <string_view>

#include "api/request.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// A parsed Responses request and what the server needs to keep the response.
struct ResponsesRequest : ConversationRequest {
  std::string previous_response_id;  ///< empty: none
  bool store = true;                 ///< keep the response
  std::string input_items;           ///< JSON array: the input of this request as items
  /// JSON array: all items that the conversation consists of, the earlier turns' first. With the response's output
  /// behind them (JoinItems) they are the earlier items of a request that continues this one.
  std::string items;
  /// JSON object: the members that the response repeats (AnswerHead::repeated_fields).
  std::string repeated_fields;
};

/// The items, a JSON array, that came before the end of a stored response; errors are passed on.
using StoredItems = std::function<Result<std::string>(const std::string& response_id)>;

/// Parses a request body. A fault of the client is kInvalidArgument, something that this build cannot do is
/// kUnsupported; both name the field (HTTP 400). Without `stored_items` a previous_response_id is refused.
Result<ResponsesRequest> ParseResponsesRequest(std::string_view body, const RequestOptions& options = {},
                                               const StoredItems& stored_items = nullptr);

/// The `output` of a response object (AnswerEncoder::StoredBody) as a JSON array.
Result<std::string> OutputItems(std::string_view response);

/// Two JSON arrays as one.
std::string JoinItems(std::string_view first, std::string_view second);

}  // namespace deepinfer

#endif  // DEEPINFER_API_RESPONSES_REQUEST_H_
