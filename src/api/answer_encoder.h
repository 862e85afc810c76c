// AnswerEncoder: neutral output events -> the bytes of one protocol, as a stream of SSE events or as one JSON body.
//
// Order of calls: Start once, then for each choice any number of Add and one Finish (choices may interleave), then End
// once; or Fail at any point, after which nothing follows. When not streaming only End and Fail append anything.
// Thread-safety: one thread at a time. Ownership: owns all it holds. Errors: none.
// Source: docs/http-api.md (spec prompt-format.md section 7).
#ifndef DEEPINFER_API_ANSWER_ENCODER_H_
#define DEEPINFER_API_ANSWER_ENCODER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/api_error.h"
#include "api/token_logprobs.h"
#include "api/usage.h"
#include "text/conversation.h"
#include "text/output_parser.h"

namespace deepinfer {

/// What is new of one choice.
struct AnswerPiece {
  std::vector<OutputEvent> events;
  // When log probabilities were asked for: of the tokens behind `events`, in order.
  std::vector<TokenProbabilities> content_logprobs;  // of the answer, calls included
  std::vector<TokenProbabilities> reasoning_logprobs;
};

enum class AnswerFinish : uint8_t { kStop, kStopSequence, kLength, kToolCalls, kContentFilter, kEndOfStream };

struct AnswerEnd {
  AnswerFinish reason = AnswerFinish::kStop;
  std::string stop_sequence;  ///< with kStopSequence
};

/// What is known of an answer before it starts.
struct AnswerHead {
  Protocol protocol = Protocol::kChat;
  std::string id;     ///< of the response, unique, as the client sees it
  std::string model;  ///< as the client named it, or the served name
  int64_t created_unix_seconds = 0;
  std::string system_fingerprint;  ///< empty: null
  bool stream = false;
  bool include_usage = false;       ///< stream_options
  bool usage_in_own_chunk = false;  ///< Chat: usage as OpenAI sends it, in a last chunk without choices
  bool thinking = false;
  int64_t choices = 1;
  std::vector<std::string> echo;  ///< Completions: text in front of each choice; empty: none
  std::vector<std::vector<TokenProbabilities>> echo_logprobs;  ///< with `echo` and logprobs, of each choice
  bool logprobs = false;
  std::vector<Tool> tools;  ///< Responses: to name calls as the client does
  /// Responses: the JSON object whose members the response repeats (instructions, previous_response_id, metadata, ...);
  /// empty: none.
  std::string repeated_fields;
};

class AnswerEncoder {
 public:
  virtual ~AnswerEncoder() = default;

  /// `usage` with prompt_tokens and cached_tokens.
  virtual void Start(const Usage& usage, std::string* out) = 0;
  virtual void Add(int64_t choice, const AnswerPiece& piece, std::string* out) = 0;
  /// `usage` of the request so far; with the last choice it is final.
  virtual void Finish(int64_t choice, const AnswerEnd& end, const Usage& usage, std::string* out) = 0;
  virtual void End(const Usage& usage, std::string* out) = 0;
  /// An error event and a clean end of the stream, or the error's body.
  virtual void Fail(const ApiError& error, std::string* out) = 0;

  /// Responses: the finished response object, for the store; empty for other protocols.
  virtual std::string StoredBody() const { return ""; }
};

std::unique_ptr<AnswerEncoder> MakeAnswerEncoder(AnswerHead head);

}  // namespace deepinfer

#endif  // DEEPINFER_API_ANSWER_ENCODER_H_
