// The grammar of a turn: random turns by the masks are parsed by the output parser into calls that may be made, whose
// arguments satisfy their schema, and that the prompt renderer writes with the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "grammar/turn_grammar.h"
#include "grammar_fixture.h"
#include "text/output_parser.h"
#include "text/prompt_renderer.h"
#include "tokenizer_fixture.h"

namespace deepinfer::testing {
namespace {

using Kind = OutputEvent::Kind;
using Content = TurnGrammarSpec::Content;

const std::string kWeather = R"({"type": "object", "properties": {
    "city": {"type": "string", "minLength": 1, "maxLength": 12},
    "unit": {"enum": ["celsius", "fahrenheit"]},
    "days": {"type": "integer", "minimum": 1, "maximum": 14}},
    "required": ["city", "days"], "additionalProperties": false})";
const std::string kEdit = R"({"type": "object", "properties": {
    "path": {"type": "string", "pattern": "^[a-z/.]{1,20}$"},
    "text": {"type": "string", "maxLength": 40},
    "options": {"type": "object", "properties": {"mode": {"const": "fast"}, "tags": {"type": "array", "items":
        {"type": "string", "maxLength": 6}, "maxItems": 3}}, "additionalProperties": false},
    "either": {"anyOf": [{"type": "string", "format": "date"}, {"type": "boolean"}, {"type": "null"}]}},
    "required": ["path"]})";

/// What Parse makes of a turn.
struct Turn {
  std::string text;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
};

/// A vocabulary, and a trie of it with the DSML token.
struct Vocabulary {
  const Tokenizer& tokenizer;
  int32_t dsml;
  int32_t end;
  std::shared_ptr<const TokenTrie> trie;

  explicit Vocabulary(const Tokenizer& from)
      : tokenizer(from),
        dsml(*from.IdOfAddedToken(special_token::kDsml)),
        end(*from.IdOfAddedToken(special_token::kEndOfSentence)),
        trie(*TokenTrie::Build(from, (from.vocab_size() + 127) / 128 * 128, {dsml})) {}

  /// The token with these bytes; -1: none.
  int32_t TokenOf(std::string_view text) const {
    std::vector<int32_t> ids;
    return tokenizer.Encode(text, &ids).ok() && ids.size() == 1 ? ids[0] : -1;
  }

  /// The bytes in which a DSML token is its mark.
  std::string BytesOf(const std::vector<int32_t>& tokens) const {
    std::string bytes;
    for (const int32_t token : tokens) {
      bytes += token == dsml ? OutputParser::kDsmlMark : tokenizer.TokenBytes(token);
    }
    return bytes;
  }
};

const Vocabulary& Nano() {
  static const Vocabulary vocabulary(NanoTokenizer());
  return vocabulary;
}

Turn Parse(std::string_view bytes) {
  OutputParserOptions options;
  options.parse_tool_calls = true;
  options.dsml = std::string(OutputParser::kDsmlMark);
  options.end_think = std::string(OutputParser::kEndThinkMark);
  OutputParser parser(options);
  std::vector<OutputEvent> events;
  parser.Feed(bytes, &events);
  parser.Finish(/*complete=*/true, &events);
  Turn turn;
  for (const OutputEvent& event : events) {
    if (event.kind == Kind::kText) turn.text += event.text;
    if (event.kind == Kind::kCallBegin) turn.calls.emplace_back(event.text, "");
    if (event.kind == Kind::kCallArguments) turn.calls.back().second += event.text;
  }
  return turn;
}

/// The calls as the renderer shows them to the model, DSML tokens as marks.
std::string Rendered(const Turn& turn) {
  Conversation conversation = NewChat("", /*thinking=*/false);
  AppendUserTurn("x", &conversation);
  Message message;
  message.role = Role::kAssistant;
  for (const auto& [name, arguments] : turn.calls) message.tool_calls.push_back({"c", name, arguments});
  conversation.messages.push_back(std::move(message));
  const auto prompt = RenderPrompt(conversation);
  EXPECT_TRUE(prompt.ok()) << prompt.status().message();
  std::string bytes;
  bool inside = false;
  for (const PromptSegment& segment : prompt->segments) {
    if (segment.special && segment.text == special_token::kEndOfSentence) break;
    if (inside) bytes += segment.special ? std::string(OutputParser::kDsmlMark) : segment.text;
    if (segment.special && segment.text == special_token::kEndThink) inside = true;
  }
  return bytes;
}

struct Walker {
  explicit Walker(uint32_t seed) : random(seed) {}

  /// Tokens of a turn that ended, by random admitted tokens that get shorter and then end what they can.
  std::vector<int32_t> Walk(const std::shared_ptr<const CompiledGrammar>& grammar, const Vocabulary& vocabulary) {
    Matcher matcher(grammar, {vocabulary.end});
    std::vector<uint32_t> words(grammar->trie().words());
    std::vector<int32_t> taken;
    const int32_t angle = vocabulary.TokenOf("<");
    const int hurry = static_cast<int>(random() % 60);
    for (int step = 0; step < 400; ++step) {
      const Status status = matcher.FillMask(words);
      EXPECT_TRUE(status.ok()) << status.message();
      const std::vector<int32_t> tokens = TokensOf(words);
      if (tokens.empty()) break;
      int32_t token = tokens[random() % tokens.size()];
      const auto in_mask = [&](int32_t one) { return std::ranges::binary_search(tokens, one); };
      if (random() % 6 == 0 && in_mask(angle)) token = angle;
      if (random() % 2 == 0 && in_mask(vocabulary.dsml)) token = vocabulary.dsml;
      if (step > hurry) {
        for (const char* text : {"</", "<", "}", "]", "\"", ">", "\n", "\n\n", "1", "true"}) {
          const int32_t one = vocabulary.TokenOf(text);
          if (one >= 0 && in_mask(one) && random() % 2 == 0) token = one;
        }
        if (in_mask(vocabulary.dsml)) token = vocabulary.dsml;
        if (in_mask(vocabulary.end)) token = vocabulary.end;
      }
      const auto accepted = matcher.Accept(token);
      EXPECT_TRUE(accepted.ok() && *accepted);
      if (token == vocabulary.end) return taken;
      taken.push_back(token);
    }
    return {};
  }

  std::mt19937 random;
};

std::shared_ptr<const CompiledGrammar> Compiled(const TurnGrammarSpec& spec, const Vocabulary& vocabulary) {
  auto grammar = CompileTurn(spec);
  EXPECT_TRUE(grammar.ok()) << grammar.status().message();
  return grammar.ok() ? CompiledGrammar::Make(std::move(*grammar), vocabulary.trie) : nullptr;
}

/// Walks through `spec`; returns the turns that ended.
std::vector<Turn> WalkAndCheck(const TurnGrammarSpec& spec, const Vocabulary& vocabulary, int walks, int least) {
  const auto grammar = Compiled(spec, vocabulary);
  if (grammar == nullptr) return {};
  std::map<std::string, Grammar> arguments;
  for (const TurnTool& tool : spec.tools) {
    auto schema = CompileJsonSchema(tool.parameters.empty() ? "true" : tool.parameters);
    arguments.emplace(tool.name, std::move(*schema));
  }
  std::vector<Turn> turns;
  Walker walker(7);
  for (int walk = 0; walk < walks; ++walk) {
    const std::vector<int32_t> tokens = walker.Walk(grammar, vocabulary);
    if (tokens.empty()) continue;
    const std::string bytes = vocabulary.BytesOf(tokens);
    Turn turn = Parse(bytes);
    for (const auto& [name, json] : turn.calls) {
      const auto schema = arguments.find(name);
      EXPECT_NE(schema, arguments.end()) << name;
      if (schema == arguments.end()) continue;
      EXPECT_TRUE(Accepts(schema->second, json)) << name << json << " of " << bytes;
    }
    if (!turn.calls.empty()) {
      const size_t block = bytes.find(std::string("<") + std::string(OutputParser::kDsmlMark) + " calls>");
      EXPECT_EQ(bytes.substr(std::min(block, bytes.size())), Rendered(turn).substr(2));
    }
    turns.push_back(std::move(turn));
  }
  EXPECT_GE(static_cast<int>(turns.size()), least);
  return turns;
}

TurnGrammarSpec WithTools(Content content) {
  TurnGrammarSpec spec;
  spec.content = content;
  spec.tools = {{"weather", kWeather, true, ""}, {"fs::edit", kEdit, true, ""}, {"ping", "", true, ""}};
  return spec;
}

void CheckCallsOnly(const Vocabulary& vocabulary, int walks) {
  size_t calls = 0;
  for (const Turn& turn : WalkAndCheck(WithTools(Content::kNone), vocabulary, walks, walks / 2)) {
    EXPECT_EQ(turn.text, "");
    EXPECT_GE(turn.calls.size(), 1u);
    calls += turn.calls.size();
    for (const auto& [name, json] : turn.calls) {
      if (name == "ping") {
        EXPECT_EQ(json, "{}");
      }
    }
  }
  EXPECT_GT(calls, static_cast<size_t>(walks / 2));
}

TEST(TurnGrammar, CallsOnly) { CheckCallsOnly(Nano(), 150); }

TEST(TurnGrammar, CallsOnlyWithTheReleasedVocabulary) {
  const Vocabulary released(ReleasedTokenizer());
  CheckCallsOnly(released, 60);
}

TEST(TurnGrammar, FreeTextPerhapsCalls) {
  int with_calls = 0;
  int with_both = 0;
  for (const Turn& turn : WalkAndCheck(WithTools(Content::kFree), Nano(), 200, 100)) {
    with_calls += turn.calls.empty() ? 0 : 1;
    with_both += turn.calls.empty() || turn.text.empty() ? 0 : 1;
  }
  EXPECT_GT(with_calls, 5);
  EXPECT_GT(with_both, 5);
}

TEST(TurnGrammar, AFormatOrCalls) {
  TurnGrammarSpec spec = WithTools(Content::kGrammar);
  const StructuredOutput formats[] = {
      {StructuredOutput::Kind::kJsonSchema,
       R"({"type": "object", "properties": {"a": {"type": "integer", "maximum": 9999}}, "required": ["a"],
                      "additionalProperties": false})"},
      {StructuredOutput::Kind::kRegex, "(yes|no)[.!]?"},
      {StructuredOutput::Kind::kEbnf, "root ::= \"(\" root? \")\" | list\nlist ::= \"x\" | \"y\" list"}};
  for (const StructuredOutput& format : formats) {
    spec.format = format;
    TurnGrammarSpec alone;
    alone.content = Content::kGrammar;
    alone.format = format;
    const auto content = CompileTurn(alone);
    ASSERT_TRUE(content.ok()) << content.status().message();
    int texts = 0;
    int calls = 0;
    for (const Turn& turn : WalkAndCheck(spec, Nano(), 80, 20)) {
      texts += turn.calls.empty() ? 1 : 0;
      calls += turn.calls.empty() ? 0 : 1;
      if (turn.calls.empty()) {
        EXPECT_TRUE(Accepts(*content, turn.text)) << turn.text;
      } else {
        EXPECT_EQ(turn.text, "");
      }
    }
    EXPECT_GT(texts, 0) << format.source;
    EXPECT_GT(calls, 0) << format.source;
  }
}

/// `text` with $ for the DSML token.
std::string Spelt(std::string text) {
  for (size_t at = 0; (at = text.find('$', at)) != std::string::npos;) {
    text.replace(at, 1, TokenTrie::ControlSpelling(kDsmlControl));
  }
  return text;
}

bool Takes(const TurnGrammarSpec& spec, const std::string& text) {
  const auto grammar = CompileTurn(spec);
  EXPECT_TRUE(grammar.ok()) << grammar.status().message();
  return grammar.ok() && Accepts(*grammar, Spelt(text));
}

const std::string kPing = "<$ invoke name=\"ping\">\n\n</$ invoke>\n";

TEST(TurnGrammar, NumberOfCalls) {
  TurnGrammarSpec spec = WithTools(Content::kNone);
  const auto block = [](int calls) {
    std::string text = "\n\n<$ calls>\n";
    for (int i = 0; i < calls; ++i) text += kPing;
    return text + "</$ calls>";
  };
  EXPECT_FALSE(Takes(spec, block(0)));
  EXPECT_TRUE(Takes(spec, block(1)));
  EXPECT_TRUE(Takes(spec, block(9)));
  EXPECT_FALSE(Takes(spec, block(1).substr(1)));
  EXPECT_FALSE(Takes(spec, block(1) + "\n"));
  spec.max_calls = 2;
  EXPECT_TRUE(Takes(spec, block(1)));
  EXPECT_TRUE(Takes(spec, block(2)));
  EXPECT_FALSE(Takes(spec, block(3)));
  spec.max_calls = 1;
  EXPECT_TRUE(Takes(spec, block(1)));
  EXPECT_FALSE(Takes(spec, block(2)));
  spec.content = Content::kFree;
  EXPECT_TRUE(Takes(spec, ""));
  EXPECT_TRUE(Takes(spec, "Well.\n\nI call." + block(1)));
  EXPECT_TRUE(Takes(spec, "text that spells <｜DSML｜ calls>"));
  EXPECT_FALSE(Takes(spec, block(1) + "more"));
  EXPECT_FALSE(Takes(spec, "a <$ b"));
}

TEST(TurnGrammar, ArgumentsBindSpellingAndType) {
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "\n\n<$ calls>\n<$ invoke name=\"" + name + "\">\n" + arguments + "</$ invoke>\n</$ calls>";
  };
  const auto argument = [](const std::string& name, bool string, const std::string& value) {
    return "<$ parameter name=\"" + name + "\" string=\"" + (string ? "true" : "false") + "\">" + value +
           "</$ parameter>\n";
  };
  TurnGrammarSpec spec = WithTools(Content::kNone);
  const std::string city = argument("city", true, "Cité \"\\\n");
  const std::string days = argument("days", false, "3");
  EXPECT_TRUE(Takes(spec, call("weather", city + days)));
  EXPECT_TRUE(Takes(spec, call("weather", city + argument("unit", true, "celsius") + days)));
  EXPECT_FALSE(Takes(spec, call("weather", city + argument("unit", true, "kelvin") + days)));
  EXPECT_FALSE(Takes(spec, call("weather", city + argument("unit", false, "\"celsius\"") + days)));
  EXPECT_FALSE(Takes(spec, call("weather", city + argument("days", true, "3"))));
  EXPECT_FALSE(Takes(spec, call("weather", city + argument("days", false, "15"))));
  EXPECT_FALSE(Takes(spec, call("weather", argument("city", true, "") + days)));
  EXPECT_FALSE(Takes(spec, call("weather", argument("city", true, "thirteen char") + days)));
  EXPECT_FALSE(Takes(spec, call("weather", argument("city", true, "a｜DSML｜b") + days)));
  EXPECT_TRUE(Takes(spec, call("weather", argument("city", true, "a｜DSML|b") + days)));
  EXPECT_FALSE(Takes(spec, call("weather", days + city)));
  EXPECT_FALSE(Takes(spec, call("weather", city)));
  EXPECT_FALSE(Takes(spec, call("weather", city + days + argument("more", false, "1"))));
  EXPECT_FALSE(Takes(spec, call("weather", "\n")));
  const std::string path = argument("path", true, "a/b.c");
  EXPECT_TRUE(Takes(spec, call("fs::edit", path + argument("either", true, "2024-02-29"))));
  EXPECT_TRUE(Takes(spec, call("fs::edit", path + argument("either", false, "null"))));
  EXPECT_FALSE(Takes(spec, call("fs::edit", path + argument("either", true, "null"))));
  EXPECT_FALSE(Takes(spec, call("fs::edit", path + argument("more", false, "1"))));
  EXPECT_TRUE(Takes(spec, call("fs::edit", path + argument("options", false, R"({"tags": ["a", "é\n"]})"))));
  EXPECT_FALSE(Takes(spec, call("fs::edit", path + argument("options", false, R"({"tags":["a"]})"))));
  EXPECT_FALSE(Takes(spec, call("fs::edit", path + argument("options", false, R"({"tags": ["\u00e9"]})"))));
  // Not strict: what the schema admits, other names too.
  spec.tools[1].strict = false;
  EXPECT_TRUE(Takes(spec, call("fs::edit", path + argument("more", false, "[1, {}]") + argument("x y", true, "t"))));
  EXPECT_FALSE(Takes(spec, call("fs::edit", argument("path", true, "A"))));
}

TEST(TurnGrammar, WhatDoesNotCompile) {
  TurnGrammarSpec spec;
  spec.tools = {{"a", R"x({"type": "object", "properties": {"x": {"type": "string", "pattern": "(?<=a)b"}, "y": {}},
                          "required": ["x"], "additionalProperties": false})x",
                 true, ""}};
  const auto refused = CompileTurn(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(refused.status().message(),
            "tools[0].function.parameters: #/properties/x/pattern: character 3: look-behind is not supported");
  spec.tools[0].path = "tools[0].input_schema";
  EXPECT_TRUE(std::string(CompileTurn(spec).status().message()).starts_with("tools[0].input_schema: #/"));
  // Not strict: the declared names, with any values.
  spec.tools[0].strict = false;
  const std::string call = "\n\n<$ calls>\n<$ invoke name=\"a\">\n";
  const std::string x = "<$ parameter name=\"x\" string=\"true\">anything</$ parameter>\n";
  const std::string close = "</$ invoke>\n</$ calls>";
  EXPECT_TRUE(Takes(spec, call + x + close));
  EXPECT_TRUE(Takes(spec, call + x + "<$ parameter name=\"y\" string=\"false\">[1]</$ parameter>\n" + close));
  EXPECT_FALSE(Takes(spec, call + x + "<$ parameter name=\"z\" string=\"false\">[1]</$ parameter>\n" + close));
  EXPECT_FALSE(Takes(spec, call + "\n" + close));
  spec.tools[0].parameters = "not a schema";
  EXPECT_TRUE(Takes(spec, call + "\n" + close));
  EXPECT_TRUE(Takes(spec, call + "<$ parameter name=\"z\" string=\"false\">[1]</$ parameter>\n" + close));
  spec.tools[0] = {"a", R"({"type": "string"})", true, ""};
  EXPECT_EQ(CompileTurn(spec).status().message(), "tools[0].function.parameters: no arguments satisfy the schema");
  spec.tools[0] = {"a\"b", "", false, ""};
  EXPECT_EQ(CompileTurn(spec).status().message(), "tools[0].function.name: cannot be called by the name \"a\"b\"");
  spec.tools[0] = {"a", R"({"properties": {"a\"b": {}}, "required": ["a\"b"]})", true, ""};
  EXPECT_EQ(CompileTurn(spec).status().code(), StatusCode::kUnsupported);
  spec.tools.clear();
  spec.content = Content::kNone;
  EXPECT_FALSE(CompileTurn(spec).ok());
  spec.content = Content::kGrammar;
  spec.format = {StructuredOutput::Kind::kJsonSchema, R"({"type": "integer", "minimum": 3, "maximum": 2})"};
  EXPECT_EQ(CompileTurn(spec).status().message(), "no text satisfies the format of the answer");
}

TEST(TurnGrammar, ControlTokensAreForced) {
  TurnGrammarSpec spec = WithTools(Content::kNone);
  spec.tools.resize(1);
  Matcher matcher(Compiled(spec, Nano()), {Nano().end});
  EXPECT_EQ(*matcher.ForcedBytes(40), Spelt("\n\n<$ calls>\n<$ invoke name=\"weather\">\n").substr(0, 40));
  const auto forced = matcher.ForcedTokens(Nano().tokenizer, 200);
  ASSERT_TRUE(forced.ok());
  for (const int32_t token : *forced) ASSERT_TRUE(*matcher.Accept(token));
  EXPECT_EQ(std::ranges::count(*forced, Nano().dsml), 3);
  const std::string bytes = Nano().BytesOf(*forced);
  EXPECT_TRUE(bytes.starts_with("\n\n<" + std::string(OutputParser::kDsmlMark) + " calls>\n<")) << bytes;
  EXPECT_TRUE(bytes.find("string=\"true") != std::string::npos) << bytes;
}

TEST(TurnGrammar, MasksAreTheNaiveOnes) {
  for (const Content content : {Content::kNone, Content::kFree}) {
    const auto grammar = Compiled(WithTools(content), Nano());
    Walker walker(11);
    for (int walk = 0; walk < 4; ++walk) {
      Matcher matcher(grammar, {Nano().end});
      std::string text;
      std::vector<uint32_t> words(grammar->trie().words());
      for (int step = 0; step < 30; ++step) {
        std::vector<int32_t> naive = NaiveMask(grammar->grammar(), text, *Nano().trie);
        if (matcher.MayEnd()) naive.push_back(Nano().end);
        std::ranges::sort(naive);
        ASSERT_TRUE(matcher.FillMask(words).ok());
        ASSERT_EQ(TokensOf(words), naive) << text;
        int32_t token = naive[walker.random() % naive.size()];
        if (std::ranges::binary_search(naive, Nano().dsml)) token = Nano().dsml;
        if (token == Nano().end) break;
        ASSERT_TRUE(*matcher.Accept(token));
        text += grammar->trie().BytesOf(token);
      }
    }
  }
}

}  // namespace
}  // namespace deepinfer::testing
