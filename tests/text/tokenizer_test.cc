// Encoding and decoding: the recorded vectors, and the properties that hold for any text.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "text/utf8.h"
#include "tokenizer_fixture.h"

namespace deepinfer {
namespace {

using testing::NanoTokenizer;
using testing::RandomText;
using testing::ReleasedTokenizer;
using testing::SmallTokenizerJson;

using Ids = std::vector<int32_t>;

Ids Encode(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  const Status status = tokenizer.Encode(text, &ids);
  EXPECT_TRUE(status.ok()) << status.message();
  return ids;
}

Ids EncodeWithSpecial(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  const Status status = tokenizer.EncodeWithSpecial(text, &ids);
  EXPECT_TRUE(status.ok()) << status.message();
  return ids;
}

std::unique_ptr<Tokenizer> Small(const nlohmann::ordered_json& json) {
  auto tokenizer = Tokenizer::FromJson(json.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

TEST(TokenizerVectors, ReleasedTokenizerIsExact) {
  std::ifstream file(std::string(DEEPINFER_SOURCE_DIR) + "/tests/data/text/tokenizer_vectors.jsonl");
  size_t count = 0;
  for (std::string line; std::getline(file, line); ++count) {
    const auto vector = nlohmann::json::parse(line);
    const auto text = vector["text"].get<std::string>();
    const auto expected = vector["ids"].get<Ids>();
    const bool special = vector["mode"] == "special";
    EXPECT_EQ(special ? EncodeWithSpecial(ReleasedTokenizer(), text) : Encode(ReleasedTokenizer(), text), expected)
        << vector["name"];
    EXPECT_EQ(ReleasedTokenizer().Decode(expected, /*skip_special=*/false), text) << vector["name"];
  }
  EXPECT_EQ(count, 122u);
}

class BothTokenizers : public ::testing::TestWithParam<const char*> {
 protected:
  static const Tokenizer& tokenizer() {
    return std::string_view(GetParam()) == "nano" ? NanoTokenizer() : ReleasedTokenizer();
  }
};
INSTANTIATE_TEST_SUITE_P(Tokenizers, BothTokenizers, ::testing::Values("nano", "released"),
                         [](const auto& suite) { return std::string(suite.param); });

TEST_P(BothTokenizers, DecodeUndoesEncode) {
  std::mt19937 random(7);
  for (int i = 0; i < 400; ++i) {
    const std::string text = RandomText(&random, 1 + random() % 300);
    const Ids ids = Encode(tokenizer(), text);
    ASSERT_EQ(tokenizer().Decode(ids, /*skip_special=*/false), text);
    for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && id < tokenizer().vocab_size() && !tokenizer().IsAdded(id));
    ASSERT_EQ(tokenizer().Decode(EncodeWithSpecial(tokenizer(), text), false), text);
  }
}

TEST_P(BothTokenizers, LongRunsOfOneCharacterSurvive) {
  for (const char* unit : {"a", " ", "\n", "!", "7", "的", "\x01", "\xCC\x81", "😀", "\r\n"}) {
    std::string text;
    while (text.size() < 200000) text += unit;
    ASSERT_EQ(tokenizer().Decode(Encode(tokenizer(), text), false), text) << unit;
  }
}

TEST_P(BothTokenizers, PlainTextNeverBecomesAControlToken) {
  for (int32_t id = 0; id < tokenizer().vocab_size(); ++id) {
    if (!tokenizer().IsAdded(id)) continue;
    const std::string text(tokenizer().TokenBytes(id));
    for (const int32_t made : Encode(tokenizer(), text)) ASSERT_FALSE(tokenizer().IsAdded(made)) << text;
    ASSERT_EQ(EncodeWithSpecial(tokenizer(), text), Ids{id});
    ASSERT_EQ(tokenizer().IdOfAddedToken(text), id);
    ASSERT_EQ(tokenizer().TokenText(id), text);
  }
}

TEST_P(BothTokenizers, InvalidUtf8IsEncodedAsReplacementCharacters) {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    std::string text = RandomText(&random, 40);
    for (int damage = 0; damage < 4; ++damage) text[random() % text.size()] = static_cast<char>(random());
    ASSERT_EQ(Encode(tokenizer(), text), Encode(tokenizer(), RepairUtf8(text)));
    ASSERT_EQ(tokenizer().Decode(Encode(tokenizer(), text), false), RepairUtf8(text));
  }
}

TEST(Tokenizer, KnownFacts) {
  EXPECT_EQ(ReleasedTokenizer().vocab_size(), 129280);
  EXPECT_EQ(NanoTokenizer().vocab_size(), 8192);
  EXPECT_EQ(ReleasedTokenizer().IdOfAddedToken("<｜User｜>"), 128803);
  EXPECT_EQ(NanoTokenizer().IdOfAddedToken("<｜User｜>"), 4);
  EXPECT_EQ(NanoTokenizer().IdOfAddedToken("<｜User"), std::nullopt);
  EXPECT_EQ(NanoTokenizer().IdOfAddedToken("<｜User｜>x"), std::nullopt);
  EXPECT_EQ(NanoTokenizer().IdOfAddedToken(""), std::nullopt);
  EXPECT_TRUE(NanoTokenizer().IsSpecial(1));
  EXPECT_FALSE(NanoTokenizer().IsSpecial(4));
  EXPECT_TRUE(NanoTokenizer().IsAdded(4));
  EXPECT_FALSE(NanoTokenizer().IsAdded(64));
}

TEST(Tokenizer, ByteTokensAndSpellings) {
  const auto tokenizer = Small(SmallTokenizerJson({"Ġ a"}));
  EXPECT_EQ(tokenizer->TokenBytes(0x20), " ");
  EXPECT_EQ(tokenizer->TokenText(0x20), "Ġ");
  EXPECT_EQ(tokenizer->TokenBytes(256), " a");
  EXPECT_EQ(tokenizer->TokenText(256), "Ġa");
  EXPECT_EQ(Encode(*tokenizer, "a a"), (Ids{'a', 256}));
}

TEST(Tokenizer, EncodeAppends) {
  const auto tokenizer = Small(SmallTokenizerJson({}));
  Ids ids = {5};
  ASSERT_TRUE(tokenizer->Encode("hi", &ids).ok());
  ASSERT_TRUE(tokenizer->EncodeWithSpecial("<bos>", &ids).ok());
  EXPECT_EQ(ids, (Ids{5, 'h', 'i', 256}));
}

TEST(Tokenizer, AddedTokensMatchLeftmostThenLongest) {
  auto json = SmallTokenizerJson({});
  int32_t next = 258;
  for (const char* content : {"ab", "abc", "bcd", "cdefg", "é"}) {
    json["added_tokens"].push_back({{"id", next++}, {"content", content}, {"special", false}});
  }
  const auto tokenizer = Small(json);
  EXPECT_EQ(EncodeWithSpecial(*tokenizer, "abcdefg"), (Ids{259, 'd', 'e', 'f', 'g'}));
  EXPECT_EQ(EncodeWithSpecial(*tokenizer, "xabab"), (Ids{'x', 258, 258}));
  EXPECT_EQ(EncodeWithSpecial(*tokenizer, "bcdefg"), (Ids{260, 'e', 'f', 'g'}));
  EXPECT_EQ(EncodeWithSpecial(*tokenizer, "cdef"), (Ids{'c', 'd', 'e', 'f'}));
  EXPECT_EQ(EncodeWithSpecial(*tokenizer, "aé"), (Ids{'a', 262}));
  // "é" is also how the alphabet spells byte 0xE9: as an added token it is its own UTF-8.
  EXPECT_EQ(tokenizer->TokenBytes(262), "é");
  EXPECT_EQ(tokenizer->TokenText(262), "é");
}

TEST(Tokenizer, DecodeSkipsSpecialTokensAndUnknownIds) {
  const auto tokenizer = Small(SmallTokenizerJson({}));
  const Ids ids = {256, 'o', 257, -1, 100000, 'k'};
  EXPECT_EQ(tokenizer->Decode(ids, /*skip_special=*/false), "<bos>o<|tool|>k");
  EXPECT_EQ(tokenizer->Decode(ids, /*skip_special=*/true), "o<|tool|>k");
  EXPECT_EQ(tokenizer->Decode(Ids{0xE7, 0x9A}, false), "\xEF\xBF\xBD");
  for (const int32_t id : {-1, 258, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->TokenBytes(id), "");
    EXPECT_EQ(tokenizer->TokenText(id), "");
    EXPECT_FALSE(tokenizer->IsAdded(id) || tokenizer->IsSpecial(id));
  }
}

// A rule that only a rule of a higher rank makes possible, and a token that no rule makes: the whole token must not be
// taken from the vocabulary where merging would not arrive at it.
TEST(Tokenizer, ATokenThatMergingDoesNotReachIsNotUsed) {
  auto json = SmallTokenizerJson({"b c", "a b", "ab c"});
  const auto tokenizer = Small(json);
  const Ids expected = {'a', 256};  // b c merges first; "abc" has an id, but a + bc has no rule
  EXPECT_EQ(Encode(*tokenizer, "abc"), expected);
  EXPECT_EQ(Encode(*tokenizer, "abc"), expected);  // from the cache of known answers
}

TEST(Tokenizer, ManyThreadsEncodeAlike) {
  const auto tokenizer = Tokenizer::Load(std::string(DEEPINFER_SOURCE_DIR) + "/models/nano/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok());
  std::mt19937 random(3);
  const std::string text = RandomText(&random, 20000) + " The quick brown fox jumps over the lazy dog.";
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  threads.reserve(results.size());
  for (Ids& ids : results) {
    threads.emplace_back([&] { EXPECT_TRUE((*tokenizer)->Encode(text, &ids).ok()); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : results) EXPECT_EQ(ids, results[0]);
}

TEST(Tokenizer, AFailedEncodeLeavesTheOutputAlone) {
  auto json = SmallTokenizerJson({});
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(?:(?:x+)+)+y";  // exponential in a run of x
  const auto tokenizer = Small(json);
  Ids ids = {5};
  const Status status = tokenizer->EncodeWithSpecial("ok<bos>" + std::string(60, 'x') + "zy", &ids);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_EQ(ids, Ids{5});
}

TEST(Tokenizer, MissingFileIsNamed) {
  const auto tokenizer = Tokenizer::Load("/nowhere/tokenizer.json");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kNotFound);
  EXPECT_NE(tokenizer.status().message().find("/nowhere/tokenizer.json"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
