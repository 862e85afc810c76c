// Regular expressions: which texts a pattern matches, and what is refused, with the place.
#include <gtest/gtest.h>

#include "grammar_fixture.h"

namespace deepinfer::testing {
namespace {

struct Case {
  std::string pattern;
  std::vector<std::string> accepted;
  std::vector<std::string> rejected;
};

TEST(RegexTest, MatchesWholeTexts) {
  const std::vector<Case> cases = {
      {"abc", {"abc"}, {"", "ab", "abcd"}},
      {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
      {"(ab)*c+d?", {"c", "ababccd"}, {"ab", "abd", "cdd"}},
      {"a{2}", {"aa"}, {"a", "aaa"}},
      {"a{2,}b{1,3}c{0,1}", {"aab", "aaaabbbc"}, {"ab", "aa", "aabbbb"}},
      {"x{,3}|{}|a{b", {"x{,3}", "{}", "a{b"}, {"xxx", "x"}},
      {"[a-c_-]+", {"a-b_c"}, {"d", ""}},
      {"[^a-c]", {"d", "é", "\n", "😀"}, {"a", "dd", ""}},
      {"[]a]|[^]]|[]", {"b]", "é]"}, {"b", "]", "a]]"}},
      {".", {"x", "é", "漢", "😀"}, {"\n", "\r", "xy", "\xC3"}},
      {R"(\d\D\w\W\s\S)", {"1a_- x"}, {"aa_- x", "1a_-xx"}},
      {R"(\t\n\r\f\v\0\x41\u0042\u{43}\cJ)", {std::string("\t\n\r\f\v\0ABC\n", 10)}, {"ABC"}},
      {R"(\ud83d\ude00)", {"😀"}, {"\xED\xA0\xBD"}},
      {R"([\d.]+\.\/\-\$\^)", {"1.2./-$^"}, {"a./-$^"}},
      {R"([\w-]+)", {"a-b"}, {"a b"}},
      {R"(\p{Lu}\P{Lu}\p{Script=Greek})", {"Ààα"}, {"aaα", "AAa"}},
      {"^a$", {"a"}, {"", "aa"}},
      {"a^b", {}, {"ab", "a"}},
      {"(^a|b)$|^$", {"a", "b", ""}, {"ab"}},
      {"(?:a)(?<name>b)(?P<other>c)", {"abc"}, {"ab"}},
      {"a*?b+?c??", {"aabb", "bc"}, {"a"}},
      {"(^|x)a*(b|$)", {"aab", "xab", "aa", "", "x"}, {"xx", "bb"}},
      {"((a?){3})*", {"", "aaaa"}, {"b"}},
      {"é漢[α-ω]😀", {"é漢β😀"}, {"e漢β😀"}},
      {R"([\u0000-\uFFFF])", {"a", "é", "漢"}, {"😀"}},
  };
  for (const Case& item : cases) {
    const auto grammar = CompileRegex(item.pattern);
    if (item.accepted.empty() && !grammar.ok()) continue;  // no text at all
    ASSERT_TRUE(grammar.ok()) << item.pattern << ": " << grammar.status().message();
    for (const auto& text : item.accepted) EXPECT_TRUE(Accepts(*grammar, text)) << item.pattern << " on " << text;
    for (const auto& text : item.rejected) EXPECT_FALSE(Accepts(*grammar, text)) << item.pattern << " on " << text;
  }
}

TEST(RegexTest, LookAhead) {
  const std::vector<Case> cases = {
      {"(?!foo)[a-z]+", {"fo", "bar", "fobar"}, {"foo", "foobar", ""}},
      {"(?!foo$)[a-z]*", {"fo", "foobar", ""}, {"foo"}},
      {R"(^(?=.*\d)(?=.*[a-z])[^ ]{4,}$)", {"abc1", "1bcd"}, {"abcd", "1234", "a 12", "a1"}},
      {"a(?=bc)[a-z]{2,3}", {"abc", "abcd"}, {"abd", "acb", "ab"}},
      {"a(?!$)b?|(?=x)xy|z", {"ab", "xy", "z"}, {"a", "x", "y"}},
      {"(?=)a(?!)|b(?=^|c)c", {"bc"}, {"a", "b"}},
      {"(?!)", {}, {}},
  };
  for (const Case& item : cases) {
    const auto grammar = CompileRegex(item.pattern);
    if (item.accepted.empty() && !grammar.ok()) continue;
    ASSERT_TRUE(grammar.ok()) << item.pattern << ": " << grammar.status().message();
    for (const auto& text : item.accepted) EXPECT_TRUE(Accepts(*grammar, text)) << item.pattern << " on " << text;
    for (const auto& text : item.rejected) EXPECT_FALSE(Accepts(*grammar, text)) << item.pattern << " on " << text;
  }
}

TEST(RegexTest, RefusalsNameThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a(?=b)", "no text matches the pattern"},
      {"a(b|(?=b))", "character 5: look-ahead inside of a group is not supported"},
      {"a(?!b)*", "character 7: a quantifier behind look-ahead"},
      {"a(?<!b)", "character 4: look-behind is not supported"},
      {R"((a)\1)", "character 5: back references are not regular"},
      {R"(a\b)", "character 3: word borders are not supported"},
      {"(?>a)", "character 3: atomic groups are not regular"},
      {"a++", "character 3: possessive quantifiers are not regular"},
      {"é*+", "character 3: possessive quantifiers are not regular"},
      {"(a", "character 3: '(' without ')'"},
      {"a)", "character 2: ')' without '('"},
      {"[a", "character 3: '[' without ']'"},
      {"[b-a]", "character 3: a range out of order"},
      {"a{3,2}", "character 7: a repetition's bounds are out of order"},
      {"*a", "character 1: a quantifier without an atom before it"},
      {"a**", "character 3: a quantifier without an atom before it"},
      {R"(\p{Nonsense})", "character 13: unknown Unicode property in \\p"},
      {R"(\y)", "character 3: unknown escape \\y"},
      {"\xFF", "the pattern is not valid UTF-8"},
      {"[]", "no text matches the pattern"},
  };
  for (const auto& [pattern, message] : cases) {
    const auto grammar = CompileRegex(pattern);
    ASSERT_FALSE(grammar.ok()) << pattern;
    EXPECT_EQ(grammar.status().message(), message) << pattern;
  }
}

TEST(RegexTest, HostilePatternsHitLimits) {
  const std::string deep = std::string(5000, '(') + "a" + std::string(5000, ')');
  EXPECT_FALSE(CompileRegex(deep).ok());
  EXPECT_FALSE(CompileRegex(std::string(300'000, 'a')).ok());
  EXPECT_FALSE(CompileRegex("a{1000000}").ok());
  GrammarLimits small;
  small.max_regex_nodes = 1000;
  EXPECT_EQ(CompileRegex(std::string(5000, 'a'), small).status().code(), StatusCode::kResourceExhausted);

  // Exponentially many states: the matcher gives up, the mask is not wrong.
  const auto grammar = CompileRegex("(a|b)*a(a|b){60}c");
  ASSERT_TRUE(grammar.ok());
  RecogniserLimits limits;
  limits.max_bytes = size_t{1} << 20;
  Recogniser recogniser(&*grammar, limits);
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < 4000; ++i) text.push_back(random() % 2 == 0 ? 'a' : 'b');
  (void)recogniser.Walk(recogniser.start(), text);
  EXPECT_TRUE(recogniser.exhausted());
}

}  // namespace
}  // namespace deepinfer::testing
