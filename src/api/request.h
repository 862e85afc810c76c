// What the four protocol parsers share: the neutral settings of a request and the choices of whoever runs the server.
//
// Thread-safety: values, plain data. Source: docs/prompt-format.md, "Requests".
#ifndef DEEPINFER_API_REQUEST_H_
#define DEEPINFER_API_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/conversation.h"

namespace deepinfer {

/// What the client asked for besides the prompt, checked for range. An empty optional means that the client left it
/// open; the defaults depend on the model and are applied where the request is submitted.
struct RequestSettings {
  std::string model;
  std::optional<int64_t> max_tokens;        ///< >= 1
  std::optional<double> temperature;        ///< 0..2
  std::optional<double> top_p;              ///< > 0, <= 1
  std::optional<double> frequency_penalty;  ///< -2..2
  std::optional<double> presence_penalty;   ///< -2..2
  std::optional<int64_t> seed;              ///< >= 0
  int64_t n = 1;                            ///< answers; only 1 is accepted
  std::vector<std::string> stop;            ///< at most 16, none empty
  bool stream = false;
  bool include_usage = false;       ///< only with stream
  bool echo = false;                ///< Completions: repeat the prompt in front of the answer
  std::optional<int64_t> logprobs;  ///< Completions: alternatives per token, 0..20
};

/// A parsed Chat Completions, Responses or Messages request.
struct ConversationRequest {
  Conversation conversation;
  RequestSettings settings;
};

enum class WebSearchTools { kReject, kIgnore };

/// The server's side of request parsing. The defaults are those of the hosted service or its reference code.
struct RequestOptions {
  bool thinking = true;  ///< when the request says nothing about thinking or effort
  int effort = kDefaultEffort;
  ReasoningHistory reasoning_history = ReasoningHistory::kAuto;
  /// Chat Completions: refuse an assistant turn with tool calls that comes back without its reasoning while thinking.
  bool require_reasoning_with_calls = false;
  WebSearchTools responses_web_search = WebSearchTools::kIgnore;
  WebSearchTools messages_web_search = WebSearchTools::kReject;
};

}  // namespace deepinfer

#endif  // DEEPINFER_API_REQUEST_H_
