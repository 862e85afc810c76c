// What the four protocol parsers share: the neutral settings of a request and the choices of whoever runs the server.
//
// Thread-safety: values, plain data. Source: docs/prompt-format.md, "Requests".
#ifndef DEEPINFER_API_REQUEST_H_
#define DEEPINFER_API_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepinfer/generation.h"
#include "deepinfer/sampling_params.h"
#include "text/conversation.h"

namespace deepinfer {

inline constexpr int64_t kMostCacheTtlSeconds = int64_t{365} * 86'400;

/// What the client asked for besides the prompt, checked for range. An empty optional means that the client left it
/// open; the defaults depend on the model and are applied where the request is submitted.
struct RequestSettings {
  std::string model;

  // How tokens are chosen (deepinfer/sampling_params.h).
  std::optional<double> temperature;         ///< 0..2
  std::optional<double> top_p;               ///< > 0, <= 1
  std::optional<int64_t> top_k;              ///< >= 1, or 0 or -1 for all
  std::optional<double> min_p;               ///< 0..1
  std::optional<double> frequency_penalty;   ///< -2..2
  std::optional<double> presence_penalty;    ///< -2..2
  std::optional<double> repetition_penalty;  ///< > 0
  std::optional<int64_t> seed;               ///< >= 0
  std::vector<LogitBias> logit_bias;         ///< ids >= 0, each once
  std::vector<std::string> bad_words;        ///< none empty
  int64_t n = 1;                             ///< answers to each prompt, 1..128

  // What the text of the answer must belong to (docs/grammar.md).
  StructuredOutput structured_output;
  std::string grammar_field;  ///< that asked for it, for errors

  // When an answer ends.
  std::optional<int64_t> max_tokens;  ///< >= 1
  std::optional<int64_t> min_tokens;  ///< >= 0, at most max_tokens
  std::vector<std::string> stop;      ///< at most 16, none empty
  std::vector<int32_t> stop_token_ids;
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;
  std::optional<int64_t> max_tool_calls;  ///< >= 1: calls behind these are dropped

  // What is told about it.
  bool stream = false;
  bool include_usage = false;       ///< only with stream
  bool echo = false;                ///< Completions: repeat the prompt in front of the answer
  std::optional<int64_t> logprobs;  ///< alternatives per token, 0..20; nothing: no log probabilities

  // How the request is served.
  std::string user;  ///< whom the client serves with it, at most 512 characters; empty: not told
  std::string cache_salt;
  std::optional<int64_t> cache_ttl_seconds;  ///< 1 to kMostCacheTtlSeconds
  bool no_store = false;
  int64_t priority = 0;  ///< lower ones first; fits 32 bits
  std::optional<ReplayMode> replay;
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
  /// Fields that ask for output of a given grammar are skipped, as the reference code skips json_schema, not refused.
  bool ignore_schemas = false;
};

}  // namespace deepinfer

#endif  // DEEPINFER_API_REQUEST_H_
