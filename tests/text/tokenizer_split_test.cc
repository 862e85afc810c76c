// The pre-tokeniser: expected pieces by hand, and the scanner against PCRE2 as its oracle.
#include <gtest/gtest.h>
#include <unicode/uchar.h>

#include <cstring>

#include "text/pretokenizer.h"
#include "text/utf8.h"
#include "tokenizer_fixture.h"

namespace deepinfer {
namespace {

using Pieces = std::vector<std::string>;
using Engine = PreTokenizer::Engine;

const PreTokenizer& DeepSeek(Engine engine) {
  static const auto scanner = PreTokenizer::Create(DeepSeekSplitPatterns(), Engine::kFastest);
  static const auto regex = PreTokenizer::Create(DeepSeekSplitPatterns(), Engine::kRegex);
  return *(engine == Engine::kRegex ? regex : scanner);
}

Pieces Split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Pieces pieces;
  const Status status = pre_tokenizer.ForEachPiece(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_TRUE(status.ok()) << status.message();
  return pieces;
}

TEST(PreTokenizer, ExpectedPieces) {
  const std::pair<std::string, Pieces> cases[] = {
      {"", {}},
      {"Hello, world!", {"Hello", ",", " world", "!"}},
      {"  \n  x", {"  \n", " ", " x"}},
      {"a   1", {"a", "   ", "1"}},
      {"a   b", {"a", "  ", " b"}},
      {"1234567", {"123", "456", "7"}},
      {"x12y", {"x", "12", "y"}},
      {"foo_bar.baz", {"foo", "_bar", ".baz"}},
      {"it's", {"it", "'s"}},
      {"'été", {"'", "été"}},
      {"((foo", {"((", "foo"}},
      {" (foo", {" (", "foo"}},
      {"!\n\nx", {"!\n\n", "x"}},
      {"! \n", {"!", " \n"}},
      {"\tword", {"\tword"}},
      {"\nword", {"\n", "word"}},
      {"\r\n\r\n x", {"\r\n\r\n", " x"}},
      {"中文abc", {"中文", "abc"}},
      {"abc中文", {"abc", "中文"}},
      {" 中文", {" ", "中文"}},
      {"中・文", {"中", "・", "文"}},
      {"か\u309Bき", {"か", "\u309B", "き"}},
      {"か\u3040き", {"か", "\u3040き"}},
      {"\u3097\u3098", {"\u3097\u3098"}},
      {"e\u0301a", {"e\u0301a"}},
      {"\u0301", {"\u0301"}},
      {" \u0301", {" \u0301"}},
      {"!\u0301", {"!", "\u0301"}},
      {"\x01\x02", {"\x01\x02"}},
      {"\x01\x02z", {"\x01", "\x02z"}},
      {"\x01 z", {"\x01", " z"}},
      {"\x01"
       "1",
       {"\x01", "1"}},
      {"👨\u200D👩", {"👨", "\u200D", "👩"}},
      {"a\u0085 b", {"a", "\u0085", " b"}},
      {"a\u00A0b", {"a", "\u00A0b"}},
      {"a\uFEFFb", {"a", "\uFEFFb"}},
      {"a \u3000", {"a", " \u3000"}},
      {"Ⅻ²½", {"Ⅻ²½"}},
      {"x\u2028\n", {"x", "\u2028\n"}},
      {"$5.00", {"$", "5", ".", "00"}},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(Split(DeepSeek(Engine::kFastest), text), expected) << text;
    EXPECT_EQ(Split(DeepSeek(Engine::kRegex), text), expected) << text;
  }
}

TEST(PreTokenizer, ScannerAgreesWithPcre2OnRandomText) {
  std::mt19937 random(13);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = testing::RandomText(&random, 1 + random() % 60);
    ASSERT_EQ(Split(DeepSeek(Engine::kFastest), text), Split(DeepSeek(Engine::kRegex), text)) << text;
  }
}

// Every code point in the company that tells the classes apart. PCRE2 10.42 knows Unicode 14, ICU 72 Unicode 15: what
// came with 15 is left out.
TEST(PreTokenizer, ScannerAgreesWithPcre2OnEveryCodePoint) {
  const UVersionInfo unicode_14 = {14, 0, 0, 0};
  std::string text;
  for (uint32_t point = 0; point < 0x110000; ++point) {
    UVersionInfo age;
    u_charAge(static_cast<UChar32>(point), age);
    const bool surrogate = point >= 0xD800 && point < 0xE000;
    const bool newer = memcmp(age, unicode_14, sizeof(age)) > 0;
    // Above plane 3 nothing but marks in a row of plane 14 and private use.
    const bool tested = point < 0x40000 || (point >= 0xE0000 && point < 0xE0200) || point % 0x1000 < 16;
    if (!surrogate && !newer && tested) {
      std::string character;
      AppendUtf8(point, &character);
      for (const char* after : {"a", " ", "", "!", "\n 1", "中"}) text.append(character).append(after);
    }
    if (text.size() > 4000 || (point == 0x10FFFF && !text.empty())) {
      ASSERT_EQ(Split(DeepSeek(Engine::kFastest), text), Split(DeepSeek(Engine::kRegex), text)) << std::hex << point;
      text.clear();
    }
  }
}

TEST(PreTokenizer, WhiteSpaceIsThatOfUnicode) {
  for (UChar32 point = 0; point < 0x10000; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string character;
    AppendUtf8(static_cast<uint32_t>(point), &character);
    // Two blanks before a digit are one piece; nothing else that is no number joins a blank there, but for marks (which
    // make a word of it), punctuation and letters.
    const uint32_t mask = U_GET_GC_MASK(point);
    if ((mask & (U_GC_L_MASK | U_GC_M_MASK | U_GC_N_MASK | U_GC_P_MASK | U_GC_S_MASK)) != 0) continue;
    const size_t count = Split(DeepSeek(Engine::kFastest), "\t" + character + "1").size();
    EXPECT_EQ(count == 2, u_isUWhiteSpace(point) != 0) << std::hex << point;
  }
}

TEST(PreTokenizer, OtherPatternsRunOnPcre2) {
  const auto llama = PreTokenizer::Create(
      {"[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"});
  ASSERT_TRUE(llama.ok()) << llama.status().message();
  EXPECT_EQ(Split(*llama, "Hi there,  you 1234!\n"),
            (Pieces{"Hi", " there", ",", " ", " you", " ", "123", "4", "!\n"}));
  const auto none = PreTokenizer::Create({});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(Split(*none, "a b"), Pieces{"a b"});
  EXPECT_EQ(Split(*none, ""), Pieces{});
}

TEST(PreTokenizer, LaterPatternsSeePiecesAlone) {
  const auto splits = PreTokenizer::Create({"-", "a(?!b)|b"});
  ASSERT_TRUE(splits.ok());
  EXPECT_EQ(Split(*splits, "a-xab-ba"), (Pieces{"a", "-", "xa", "b", "-", "b", "a"}));
}

TEST(SplitPattern, WhiteSpaceIsSpelledOut) {
  const auto inside = TranslateSplitPattern("[\\s\\-x]+?");
  ASSERT_TRUE(inside.ok());
  EXPECT_EQ(inside->find("\\s"), std::string::npos);
  // U+180E is white space to PCRE2 alone.
  for (const char* pattern : {"\\s", "[\\s]", "[^\\S0]"}) {
    const auto split = PreTokenizer::Create({pattern});
    if (!split.ok()) continue;
    EXPECT_EQ(Split(*split, "a\u180Eb \u0085"), (Pieces{"a\u180Eb", " ", "\u0085"})) << pattern;
  }
}

TEST(SplitPattern, RefusesWhatEnginesReadDifferently) {
  for (const char* pattern :
       {"a.b",      "^a",      "a$",   "(a)",     "(?i:a)", "(?<=a)b", "(?<n>a)", "(?#x)a", "\\d",
        "\\w",      "\\b",     "\\A",  "\\h",     "\\x41",  "\\u0041", "\\1",     "\\R",    "\\X",
        "\\p{Han}", "\\p{^L}", "\\pL", "\\p{Lx}", "\\p{L",  "[a[b]]",  "[a&&b]",  "[]a]",   "[[:alpha:]]",
        "[\\S]",    "[a",      "a++",  "a*+",     "a?+",    "a{2}+",   "a{,2}",   "a{x}",   "a{",
        "a{2",      "a{1234}", "a**",  "(?:a",    "a)",     "\\",      "a\\",     "\xFF"}) {
    const auto result = PreTokenizer::Create({pattern});
    EXPECT_FALSE(result.ok()) << pattern;
    EXPECT_NE(result.status().message().find("split pattern"), std::string::npos) << pattern;
  }
  for (const char* pattern : {"a?", "\\s*", "(?:)", "", "a|", "(?=a)"}) {
    const auto result = PreTokenizer::Create({pattern});
    ASSERT_FALSE(result.ok()) << pattern;
    EXPECT_NE(result.status().message().find("empty string"), std::string::npos) << result.status().message();
  }
  for (const char* pattern : {"*a", "a{3,2}", "[z-a]", "(?:*)"})
    EXPECT_FALSE(PreTokenizer::Create({pattern}).ok()) << pattern;
  EXPECT_FALSE(PreTokenizer::Create({std::string(100000, '(')}).ok());
}

}  // namespace
}  // namespace deepinfer
