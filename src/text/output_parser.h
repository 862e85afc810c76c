// OutputParser: the model's output as it streams in -> reasoning, text and tool calls.
//
// Invariants, whatever the chunking of the input: (1) the concatenation of the events is the same; (2) only the longest
// possible beginning of a marker is held back; (3) no marker that the stage knows and no mark reaches an event; (4)
// each text of an event is whole characters; (5) the arguments of a call that has its kCallEnd are one JSON object that
// ParseJson reads; (6) the time is linear in the output.
// Thread-safety: one thread at a time; one parser per answer. Ownership: owns all it holds. Errors: none, malformed
// output is handled as docs/prompt-format.md, "Output", says. Source: docs/prompt-format.md.
#ifndef DEEPINFER_TEXT_OUTPUT_PARSER_H_
#define DEEPINFER_TEXT_OUTPUT_PARSER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/prompt_segments.h"

namespace deepinfer {

struct OutputEvent {
  enum class Kind : uint8_t {
    kReasoning,
    kText,
    kCallBegin,      ///< a call was named: `text` is the name
    kCallArguments,  ///< a piece of the JSON text of its arguments
    kCallEnd,        ///< its arguments are complete; a truncated call has none
  };
  Kind kind = Kind::kText;
  std::string text;
  int call = 0;  ///< index of the call in the answer, from 0
  bool operator==(const OutputEvent&) const = default;
};

struct OutputParserOptions {
  OutputStart start = OutputStart::kContentLead;
  bool parse_tool_calls = false;
  bool json_object = false;  ///< the answer is one JSON value, perhaps in a code fence
  /// UTF-8, matched in the answer's text only. The first to complete wins, on the same byte the one listed first; empty
  /// ones are ignored.
  std::vector<std::string> stop;
  /// Names that may be called, as rendered; a call of another name is dropped. Empty: every name.
  std::vector<std::string> tool_names;
  int64_t max_calls = 0;  ///< calls behind this many are dropped; 0: no limit
  /// How the two special tokens of the output are spelt in what Feed gets. The defaults take them from plain text. Who
  /// has token ids passes kDsmlMark and kEndThinkMark for the tokens, so that text that merely looks like one is text.
  std::string dsml = std::string(special_token::kDsml);
  std::string end_think = std::string(special_token::kEndThink);
};

class OutputParser {
 public:
  // No text contains these bytes: they are not UTF-8. A mark that its stage does not know is dropped, but for the DSML
  // mark of an answer without tools: that is text and spelt as usual.
  static constexpr std::string_view kDsmlMark = "\xFE";
  static constexpr std::string_view kEndThinkMark = "\xFF";

  explicit OutputParser(OutputParserOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  /// Takes more output (complete characters, Utf8Stream) and appends the events that it makes certain. Nothing is
  /// appended once done().
  void Feed(std::string_view output, std::vector<OutputEvent>* events);

  /// The end of the output. `complete`: the model ended it itself, so that an open call is closed into valid JSON; a
  /// truncated one (length, cancel) stays as it is. The parser is then done().
  void Finish(bool complete, std::vector<OutputEvent>* events);

  /// Nothing that follows can make an event (a stop sequence, the end of the calls, the last of max_calls), so
  /// generation can be cancelled.
  bool done() const;

  /// A stop sequence has completed.
  bool stopped() const;
  /// The stop sequence that completed; empty: none.
  const std::string& stop_sequence() const;
  /// Calls whose name was completed and that were not dropped.
  int calls() const;
  /// What follows now is reasoning.
  bool in_reasoning() const;
  /// What follows now is answer text (not reasoning and not a block of calls).
  bool in_text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_OUTPUT_PARSER_H_
