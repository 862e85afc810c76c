// UTF-8 repair against the table of the Unicode standard, and the incremental detokeniser's three invariants.
#include <gtest/gtest.h>

#include <random>

#include "text/byte_alphabet.h"
#include "text/utf8.h"
#include "text/utf8_stream.h"
#include "tokenizer_fixture.h"

namespace deepinfer {
namespace {

const std::string kBad = std::string(kReplacementCharacter);

std::string RandomBytes(std::mt19937* random, size_t length) {
  std::string bytes = testing::RandomText(random, length);
  for (size_t i = 0; i < 3 + length / 8; ++i) bytes[(*random)() % bytes.size()] = static_cast<char>((*random)());
  return bytes;
}

TEST(Utf8, MaximalSubpartsBecomeOneReplacementEach) {
  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"abc", "abc"},
      {"é中😀", "é中😀"},
      {"\x80", kBad},
      {"\xC0\xAF", kBad + kBad},                        // overlong
      {"\xE0\x9F\xBF", kBad + kBad + kBad},             // overlong
      {"\xF0\x8F\xBF\xBF", kBad + kBad + kBad + kBad},  // overlong
      {"\xED\xA0\x80", kBad + kBad + kBad},             // surrogate
      {"\xF4\x90\x80\x80", kBad + kBad + kBad + kBad},  // above U+10FFFF
      {"\xF5\x80", kBad + kBad},
      {"\xE4\xB8", kBad},
      {"\xE4\xB8z", kBad + "z"},
      {"\xF0\x9F\x98", kBad},
      {"\xF0\x9F\x98\xE4\xB8\xAD", kBad + "中"},
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",  // Unicode 15, table 3-8
       "a" + kBad + kBad + kBad + "b" + kBad + "c" + kBad + kBad + "d"},
  };
  for (const auto& [bytes, expected] : cases) {
    EXPECT_EQ(RepairUtf8(bytes), expected);
    EXPECT_EQ(IsValidUtf8(bytes), bytes == expected);
    EXPECT_TRUE(IsValidUtf8(expected));
  }
}

TEST(Utf8, EveryCodePointGoesThereAndBack) {
  for (uint32_t point = 0; point < 0x110000; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string character;
    AppendUtf8(point, &character);
    size_t at = 0;
    ASSERT_EQ(NextCodePoint(character.data(), &at), point);
    ASSERT_EQ(at, character.size());
    ASSERT_TRUE(IsValidUtf8(character)) << point;
  }
}

TEST(Utf8, QuotedExcerptIsOneShortValidLine) {
  EXPECT_EQ(QuotedExcerpt("a\nb\xFF"), "\"a b" + kBad + "\"");
  const std::string long_text = QuotedExcerpt(std::string(59, 'x') + "中中");
  EXPECT_EQ(long_text, "\"" + std::string(59, 'x') + "...\"");
  EXPECT_TRUE(IsValidUtf8(QuotedExcerpt(std::string(5000, '\xE4'))));
  EXPECT_LT(QuotedExcerpt(std::string(5000, '\xE4')).size(), 70u);
}

TEST(Utf8Stream, AnyChunkingGivesTheRepairedWhole) {
  std::mt19937 random(17);
  for (int i = 0; i < 2000; ++i) {
    const std::string bytes = RandomBytes(&random, 1 + random() % 40);
    Utf8Stream stream;
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = random() % 5;  // zero is allowed
      const std::string piece = stream.Feed(std::string_view(bytes).substr(at, count));
      ASSERT_TRUE(IsValidUtf8(piece));
      ASSERT_LE(stream.held(), 3u);
      text += piece;
      at += std::min(count, bytes.size() - at);
    }
    text += stream.Flush();
    ASSERT_EQ(text, RepairUtf8(bytes));
    ASSERT_EQ(stream.Flush(), "");
  }
}

TEST(Utf8Stream, GivesEverythingThatIsCertain) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Feed("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.held(), 2u);
  EXPECT_EQ(stream.Feed("\x98"), "");
  EXPECT_EQ(stream.Feed("\x80"
                        "b"),
            "😀b");
  EXPECT_EQ(stream.Feed("\xFF"), kBad);  // invalid: at once
  EXPECT_EQ(stream.Feed("\xE0"), "");
  EXPECT_EQ(stream.Feed("\x80"), kBad + kBad);  // no character goes on like this
  EXPECT_EQ(stream.Feed("\xE4\xB8"), "");
  EXPECT_EQ(stream.Feed("z"), kBad + "z");
  EXPECT_EQ(stream.Feed("\xE4"), "");
  EXPECT_EQ(stream.Flush(), kBad);
  EXPECT_EQ(stream.Feed("\xB8"), kBad);  // as new after a flush
}

TEST(ByteAlphabet, EveryByteHasItsOwnCharacter) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const std::string spelling = SpellingOfBytes(bytes);
  EXPECT_EQ(BytesOfSpelling(spelling), bytes);
  EXPECT_EQ(SpellingOfBytes(" \n\xE4~"), "ĠĊä~");
  EXPECT_EQ(BytesOfSpelling("Ġa"), " a");
  EXPECT_EQ(BytesOfSpelling("a b"), std::nullopt);  // a blank is no character of the alphabet
  EXPECT_EQ(BytesOfSpelling("中"), std::nullopt);
  EXPECT_EQ(BytesOfSpelling("\u00AD"), std::nullopt);
}

}  // namespace
}  // namespace deepinfer
