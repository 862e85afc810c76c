#include "grammar/turn_grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/alphabet.h"
#include "grammar/front_end_rules.h"
#include "grammar/token_trie.h"
#include "text/json_text.h"
#include "text/prompt_segments.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

constexpr int kMaxCalls = 1000;

/// The form of the arguments, and what stands around calls.
struct Markup {
  std::string dsml = TokenTrie::ControlSpelling(kDsmlControl);
  std::string separator = "\n\n";
  std::string open_calls = fmt::format("<{} calls>\n", dsml);
  std::string close_calls = fmt::format("</{} calls>", dsml);
  std::string open_call = fmt::format("<{} invoke name=\"", dsml);
  std::string end_of_name = "\">\n";
  std::string close_call = fmt::format("</{} invoke>\n", dsml);

  ArgumentForm Arguments(const TurnTool& tool) const {
    ArgumentForm form;
    form.open = fmt::format("<{} parameter name=", dsml);
    form.string_open = " string=\"true\">";
    form.value_open = " string=\"false\">";
    form.close = fmt::format("</{} parameter>\n", dsml);
    form.empty.assign(1, '\n');
    form.not_in_strings = std::string(special_token::kDsml);
    form.undeclared_names = !tool.strict;
    return form;
  }
};

/// A schema that demands no more than the names that `schema` is sure to demand.
std::string Relaxed(const std::string& schema) {
  JsonValue::Object properties;
  JsonValue::Array required;
  bool others = true;
  const Result<JsonValue> parsed = ParseJson(schema);
  const JsonValue* declared = parsed.ok() ? parsed->Find("properties") : nullptr;
  if (declared != nullptr && declared->AsObject() != nullptr) {
    for (const JsonMember& member : *declared->AsObject()) {
      if (member.key.find('"') == std::string::npos) properties.push_back({member.key, JsonValue(true)});
    }
    const JsonValue* names = parsed->Find("required");
    if (names != nullptr && names->AsArray() != nullptr) {
      for (const JsonValue& name : *names->AsArray()) {
        const std::string* text = name.AsString();
        const auto is_named = [text](const JsonMember& member) { return *text == member.key; };
        if (text != nullptr && std::ranges::any_of(properties, is_named)) required.push_back(name);
      }
    }
    const JsonValue* additional = parsed->Find("additionalProperties");
    others = additional == nullptr || additional->AsBool() == nullptr || *additional->AsBool();
  }
  JsonValue::Object relaxed;
  relaxed.push_back({"type", JsonValue(std::string("object"))});
  relaxed.push_back({"properties", JsonValue(std::move(properties))});
  relaxed.push_back({"required", JsonValue(std::move(required))});
  relaxed.push_back({"additionalProperties", JsonValue(bool{others})});
  std::string text;
  AppendPythonJson(JsonValue(std::move(relaxed)), &text);
  return text;
}

class TurnCompiler {
 public:
  TurnCompiler(const TurnGrammarSpec& spec, const GrammarLimits& limits) : spec_(spec), limits_(limits) {
    for (const TurnTool& tool : spec.tools) schemas_.push_back(tool.parameters.empty() ? "{}" : tool.parameters);
    is_relaxed_.assign(schemas_.size(), false);
    content_options_ = spec.json;
    content_options_.plain_integers = true;
    argument_options_ = spec.json;
    argument_options_.max_whitespace = 0;
    argument_options_.item_separator = ", ";
    argument_options_.key_separator = ": ";
    argument_options_.strings = JsonSchemaOptions::Strings::kPython;
  }

  Result<Grammar> Compile() {
    DEEPINFER_RETURN_IF_ERROR(Check());
    while (true) {
      GrammarBuilder builder(limits_);
      bool relaxed = false;
      std::vector<int32_t> arguments;
      for (size_t i = 0; i < spec_.tools.size(); ++i) {
        const Result<int32_t> rule =
            AddArguments(schemas_[i], argument_options_, markup_.Arguments(spec_.tools[i]), &builder);
        if (rule.ok()) {
          arguments.push_back(*rule);
          continue;
        }
        DEEPINFER_RETURN_IF_ERROR(Relax(i, rule.status()));
        relaxed = true;
        if (!builder.CheckLimits().ok()) break;
      }
      if (relaxed) continue;
      DEEPINFER_ASSIGN_OR_RETURN(const int32_t content, AddContent(&builder));
      DEEPINFER_ASSIGN_OR_RETURN(const std::vector<bool> has_text, builder.RulesWithText());
      for (size_t i = 0; i < arguments.size(); ++i) {
        if (has_text[static_cast<size_t>(arguments[i])]) continue;
        DEEPINFER_RETURN_IF_ERROR(Relax(i, Status::InvalidArgument("no arguments satisfy the schema")));
        relaxed = true;
      }
      if (relaxed) continue;
      if (!has_text[static_cast<size_t>(content)] && spec_.content != TurnGrammarSpec::Content::kNone) {
        return Status::InvalidArgument("no text satisfies the format of the answer");
      }
      const int32_t root = AddTurn(content, arguments, &builder);
      return builder.Build(root, "no turn is possible");
    }
  }

 private:
  Status Check() const {
    if (spec_.content == TurnGrammarSpec::Content::kNone && spec_.tools.empty()) {
      return Status::InvalidArgument("a turn without text needs tools");
    }
    if (spec_.max_calls < 0 || spec_.max_calls > kMaxCalls) {
      return Status::InvalidArgument(fmt::format("a limit of calls is at most {}", kMaxCalls));
    }
    for (size_t i = 0; i < spec_.tools.size(); ++i) {
      const std::string& name = spec_.tools[i].name;
      if (!name.empty() && name.find('"') == std::string::npos && IsValidUtf8(name)) continue;
      return Status::Unsupported(
          fmt::format("tools[{}].function.name: cannot be called by the name {}", i, QuotedExcerpt(name)));
    }
    return Status::Ok();
  }

  /// Takes less than the schema of a tool that need not be followed; `status` for one that must, or again.
  Status Relax(size_t tool, const Status& status) {
    if (spec_.tools[tool].strict || is_relaxed_[tool]) {
      const std::string& path = spec_.tools[tool].path;
      return Status(status.code(),
                    fmt::format("{}: {}", path.empty() ? fmt::format("tools[{}].function.parameters", tool) : path,
                                status.message()));
    }
    is_relaxed_[tool] = true;
    schemas_[tool] = Relaxed(schemas_[tool]);
    return Status::Ok();
  }

  /// The text of an answer without calls.
  Result<int32_t> AddContent(GrammarBuilder* builder) const {
    if (spec_.content == TurnGrammarSpec::Content::kGrammar) {
      return AddStructuredOutput(spec_.format, content_options_, builder);
    }
    const int32_t rule = builder->AddRule();
    if (spec_.content == TurnGrammarSpec::Content::kFree) {
      const int32_t end = builder->AddState();
      builder->AddEdge(builder->StartOf(rule), FreeText(builder), end);
      builder->SetFinal(end);
    }
    return rule;
  }

  static Symbol FreeText(GrammarBuilder* builder) {
    return builder->AddTerminal(Alphabet(&builder->pool(), Alphabet::Spelling::kUtf8).AnyText());
  }
  static Symbol Text(const std::string& text, GrammarBuilder* builder) {
    return builder->AddTerminal(builder->pool().Text(text));
  }

  int32_t AddTurn(int32_t content, const std::vector<int32_t>& arguments, GrammarBuilder* builder) const {
    const int32_t root = builder->AddRule();
    const int32_t start = builder->StartOf(root);
    const int32_t end = builder->AddState();
    builder->SetFinal(end);
    builder->AddEdge(start, Symbol::Rule(content), end);
    if (arguments.empty()) return root;
    int32_t opened = builder->AddState();
    if (spec_.content == TurnGrammarSpec::Content::kFree) {
      // The newlines before the block are text: a model that writes more or fewer of them makes its call all the same.
      const int32_t behind_text = builder->AddState();
      builder->AddEdge(start, FreeText(builder), behind_text);
      builder->AddEdge(behind_text, Text(markup_.open_calls, builder), opened);
    } else {
      builder->AddEdge(start, Text(markup_.separator + markup_.open_calls, builder), opened);
    }
    const Symbol call = Symbol::Rule(AddCall(arguments, builder));
    const Symbol close = Text(markup_.close_calls, builder);
    for (int count = 0; count < std::max(spec_.max_calls, 1); ++count) {
      const int32_t called = builder->AddState();
      builder->AddEdge(opened, call, called);
      builder->AddEdge(called, close, end);
      if (spec_.max_calls == 0) builder->AddEdge(called, call, called);
      opened = called;
    }
    return root;
  }

  int32_t AddCall(const std::vector<int32_t>& arguments, GrammarBuilder* builder) const {
    const int32_t call = builder->AddRule();
    const int32_t opened = builder->AddState();
    const int32_t argued = builder->AddState();
    const int32_t end = builder->AddState();
    builder->SetFinal(end);
    builder->AddEdge(builder->StartOf(call), Text(markup_.open_call, builder), opened);
    for (size_t i = 0; i < arguments.size(); ++i) {
      const int32_t named = builder->AddState();
      builder->AddEdge(opened, Text(spec_.tools[i].name + markup_.end_of_name, builder), named);
      builder->AddEdge(named, Symbol::Rule(arguments[i]), argued);
    }
    builder->AddEdge(argued, Text(markup_.close_call, builder), end);
    return call;
  }

  const TurnGrammarSpec& spec_;
  GrammarLimits limits_;
  const Markup markup_;
  JsonSchemaOptions content_options_;
  JsonSchemaOptions argument_options_;
  std::vector<std::string> schemas_;  // of the tools
  std::vector<bool> is_relaxed_;
};

}  // namespace

Result<Grammar> CompileTurn(const TurnGrammarSpec& spec, const GrammarLimits& limits) {
  return TurnCompiler(spec, limits).Compile();
}

}  // namespace deepinfer
