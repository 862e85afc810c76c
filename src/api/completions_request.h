// Legacy Completions request, with fill-in-the-middle (POST /v1/completions, /beta/completions).
//
// Accepted fields, checks and their sources: docs/prompt-format.md, "Completions". Pure; callable from any thread.
#ifndef DEEPINFER_API_COMPLETIONS_REQUEST_H_
#define DEEPINFER_API_COMPLETIONS_REQUEST_H_

#include <optional>
#include <string>
#include <string_view>

#include "api/request.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// Render with RenderCompletion(prompt, suffix).
struct CompletionsRequest {
  std::string prompt;
  std::optional<std::string> suffix;  ///< set, even when empty: fill in between prompt and suffix
  RequestSettings settings;
};

/// Parses a request body. Every fault of the client is kInvalidArgument (HTTP 400) with a message that names the field.
Result<CompletionsRequest> ParseCompletionsRequest(std::string_view body);

}  // namespace deepinfer

#endif  // DEEPINFER_API_COMPLETIONS_REQUEST_H_
