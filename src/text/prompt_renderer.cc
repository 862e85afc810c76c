#include "text/prompt_renderer.h"

#include <algorithm>
#include <map>

namespace deepinfer {
namespace {

constexpr std::string_view kToolsHead =
    R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kToolsTail =
    "\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";
constexpr std::string_view kJsonObjectBlock =
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{\"type\": "
    "\"json_object\"}";
constexpr std::string_view kCallsOpening = "\n\n<｜DSML｜ calls>\n";
constexpr std::string_view kInvokeOpening = "<｜DSML｜ invoke name=\"";
constexpr std::string_view kPartSeparator = "\n\n";

bool OpensUserTurn(Role role) { return role == Role::kUser || role == Role::kTool; }

// Tool results that stand in one run of user and tool messages, put into the order of the calls that they answer.
void SortToolResults(std::vector<const Message*>* messages) {
  std::map<std::string_view, size_t> position;  // of a call id in the last assistant turn with calls
  const auto position_of = [&](const Message* message) {
    const auto found = position.find(message->tool_call_id);
    return found == position.end() ? size_t{0} : found->second;
  };
  for (size_t begin = 0; begin < messages->size();) {
    const Message& message = *(*messages)[begin];
    if (message.role == Role::kAssistant && !message.tool_calls.empty()) {
      position.clear();
      for (size_t i = 0; i < message.tool_calls.size(); ++i) position[message.tool_calls[i].id] = i;
    }
    size_t end = begin;
    std::vector<const Message*> results;
    for (; end < messages->size() && OpensUserTurn((*messages)[end]->role); ++end) {
      if ((*messages)[end]->role == Role::kTool) results.push_back((*messages)[end]);
    }
    std::stable_sort(results.begin(), results.end(),
                     [&](const Message* a, const Message* b) { return position_of(a) < position_of(b); });
    size_t next = 0;
    for (size_t i = begin; i < end; ++i) {
      if ((*messages)[i]->role == Role::kTool) (*messages)[i] = results[next++];
    }
    begin = std::max(end, begin + 1);
  }
}

// The arguments as an object. Like DeepSeek's encoder this also reads an object that was encoded twice; anything else
// is shown as one string.
JsonValue::Object ArgumentsObject(const std::string& arguments) {
  Result<JsonValue> parsed = ParseJson(arguments);
  if (parsed.ok() && parsed->AsString() != nullptr) parsed = ParseJson(std::string(*parsed->AsString()));
  if (parsed.ok() && parsed->AsObject() != nullptr) return *parsed->AsObject();
  return {{"arguments", JsonValue(arguments)}};
}

class Renderer {
 public:
  explicit Renderer(const Conversation& conversation) : conversation_(conversation), builder_(&prompt_) {
    empty_system_.role = Role::kSystem;
  }

  Result<Prompt> Render() {
    DEEPINFER_RETURN_IF_ERROR(CheckSettings());
    DEEPINFER_RETURN_IF_ERROR(CollectMessages());

    builder_.Special(special_token::kBeginOfSentence);
    for (size_t i = 0; i < messages_.size(); ++i) RenderMessage(i);
    const Message& last = *messages_.back();
    if (last.role == Role::kAssistant && last.prefix) {
      SetStartAfterPrefix(last);
    } else {
      builder_.Special(special_token::kAssistant);
      builder_.Special(conversation_.thinking ? special_token::kThink : special_token::kEndThink);
      prompt_.start = conversation_.thinking ? OutputStart::kThinkLead : OutputStart::kContentLead;
    }
    // Reasoning comes first; the call behind it is the grammar's matter.
    const bool reasons = prompt_.start == OutputStart::kThinkLead || prompt_.start == OutputStart::kThink;
    if (conversation_.tool_choice == ToolChoice::kRequired && !reasons) {
      builder_.Template(kCallsOpening);
      prompt_.start = OutputStart::kCalls;
    }
    prompt_.parse_tool_calls = shows_tools_;
    return std::move(prompt_);
  }

 private:
  Status CheckSettings() {
    shows_tools_ = conversation_.tool_choice != ToolChoice::kNone && !conversation_.tools.empty();
    if (conversation_.effort < kMinEffort || conversation_.effort > kMaxEffort) {
      return Status::InvalidArgument("effort: expected " + std::to_string(kMinEffort) + " to " +
                                     std::to_string(kMaxEffort) + ", found " + std::to_string(conversation_.effort));
    }
    if (conversation_.tool_choice != ToolChoice::kRequired) return Status::Ok();
    if (conversation_.tools.empty()) {
      return Status::InvalidArgument("tool_choice: a tool call is required but tools is empty");
    }
    const auto is_named = [&](const Tool& tool) { return tool.name == conversation_.named_tool; };
    if (!conversation_.named_tool.empty() &&
        std::none_of(conversation_.tools.begin(), conversation_.tools.end(), is_named)) {
      std::string message = "tool_choice: tools has no tool named ";
      AppendPythonString(conversation_.named_tool, &message);
      return Status::InvalidArgument(std::move(message));
    }
    return Status::Ok();
  }

  // Fills messages_: a system turn first when there is something to show in it, tool results in the order of their
  // calls.
  Status CollectMessages() {
    const std::vector<Message>& given = conversation_.messages;
    const bool needs_system = shows_tools_ || conversation_.response_format == ResponseFormat::kJsonObject;
    if (needs_system && (given.empty() || given.front().role != Role::kSystem)) messages_.push_back(&empty_system_);
    for (size_t i = 0; i < given.size(); ++i) {
      const Message& message = given[i];
      const std::string field = "messages[" + std::to_string(i) + "]";
      if (message.prefix && (message.role != Role::kAssistant || i + 1 != given.size())) {
        return Status::InvalidArgument(field + ".prefix: only an assistant message at the end can be a prefix");
      }
      if (!OpensUserTurn(message.role) && std::any_of(message.content.begin(), message.content.end(),
                                                      [](const ContentPart& part) { return part.image.has_value(); })) {
        return Status::InvalidArgument(field + ".content: images can stand in user and tool messages only");
      }
      messages_.push_back(&message);
    }
    if (messages_.empty()) return Status::InvalidArgument("messages: expected at least one message, found none");
    SortToolResults(&messages_);

    for (size_t i = 0; i < messages_.size(); ++i) {
      const Role role = messages_[i]->role;
      if (OpensUserTurn(role) || (role == Role::kSystem && i > 0)) turn_boundary_ = i;
    }
    return Status::Ok();
  }

  void RenderMessage(size_t index) {
    const Message& message = *messages_[index];
    if (index == 0 && (conversation_.thinking || message.role == Role::kSystem)) {
      builder_.Special(special_token::kSystem);
      if (conversation_.thinking) {
        builder_.Text("Reasoning Effort: " + std::to_string(conversation_.effort) +
                      " (range 1-100, the higher the value, the more thorough the reasoning)\n\n");
      }
    }
    switch (message.role) {
      case Role::kSystem:
        if (index > 0) builder_.Special(special_token::kSystem);
        RenderContent(message);
        if (index == 0) RenderSystemBlocks();
        break;
      case Role::kUser:
        RenderUserOpening(index);
        RenderContent(message);
        break;
      case Role::kTool:
        RenderUserOpening(index);
        builder_.Text("<tool_result>");
        RenderContent(message);
        builder_.Text("</tool_result>");
        break;
      case Role::kLatestReminder:
        builder_.Special(special_token::kLatestReminder);
        RenderContent(message);
        break;
      case Role::kAssistant:
        RenderAssistant(index);
        break;
    }
  }

  void RenderUserOpening(size_t index) {
    if (index > 0 && OpensUserTurn(messages_[index - 1]->role)) {
      builder_.Text(kPartSeparator);
    } else {
      builder_.Special(special_token::kUser);
    }
  }

  void RenderContent(const Message& message) {
    bool first = true;
    for (const ContentPart& part : message.content) {
      if (!first) builder_.Text(kPartSeparator);
      first = false;
      if (part.image.has_value()) {
        builder_.Image(*part.image);
      } else if (message.role == Role::kAssistant) {
        builder_.AssistantText(part.text);
      } else {
        builder_.Text(part.text);
      }
    }
  }

  void RenderSystemBlocks() {
    if (shows_tools_) {
      builder_.Text(kPartSeparator);
      builder_.Template(kToolsHead);
      for (const Tool& tool : conversation_.tools) {
        if (!conversation_.named_tool.empty() && tool.name != conversation_.named_tool) continue;
        std::string line = "{\"name\": ";
        AppendPythonString(tool.name, &line);
        line += ", \"description\": ";
        AppendPythonString(tool.description, &line);
        line += ", \"parameters\": ";
        AppendPythonJson(tool.parameters, &line);
        line += "}\n";
        builder_.Text(line);
      }
      builder_.Text(kToolsTail);
    }
    if (conversation_.response_format == ResponseFormat::kJsonObject) builder_.Text(kJsonObjectBlock);
  }

  bool KeepsReasoning(size_t index) const {
    if (index == 0) return false;
    if (!turn_boundary_.has_value() || index > *turn_boundary_) return true;
    return conversation_.reasoning_history == ReasoningHistory::kKeep ||
           (conversation_.reasoning_history == ReasoningHistory::kAuto && shows_tools_);
  }

  void RenderAssistant(size_t index) {
    const Message& message = *messages_[index];
    builder_.Special(special_token::kAssistant);
    if (conversation_.thinking && (message.prefix || KeepsReasoning(index))) {
      builder_.Special(special_token::kThink);
      builder_.AssistantText(message.reasoning);
      if (message.prefix && TextOf(message).empty() && message.tool_calls.empty()) return;  // reasoning goes on
    }
    builder_.Special(special_token::kEndThink);
    RenderContent(message);
    RenderCalls(message.tool_calls);
    if (!message.prefix) builder_.Special(special_token::kEndOfSentence);
  }

  void RenderCalls(const std::vector<ToolCall>& calls) {
    if (calls.empty()) return;
    builder_.Template(kCallsOpening);
    for (const ToolCall& call : calls) {
      builder_.Template(kInvokeOpening);
      builder_.Text(call.name);
      builder_.Text("\">\n");
      const JsonValue::Object arguments = ArgumentsObject(call.arguments);
      for (const JsonMember& argument : arguments) RenderArgument(argument);
      if (arguments.empty()) builder_.Text("\n");
      builder_.Template("</｜DSML｜ invoke>\n");
    }
    builder_.Template("</｜DSML｜ calls>");
  }

  void RenderArgument(const JsonMember& argument) {
    const std::string* string = argument.value.AsString();
    builder_.Template("<｜DSML｜ parameter name=\"");
    builder_.Text(argument.key);
    builder_.Text(string != nullptr ? "\" string=\"true\">" : "\" string=\"false\">");
    if (string != nullptr) {
      builder_.Text(*string);
    } else {
      std::string json;
      AppendPythonJson(argument.value, &json);
      builder_.Text(json);
    }
    builder_.Template("</｜DSML｜ parameter>\n");
  }

  void SetStartAfterPrefix(const Message& message) {
    const bool has_text = !TextOf(message).empty() || !message.tool_calls.empty();
    if (has_text) {
      prompt_.start = OutputStart::kContent;
    } else if (!conversation_.thinking) {
      prompt_.start = OutputStart::kContentLead;
    } else {
      prompt_.start = message.reasoning.empty() ? OutputStart::kThinkLead : OutputStart::kThink;
    }
  }

  const Conversation& conversation_;
  Message empty_system_;
  std::vector<const Message*> messages_;  // of conversation_, or &empty_system_
  std::optional<size_t> turn_boundary_;   // last user, tool or later system message: what the next answer answers
  bool shows_tools_ = false;
  Prompt prompt_;
  PromptBuilder builder_;
};

}  // namespace

Result<Prompt> RenderPrompt(const Conversation& conversation) { return Renderer(conversation).Render(); }

Prompt ForcedCallSegments(std::string_view name) {
  Prompt prompt;
  PromptBuilder builder(&prompt);
  builder.Template(kCallsOpening);
  if (!name.empty()) {
    builder.Template(kInvokeOpening);
    builder.Text(name);
    builder.Text("\">\n");
  }
  prompt.start = OutputStart::kCalls;
  prompt.parse_tool_calls = true;
  return prompt;
}

Prompt RenderCompletion(std::string_view text, const std::optional<std::string>& suffix) {
  Prompt prompt;
  PromptBuilder builder(&prompt);
  builder.Special(special_token::kBeginOfSentence);
  if (suffix.has_value()) builder.Special(special_token::kFimBegin);
  builder.Text(text);
  if (suffix.has_value()) {
    builder.Special(special_token::kFimHole);
    builder.Text(*suffix);
    builder.Special(special_token::kFimEnd);
  }
  prompt.start = OutputStart::kContent;
  return prompt;
}

}  // namespace deepinfer
