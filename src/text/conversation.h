// The neutral conversation: what every protocol adapter and the command line produce and the prompt renderer consumes.
//
// It knows no protocol and no token. Texts are UTF-8 exactly as the user gave them; nothing in them is markup.
// Source: docs/prompt-format.md. Thread-safety: values, plain data. Ownership: a Conversation owns all it holds.
#ifndef DEEPINFER_TEXT_CONVERSATION_H_
#define DEEPINFER_TEXT_CONVERSATION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_text.h"

namespace deepinfer {

enum class Role { kSystem, kUser, kAssistant, kTool, kLatestReminder };

/// Where the pixels of an image come from; fetching and decoding happen elsewhere.
struct ImageSource {
  std::string url;     ///< http(s) address or data URL
  std::string detail;  ///< "low", "high", "auto", or empty
};

/// One part of a message. The text of a message is its parts joined by two newlines.
struct ContentPart {
  std::string text;
  std::optional<ImageSource> image;  ///< when set, the part is an image and `text` is not used
};

/// A call that an assistant turn of the history made.
struct ToolCall {
  std::string id;
  std::string name;       ///< as rendered: `name`, or `namespace::name`
  std::string arguments;  ///< JSON text as received; anything but an object is shown to the model as one string
};

struct Message {
  Role role = Role::kUser;
  std::vector<ContentPart> content;
  std::string reasoning;             ///< assistant only
  std::vector<ToolCall> tool_calls;  ///< assistant only
  std::string tool_call_id;          ///< tool only: the call that this result answers
  /// Assistant only, last message only: the model continues this text instead of starting a turn.
  bool prefix = false;
};

/// A function that the model may call.
struct Tool {
  std::string name;  ///< as rendered: `name`, or `namespace::name`, unique in a conversation
  std::string description;
  JsonValue parameters = JsonValue(JsonValue::Object());  ///< JSON Schema, an object
  bool strict = false;                                    ///< arguments must follow the schema; not rendered
  std::string tool_namespace;  ///< the namespace and the name in it, to name calls as the client does
  std::string local_name;
  bool custom = false;  ///< a Responses custom tool: its single string argument `input` is the call's text
};

enum class ToolChoice {
  kAuto,
  kNone,     ///< tools are not shown
  kRequired  ///< the answer is a call
};

enum class ResponseFormat { kText, kJsonObject };

/// Which earlier reasoning the prompt repeats.
enum class ReasoningHistory {
  kAuto,  ///< all of it when tools are shown, else only what follows the last user turn (what the model was trained on)
  kKeep,  ///< all of it
  kDrop   ///< only what follows the last user turn
};

inline constexpr int kMinEffort = 1;
inline constexpr int kMaxEffort = 100;
inline constexpr int kDefaultEffort = 75;

struct Conversation {
  std::vector<Message> messages;
  bool thinking = true;
  int effort = kDefaultEffort;  ///< kMinEffort..kMaxEffort, shown to the model when thinking
  std::vector<Tool> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  std::string named_tool;  ///< with kRequired: the only tool shown; empty for any
  ResponseFormat response_format = ResponseFormat::kText;
  ReasoningHistory reasoning_history = ReasoningHistory::kAuto;
};

/// The effort that a name stands for: minimal, low 50; medium, high, xhigh 75; max, ultra 100.
std::optional<int> EffortByName(std::string_view name);

/// The message's texts joined by two newlines, images left out.
std::string TextOf(const Message& message);

/// Starts an interactive chat. An empty `system` adds no system turn.
Conversation NewChat(std::string system, bool thinking, int effort = kDefaultEffort);
void AppendUserTurn(std::string text, Conversation* conversation);
/// Appends a finished answer. What of `reasoning` later prompts repeat is the conversation's reasoning_history.
void AppendAssistantTurn(std::string answer, std::string reasoning, Conversation* conversation);

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_CONVERSATION_H_
