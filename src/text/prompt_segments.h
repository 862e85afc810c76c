// A prompt as an ordered list of segments, each one special token or plain text, and its token ids.
//
// This is the defence against prompt injection: a control token can only come from a special segment, and special
// segments are made by the renderer alone. Text segments are tokenised without ever matching added tokens, so whatever
// a user, a tool result or a schema spells out stays text. Source: docs/prompt-format.md, "Segments".
//
// Thread-safety: values, plain data. Ownership: a Prompt owns its texts.
#ifndef DEEPINFER_TEXT_PROMPT_SEGMENTS_H_
#define DEEPINFER_TEXT_PROMPT_SEGMENTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"
#include "text/conversation.h"

namespace deepinfer {

class Tokenizer;

/// Spellings of the special tokens that prompts use. `｜` is U+FF5C and `▁` is U+2581.
namespace special_token {
inline constexpr std::string_view kBeginOfSentence = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystem = "<｜System｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kLatestReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kEndThink = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";
inline constexpr std::string_view kImage = "<｜deepseek_image｜>";
inline constexpr std::string_view kFimBegin = "<｜fim▁begin｜>";
inline constexpr std::string_view kFimHole = "<｜fim▁hole｜>";
inline constexpr std::string_view kFimEnd = "<｜fim▁end｜>";
/// Marks of image regions; special in assistant turns, where the model itself wrote them.
inline constexpr std::string_view kGrounding[] = {"<｜ref｜>",   "<｜/ref｜>",   "<｜box｜>",     "<｜/box｜>",
                                                  "<｜point｜>", "<｜/point｜>", "<｜polygon｜>", "<｜/polygon｜>"};
}  // namespace special_token

struct PromptSegment {
  bool special;      ///< `text` is the spelling of one special token
  std::string text;  ///< never empty
  bool operator==(const PromptSegment&) const = default;
};

/// Where the parser of the model's output starts.
enum class OutputStart {
  kThinkLead,    ///< in reasoning, at its very beginning
  kThink,        ///< in reasoning that the prompt began
  kContentLead,  ///< in the answer, at its very beginning
  kContent,      ///< in an answer that the prompt began
  kCalls         ///< inside a block of tool calls that the prompt opened
};

struct Prompt {
  std::vector<PromptSegment> segments;  ///< no two text segments are neighbours
  /// One per image placeholder segment, in order.
  std::vector<ImageSource> images;
  OutputStart start = OutputStart::kContentLead;
  bool parse_tool_calls = false;  ///< tools were shown, so call markup in the output is a call

  /// The string form, for logs and tests. It is ambiguous where a user spells out a special token: the ids are not.
  std::string Text() const;
};

/// Appends segments and keeps neighbouring texts in one segment, so that they are tokenised together.
class PromptBuilder {
 public:
  explicit PromptBuilder(Prompt* prompt) : prompt_(prompt) {}

  void Special(std::string_view token);
  /// Text that stays text whatever it spells.
  void Text(std::string_view text);
  /// Fixed text of the prompt format: the DSML mark and the think marks in it are special tokens.
  void Template(std::string_view text);
  /// Text of an assistant turn: grounding marks in it are special tokens.
  void AssistantText(std::string_view text);
  void Image(const ImageSource& image);

 private:
  Prompt* prompt_;  // not owned
};

/// The token ids of `prompt`; kNotFound naming a special token that the tokenizer does not have.
Result<std::vector<int32_t>> PromptIds(const Prompt& prompt, const Tokenizer& tokenizer);

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_PROMPT_SEGMENTS_H_
