// AnswerReader: token ids of one choice -> output events, token counts and log probabilities for the encoder.
//
// Control tokens are recognised by their ids: text that merely spells one is text. Thread-safety: one thread at a time.
// Ownership: the model outlives it.
#ifndef DEEPINFER_SERVER_ANSWER_READER_H_
#define DEEPINFER_SERVER_ANSWER_READER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "api/answer_encoder.h"
#include "deepinfer/generation.h"
#include "server/served_model.h"
#include "text/output_parser.h"
#include "text/utf8_stream.h"

namespace deepinfer {

struct AnswerReaderOptions {
  /// Without one (Completions) the output is plain text and stop texts are the engine's matter.
  std::optional<OutputParserOptions> parser;
  bool include_stop = false;     ///< the stop text is part of the answer
  bool count_end_token = false;  ///< ignore_eos: the end-of-sentence token is a token like others
};

/// `position` with the bytes of its tokens.
TokenProbabilities Probabilities(const Tokenizer& tokenizer, const PositionLogprobs& position);

class AnswerReader {
 public:
  AnswerReader(const ServedModel& model, const AnswerReaderOptions& options);

  /// Takes sampled ids and, when asked for, one entry of `logprobs` for each. False: nothing that follows
  /// could change the answer.
  bool Add(std::span<const int32_t> ids, std::span<const PositionLogprobs> logprobs, AnswerPiece* piece);

  /// Takes the beginning of the answer that stands in the prompt: its events come with the next piece, its tokens do
  /// not count.
  void Open(std::span<const int32_t> ids);

  /// Text of a plain answer, where stop texts were cut off by the engine.
  void AddText(const std::string& text, AnswerPiece* piece);

  /// The end. `reason` is the engine's; not kCancelled or kError.
  AnswerEnd Finish(FinishReason reason, const std::string& stop_sequence, AnswerPiece* piece);

  int64_t completion_tokens() const { return completion_tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  /// What follows is still reasoning and no call was made.
  bool in_reasoning() const { return parser_.has_value() && parser_->in_reasoning(); }
  void FeedText(const std::string& text, AnswerPiece* piece);

  const ServedModel& model_;
  AnswerReaderOptions options_;
  std::optional<OutputParser> parser_;
  Utf8Stream characters_;
  AnswerPiece opening_;  // what Open has read, until it is told
  int64_t completion_tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_ANSWER_READER_H_
