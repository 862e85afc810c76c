// OutputWriter: tokens of one answer -> its text in two parts, stop texts cut off.
//
// Thread-safety: one thread, the engine's. Ownership: the tokenizer outlives it.
#ifndef DEEPINFER_ENGINE_OUTPUT_WRITER_H_
#define DEEPINFER_ENGINE_OUTPUT_WRITER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "deepinfer/generation.h"
#include "engine/stop_matcher.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace deepinfer {

class OutputWriter {
 public:
  OutputWriter(const GenerationRequest& request, const Tokenizer& tokenizer);

  /// Appends the text that `token` makes certain. False when a stop text has completed; nothing may follow but Finish.
  bool Add(int32_t token, std::string* reasoning, std::string* content);

  /// The end of the answer: what was held back.
  void Finish(std::string* reasoning, std::string* content);

  /// The stop text that completed; empty: none.
  const std::string& stop_sequence() const { return stop_sequence_; }

 private:
  const Tokenizer& tokenizer_;
  std::optional<int32_t> end_of_reasoning_;
  bool in_reasoning_ = false;
  bool include_stop_ = false;
  int64_t tokens_without_stops_ = 0;  // left of those that may not end the answer (min_tokens)
  StopMatcher stops_;
  Utf8Stream characters_;
  std::string stop_sequence_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_OUTPUT_WRITER_H_
