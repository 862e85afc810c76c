// EBNF: the forms that users of llama.cpp and XGrammar write, recursion on either side, refusals with their place.
#include <gtest/gtest.h>

#include <algorithm>

#include "grammar_fixture.h"

namespace deepinfer::testing {
namespace {

struct Case {
  std::string grammar;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

const char kJson[] = R"GBNF(
# JSON, as in llama.cpp's examples
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
)GBNF";

const std::vector<Case> kCases = {
    {"root ::= \"a\" | 'b' [c-e]+ . ", {"a", "bcx", "bcde"}, {"", "b", "bc"}},
    {"root ::= x{2,3} y{2} z{0,} \nx ::= \"x\" # text\ny ::= \"y\"\nz::=\"z\"", {"xxyy", "xxxyyzz"}, {"xyy", "xxy"}},
    {"root ::= x{,2} \nx ::= \"x\"", {"", "xx"}, {"xxx"}},
    // Right, left and middle recursion, ambiguity, empty rules.
    {"root ::= \"a\" root | \"b\"", {"b", "aaab"}, {"", "a", "ba"}},
    {"root ::= root \"a\" | \"b\"", {"b", "baaa"}, {"", "a", "ab"}},
    {"root ::= \"(\" root \")\" | \"\"", {"", "((()))"}, {"(", "(()", "())"}},
    {"root ::= root root | \"a\"", {"a", "aaaaaaa"}, {"", "b"}},
    {"root ::= e \ne ::= e \"+\" t | t \nt ::= t \"*\" f | f \nf ::= \"(\" e \")\" | [0-9]+",
     {"1+2*(3+4)", "12"},
     {"", "1+", "(1", "1)"}},
    {"root ::= a b a \na ::= \"x\" a | \nb ::= b \"y\" | ", {"", "xxyyx", "y"}, {"xyxy", "z"}},
    {"root ::= a \"c\" \na ::= b \nb ::= a | \"x\" b \"y\" | ", {"c", "xxyyc"}, {"xyyc"}},
    {"root ::= (\"a\" root \"b\")? (\"c\" | \"d\")*", {"", "ab", "aabb", "acbd"}, {"a", "abb"}},
    {"root ::= (\"x\" (\"a\" | \"b\" root \"e\"))*", {"", "xaxa", "xbxaexa"}, {"x", "xb", "xbxa"}},
    {"root-rule ::= \"q\"\nroot ::= root-rule other_1\nother_1 ::= \"\\u00e9\\U0001F600\\x41\\n\"", {"qé😀A\n"}, {"q"}},
    {"root ::= [^\\]\\-a-c]+ [-x]", {"de-", "zx"}, {"a-", "]-"}},
    {kJson,
     {"{}", R"({"a": [1, 2.5e1, "x\n\u00e9", null], "b": {"c": true}})", "{\"a\":\n  1}"},
     {"{", "[1]", R"({"a": })", R"({"a": 1,})", R"({'a': 1})"}},
};

TEST(EbnfTest, AcceptsAndRejects) {
  for (const Case& item : kCases) {
    const auto grammar = CompileEbnf(item.grammar);
    ASSERT_TRUE(grammar.ok()) << item.grammar << ": " << grammar.status().message();
    for (const auto& text : item.accepted) EXPECT_TRUE(Accepts(*grammar, text)) << item.grammar << " on " << text;
    for (const auto& text : item.rejected) EXPECT_FALSE(Accepts(*grammar, text)) << item.grammar << " on " << text;
  }
}

TEST(EbnfTest, MaskIsTheNaiveOneAndRollbackIsExact) {
  const int32_t end = EndToken(*NanoTrie());
  std::mt19937 random(11);
  for (const Case& item : kCases) {
    auto source = CompileEbnf(item.grammar);
    ASSERT_TRUE(source.ok());
    const auto grammar = CompiledGrammar::Make(std::move(*source), NanoTrie());
    Matcher matcher(grammar, {end});
    std::string text;
    std::vector<uint32_t> words(NanoTrie()->words());
    for (int step = 0; step < 10; ++step) {
      std::vector<int32_t> naive = NaiveMask(grammar->grammar(), text, *NanoTrie());
      if (matcher.MayEnd()) naive.push_back(end);
      std::ranges::sort(naive);
      ASSERT_TRUE(matcher.FillMask(words).ok());
      const std::vector<int32_t> mask = TokensOf(words);
      ASSERT_EQ(mask, naive) << item.grammar << " after " << text;
      const int32_t token = mask[random() % mask.size()];
      if (token == end) break;
      // Astray and back.
      const int32_t other = mask[random() % mask.size()];
      ASSERT_TRUE(*matcher.Accept(other));
      matcher.Rollback(1);
      ASSERT_TRUE(*matcher.Accept(token));
      text += NanoTrie()->BytesOf(token);
    }
  }
}

TEST(EbnfTest, RowsOfListsRepeat) {
  // Repetition and recursion on either side cost the same few states however long the text is.
  for (const char* source : {"root ::= \"[\" (v (\",\" v)*)? \"]\"\nv ::= root | [0-9]",
                             "root ::= \"[\" l \"]\"\nl ::= l \",\" v | v\nv ::= root | [0-9]",
                             "root ::= \"[\" l \"]\"\nl ::= v \",\" l | v\nv ::= root | [0-9]"}) {
    const auto grammar = CompileEbnf(source);
    ASSERT_TRUE(grammar.ok());
    Recogniser recogniser(&*grammar, {});
    int32_t state = recogniser.Walk(recogniser.start(), "[1,2,3");
    const size_t states = recogniser.state_count();
    for (int i = 0; i < 1000; ++i) state = recogniser.Walk(state, ",7");
    EXPECT_LE(recogniser.state_count(), states + 4) << source;
    EXPECT_TRUE(recogniser.Accepts(recogniser.Walk(state, "]")));
  }
}

TEST(EbnfTest, RefusalsNameThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "there is no rule named root"},
      {"main ::= \"a\"", "there is no rule named root"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: a rule that is defined already"},
      {"root ::= \"a\"\n  | other", "line 2, column 5: a rule that is not defined"},
      {"root ::= (\"a\"", "line 1, column 14: '(' without ')'"},
      {"root ::= \"a", "line 1, column 12: a text or class without its end"},
      {"root ::= [b-a]", "line 1, column 14: a range out of order"},
      {"root ::= \"\\q\"", "line 1, column 13: unknown escape"},
      {"root = \"a\"", "line 1, column 6: expected ::="},
      {"root ::= \"a\"{3,2}", "line 1, column 18: a repetition's bounds are out of order"},
      {"root ::= \"a\" (= \"b\")", "line 1, column 15: look-ahead is not supported"},
      {"root ::= TagDispatch((\"a\", b))", "line 1, column 10: macros of XGrammar are not supported"},
      {"root ::= root \"a\"", "no text satisfies the grammar"},
      {"root ::= \"\xFF\"", "the grammar is not valid UTF-8"},
  };
  for (const auto& [text, message] : cases) {
    const auto grammar = CompileEbnf(text);
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_EQ(grammar.status().message(), message) << text;
  }
}

TEST(EbnfTest, HostileGrammarsHitLimits) {
  EXPECT_FALSE(CompileEbnf("root ::= " + std::string(10'000, '(') + "\"a\"" + std::string(10'000, ')')).ok());
  EXPECT_EQ(CompileEbnf(std::string(size_t{10} << 20, ' ')).status().code(), StatusCode::kResourceExhausted);
  const std::string nested = "root ::= ((((\"x\" root? \"y\"){1000}){1000}){1000}){1000}";
  EXPECT_EQ(CompileEbnf(nested).status().code(), StatusCode::kResourceExhausted);
  // Two hundred ways through one row.
  std::string wide = "root ::= ";
  for (int i = 0; i < 200; ++i) wide.append("r").append(std::to_string(i)).append(" | ");
  wide += "\"\"\n";
  for (int i = 0; i < 200; ++i) wide.append("r").append(std::to_string(i)).append(" ::= root \"a\" root\n");
  const auto grammar = CompileEbnf(wide);
  ASSERT_TRUE(grammar.ok());
  RecogniserLimits limits;
  limits.max_items_per_row = 10'000;
  Recogniser recogniser(&*grammar, limits);
  (void)recogniser.Walk(recogniser.start(), std::string(2000, 'a'));
  EXPECT_TRUE(recogniser.exhausted());
}

}  // namespace
}  // namespace deepinfer::testing
