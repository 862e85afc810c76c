// Legacy Completions request, with fill-in-the-middle (POST /v1/completions, /beta/completions).
//
// Accepted fields, checks and their sources: docs/prompt-format.md, "Completions". Pure; callable from any thread.
#ifndef DEEPINFER_API_COMPLETIONS_REQUEST_H_
#define DEEPINFER_API_COMPLETIONS_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/request.h"
#include "deepinfer/status.h"

namespace deepinfer {

/// Text, or token ids that are the whole prompt: nothing is put in front of them.
using CompletionPrompt = std::variant<std::string, std::vector<int32_t>>;

/// Choice `p * n + i` of the answer is answer i to prompt p. Render a text with RenderCompletion(text, suffix).
struct CompletionsRequest {
  std::vector<CompletionPrompt> prompts;  ///< at least one; no ids without an id
  std::optional<std::string> suffix;      ///< set, even when empty: fill in behind the only prompt, a text
  RequestSettings settings;
};

/// Answers of one request, over all of its prompts.
inline constexpr int64_t kMaxCompletionChoices = 1024;

/// Parses a request body. A fault of the client is kInvalidArgument, something that this build cannot do is
/// kUnsupported; both name the field (HTTP 400).
Result<CompletionsRequest> ParseCompletionsRequest(std::string_view body, const RequestOptions& options = {});

}  // namespace deepinfer

#endif  // DEEPINFER_API_COMPLETIONS_REQUEST_H_
