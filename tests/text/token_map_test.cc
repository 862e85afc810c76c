// Engram's token map against tables made with the reference implementation (its token_map.py, Python's Unicode data).
#include "text/token_map.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <tuple>

#include "tokenizer_fixture.h"

namespace deepinfer {
namespace {

std::vector<int32_t> Map(const Tokenizer& tokenizer) {
  auto map = BuildTokenMap(tokenizer);
  EXPECT_TRUE(map.ok()) << map.status().message();
  return std::move(map).value();
}

// CRC-32 of the table as little-endian int32, as zlib.crc32 of Python gives it for the reference table.
uint32_t Checksum(const std::vector<int32_t>& map) {
  return static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(map.data()), static_cast<uInt>(map.size() * sizeof(int32_t))));
}

TEST(TokenMap, NanoTableIsTheReferenceTable) {
  const std::vector<int32_t> map = Map(testing::NanoTokenizer());
  ASSERT_EQ(map.size(), 8192u);
  EXPECT_EQ(*std::max_element(map.begin(), map.end()) + 1, 6661);
  EXPECT_EQ(Checksum(map), 0xe684c084u);
}

TEST(TokenMap, ReleasedTableIsTheReferenceTable) {
  const std::vector<int32_t> map = Map(testing::ReleasedTokenizer());
  ASSERT_EQ(map.size(), 129280u);
  EXPECT_EQ(*std::max_element(map.begin(), map.end()) + 1, 99092);
  EXPECT_EQ(Checksum(map), 0x8603b89du);
}

TEST(TokenMap, NewIdsComeInOrderOfFirstAppearance) {
  int32_t next = 0;
  for (const int32_t id : Map(testing::NanoTokenizer())) {
    ASSERT_LE(id, next);
    next = std::max(next, id + 1);
  }
}

TEST(TokenMap, TokensThatAreNoTextKeepTheirOwnId) {
  const auto tokenizer = Tokenizer::FromJson(testing::SmallTokenizerJson({"a b", "A B", "Ġ ab"}).dump());
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<int32_t> map = Map(**tokenizer);
  EXPECT_EQ(map['A'], map['a']);
  EXPECT_EQ(map[256], map[257]);    // ab, AB
  EXPECT_EQ(map[256], map[258]);    // " ab"
  EXPECT_NE(map[0xC3], map[0xE3]);  // lone bytes of longer characters: told apart by their spelling
  EXPECT_EQ(map[' '], map['\t']);
  EXPECT_EQ(map[' '], map['\n']);
  EXPECT_NE(map[' '], map[0x0B]);  // stripped away entirely: stands for itself
}

TEST(TokenMap, Folding) {
  const std::tuple<const char*, const char*> cases[] = {
      {"", ""},
      {" ", " "},
      {"  ", " "},
      {" \t\r\n", " "},
      {"\u00A0", " "},  // NFKC makes it a blank
      {"\u3000 ", " "},
      {"\u2028", ""},  // white space, but not of the kind that runs are made of
      {" Hello ", "hello"},
      {"a  b\n\nc", "a b c"},
      {"É", "e"},
      {"E\u0301", "e"},
      {"ﬁ", "fi"},
      {"Ａ１", "a1"},
      {"İ", "i"},
      {"ΑΣ", "ασ"},  // not the final sigma: character by character
      {"한", "\u1112\u1161\u11AB"},
      {"が", "か"},
      {"中文", "中文"},
      {"\u0301", ""},
      {"ẞ", "ß"},
      {"½", "1⁄2"},
      {"\u000B x \u0085", "x"},
      {"a\u0488b", "ab"},  // an enclosing mark
  };
  for (const auto& [text, expected] : cases) {
    const auto folded = FoldTokenText(text);
    ASSERT_TRUE(folded.ok());
    EXPECT_EQ(*folded, expected) << text;
  }
}

}  // namespace
}  // namespace deepinfer
