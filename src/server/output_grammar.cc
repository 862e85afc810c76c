#include "server/output_grammar.h"

#include <algorithm>
#include <span>
#include <string>

#include "api/json_reader.h"
#include "grammar/matcher.h"
#include "grammar/turn_grammar.h"

namespace deepinfer {
namespace {

std::string PathOfParameters(Protocol protocol, size_t tool) {
  const std::string_view field = protocol == Protocol::kMessages    ? "input_schema"
                                 : protocol == Protocol::kResponses ? "parameters"
                                                                    : "function.parameters";
  return ItemPath("tools", tool).append(".").append(field);
}

// No tools: no grammar is needed for calls.
TurnGrammarSpec SpecOf(const ConversationRequest& request, const Prompt& prompt, Protocol protocol) {
  const Conversation& conversation = request.conversation;
  const RequestSettings& settings = request.settings;
  TurnGrammarSpec spec;
  if (conversation.tool_choice == ToolChoice::kRequired) {
    spec.content = TurnGrammarSpec::Content::kNone;
  } else if (settings.structured_output.wanted()) {
    spec.content = TurnGrammarSpec::Content::kGrammar;
    spec.format = settings.structured_output;
  }
  bool any_strict = false;
  for (size_t i = 0; prompt.parse_tool_calls && i < conversation.tools.size(); ++i) {
    const Tool& tool = conversation.tools[i];
    if (!conversation.named_tool.empty() && tool.name != conversation.named_tool) continue;
    TurnTool& callable = spec.tools.emplace_back();
    callable.name = tool.name;
    AppendPythonJson(tool.parameters, &callable.parameters);
    callable.strict = tool.strict;
    callable.path = PathOfParameters(protocol, i);
    any_strict = any_strict || tool.strict;
  }
  spec.max_calls = static_cast<int>(std::min<int64_t>(settings.max_tool_calls.value_or(0), 128));
  // Free text and calls of lenient tools need no grammar: what is malformed the output parser mends.
  if (spec.content == TurnGrammarSpec::Content::kFree && !any_strict) spec.tools.clear();
  return spec;
}

std::string KeyOf(const TurnGrammarSpec& spec) {
  std::string key = "turn";
  for (const int number : {static_cast<int>(spec.content), static_cast<int>(spec.format.kind), spec.max_calls}) {
    key.append(" ").append(std::to_string(number));
  }
  const auto add = [&](std::string_view text) {
    key.append(" ").append(std::to_string(text.size())).append(":").append(text);
  };
  add(spec.format.source);
  for (const TurnTool& tool : spec.tools) {
    add(tool.name);
    add(tool.parameters);
    add(tool.path);  // errors name it
    key += tool.strict ? "!" : "?";
  }
  return key;
}

// Says which field the grammar came from.
Status WithField(const std::string& field, const Status& status) {
  return Status(status.code(), field + ": " + status.message());
}

Status CheckServed(const ServedModel& model, const std::string& field) {
  if (model.grammars != nullptr) return Status::Ok();
  return Status::Unsupported(field + ": this server enforces no grammars");
}

}  // namespace

Status ConstrainAnswer(const ServedModel& model, const ConversationRequest& request, Protocol protocol,
                       const Prompt& prompt, int64_t constrained_tokens, GenerationRequest* generation) {
  const TurnGrammarSpec spec = SpecOf(request, prompt, protocol);
  const StructuredOutput& format = request.settings.structured_output;
  if (spec.tools.empty()) {
    if (!format.wanted()) return Status::Ok();
    DEEPINFER_RETURN_IF_ERROR(ConstrainText(model, request.settings, generation));
  } else {
    DEEPINFER_RETURN_IF_ERROR(CheckServed(model, "tools"));
    // Alone first, so that an error of the format names its field.
    if (spec.content == TurnGrammarSpec::Content::kGrammar) {
      DEEPINFER_RETURN_IF_ERROR(ConstrainText(model, request.settings, generation));
    }
    DEEPINFER_ASSIGN_OR_RETURN(generation->grammar,
                               model.grammars->Get(KeyOf(spec), [spec] { return CompileTurn(spec); }));
  }
  // A contradiction is told now, not by an answer that fails.
  Matcher matcher(generation->grammar, {});
  for (const int32_t id : std::span(generation->prompt).last(static_cast<size_t>(constrained_tokens))) {
    DEEPINFER_ASSIGN_OR_RETURN(const bool admitted, matcher.Accept(id));
    if (!admitted) return FieldError("messages", "the assistant's prefix is no beginning of what the format allows");
  }
  generation->constrained_prompt_tokens = constrained_tokens;
  generation->starts_in_reasoning = prompt.start == OutputStart::kThinkLead || prompt.start == OutputStart::kThink;
  generation->end_of_reasoning = model.end_think;
  if (model.dsml >= 0) generation->barred_in_reasoning = {model.dsml};
  return Status::Ok();
}

Status ConstrainText(const ServedModel& model, const RequestSettings& settings, GenerationRequest* generation) {
  if (!settings.structured_output.wanted()) return Status::Ok();
  DEEPINFER_RETURN_IF_ERROR(CheckServed(model, settings.grammar_field));
  Result<std::shared_ptr<const CompiledGrammar>> grammar = model.grammars->Get(settings.structured_output);
  if (!grammar.ok()) return WithField(settings.grammar_field, grammar.status());
  generation->grammar = *grammar;
  return Status::Ok();
}

}  // namespace deepinfer
