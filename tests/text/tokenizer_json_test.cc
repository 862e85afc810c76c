// What is refused in a tokenizer.json, and that the message says where and why.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "text/tokenizer.h"
#include "tokenizer_fixture.h"

namespace deepinfer {
namespace {

using Json = nlohmann::ordered_json;
using testing::SmallTokenizerJson;

struct Case {
  const char* name;
  std::function<void(Json*)> change;
  const char* message;  // part of the error; nullptr: still accepted
};

Json& Split(Json* json, size_t index) { return (*json)["pre_tokenizer"]["pretokenizers"][index]; }

const Case kCases[] = {
    {"Unchanged", [](Json*) {}, nullptr},
    {"NormalizerNull", [](Json* j) { (*j)["normalizer"] = nullptr; }, nullptr},
    {"NormalizerAbsent", [](Json* j) { j->erase("normalizer"); }, nullptr},
    {"PostProcessorNull", [](Json* j) { (*j)["post_processor"] = nullptr; }, nullptr},
    {"MergesAsPairs", [](Json* j) { (*j)["model"]["merges"] = Json::parse("[[\"a\", \"b\"], [\"ab\", \"c\"]]"); },
     nullptr},
    {"NoMerges", [](Json* j) { (*j)["model"]["merges"] = Json::array(); }, nullptr},
    {"EmptyAffixes", [](Json* j) { (*j)["model"]["end_of_word_suffix"] = ""; }, nullptr},
    {"OnlyByteLevel", [](Json* j) { (*j)["pre_tokenizer"] = Json(Split(j, 3)); }, nullptr},
    {"AddedTokenInVocabulary", [](Json* j) { (*j)["model"]["vocab"]["<bos>"] = 258; }, nullptr},

    {"NotAnObject", [](Json* j) { *j = Json::array(); }, "the file: expected an object"},
    {"NoModel", [](Json* j) { j->erase("model"); }, "key model is missing"},
    {"NoVocabulary", [](Json* j) { (*j)["model"].erase("vocab"); }, "key model.vocab is missing"},
    {"NoMergesKey", [](Json* j) { (*j)["model"].erase("merges"); }, "key model.merges is missing"},
    {"NoAddedTokens", [](Json* j) { j->erase("added_tokens"); }, "key added_tokens is missing"},
    {"NoPreTokenizer", [](Json* j) { j->erase("pre_tokenizer"); }, "key pre_tokenizer is missing"},
    {"NoDecoder", [](Json* j) { j->erase("decoder"); }, "key decoder is missing"},
    {"NoModelType", [](Json* j) { (*j)["model"].erase("type"); }, "key model.type is missing"},
    {"ModelTypeIsNumber", [](Json* j) { (*j)["model"]["type"] = 3; }, "model.type: expected a string, found 3"},
    {"Unigram", [](Json* j) { (*j)["model"]["type"] = "Unigram"; },
     "model.type: only BPE is implemented, found \"Unigram\""},
    {"Dropout", [](Json* j) { (*j)["model"]["dropout"] = 0.1; }, "model.dropout: only null"},
    {"IgnoreMerges", [](Json* j) { (*j)["model"]["ignore_merges"] = true; }, "model.ignore_merges: only false"},
    {"Prefix", [](Json* j) { (*j)["model"]["continuing_subword_prefix"] = "##"; },
     "model.continuing_subword_prefix: only null"},
    {"Truncation", [](Json* j) { (*j)["truncation"] = Json::object(); }, "truncation: only null"},
    {"Nfc",
     [](Json* j) {
       (*j)["normalizer"] = {{"type", "NFC"}};
     },
     "normalizer.type: only none"},
    {"NormalizerSequence",
     [](Json* j) {
       (*j)["normalizer"]["normalizers"] = {{{"type", "NFC"}}};
     },
     "normalizer.normalizers: only an empty array"},
    {"DecoderType", [](Json* j) { (*j)["decoder"]["type"] = "WordPiece"; }, "decoder.type: only ByteLevel"},
    {"Template", [](Json* j) { (*j)["post_processor"]["type"] = "TemplateProcessing"; },
     "post_processor.type: only ByteLevel"},
    {"PreTokenizerType", [](Json* j) { (*j)["pre_tokenizer"]["type"] = "Whitespace"; },
     "pre_tokenizer.type: only Sequence"},
    {"NoSplits", [](Json* j) { (*j)["pre_tokenizer"]["pretokenizers"] = Json::array(); },
     "pre_tokenizer.pretokenizers: expected an array that ends with ByteLevel"},
    {"NoByteLevel", [](Json* j) { (*j)["pre_tokenizer"]["pretokenizers"].erase(3); },
     "pretokenizers[2].type: only ByteLevel"},
    {"UseRegex", [](Json* j) { Split(j, 3)["use_regex"] = true; }, "pretokenizers[3].use_regex: only false"},
    {"UseRegexByDefault", [](Json* j) { Split(j, 3).erase("use_regex"); }, "pretokenizers[3].use_regex: only false"},
    {"PrefixSpace", [](Json* j) { Split(j, 3)["add_prefix_space"] = true; }, "add_prefix_space: only false"},
    {"SplitType", [](Json* j) { Split(j, 1)["type"] = "Digits"; }, "pretokenizers[1].type: only Split"},
    {"SplitBehaviour", [](Json* j) { Split(j, 1)["behavior"] = "Removed"; },
     "pretokenizers[1].behavior: only Isolated"},
    {"SplitInvert", [](Json* j) { Split(j, 0)["invert"] = true; }, "pretokenizers[0].invert: only false"},
    {"SplitLiteral",
     [](Json* j) {
       Split(j, 0)["pattern"] = {{"String", " "}};
     },
     "pretokenizers[0].pattern: only"},
    {"SplitNoPattern", [](Json* j) { Split(j, 0).erase("pattern"); }, "pretokenizers[0].pattern is missing"},
    {"BackReference", [](Json* j) { Split(j, 0)["pattern"]["Regex"] = "(a)\\1"; },
     "split pattern \"(a)\\1\" at byte 0"},
    {"EmptyMatch", [](Json* j) { Split(j, 0)["pattern"]["Regex"] = "a*"; }, "can match the empty string"},
    {"AddedWithoutContent", [](Json* j) { (*j)["added_tokens"][1].erase("content"); },
     "added_tokens[1].content is missing"},
    {"AddedEmpty", [](Json* j) { (*j)["added_tokens"][1]["content"] = ""; },
     "added_tokens[1].content: expected a string that is not"},
    {"AddedNegative", [](Json* j) { (*j)["added_tokens"][0]["id"] = -1; },
     "added_tokens[0].id: expected a token id, found -1"},
    {"AddedHuge", [](Json* j) { (*j)["added_tokens"][0]["id"] = 4294967296; },
     "added_tokens[0].id: expected a token id"},
    {"AddedFar", [](Json* j) { (*j)["added_tokens"][0]["id"] = 2000000000; },
     "id 2000000000 (\"<bos>\") is out of range"},
    {"AddedTwice", [](Json* j) { (*j)["added_tokens"][1]["id"] = 258; }, "id 258 (\"<|tool|>\") occurs twice"},
    {"AddedSameText", [](Json* j) { (*j)["added_tokens"][1]["content"] = "<bos>"; }, "\"<bos>\" has ids 258 and 259"},
    {"AddedStrips", [](Json* j) { (*j)["added_tokens"][1]["lstrip"] = true; }, "added_tokens[1].lstrip: only false"},
    {"AddedContradictsVocabulary", [](Json* j) { (*j)["added_tokens"][1]["id"] = 65; },
     "id 65 (\"<|tool|>\") is \"A\" in model.vocab"},
    {"IdIsText", [](Json* j) { (*j)["model"]["vocab"]["a"] = "1"; },
     "model.vocab[\"a\"]: expected an integer id, found string"},
    {"IdIsFraction", [](Json* j) { (*j)["model"]["vocab"]["a"] = 1.5; }, "model.vocab[\"a\"]: expected an integer id"},
    {"IdIsObject", [](Json* j) { (*j)["model"]["vocab"]["a"] = Json::object(); },
     "model.vocab[\"a\"]: expected an integer id"},
    {"IdNegative", [](Json* j) { (*j)["model"]["vocab"]["a"] = -7; }, "model.vocab[\"a\"]: id -7 is out of range"},
    {"IdHuge", [](Json* j) { (*j)["model"]["vocab"]["a"] = 18446744073709551615u; }, "is out of range"},
    {"IdTwice", [](Json* j) { (*j)["model"]["vocab"]["a"] = 98; }, "model.vocab gives id 98 to both"},
    {"IdGap",
     [](Json* j) {
       (*j)["model"]["vocab"]["<bos>"] = 258;
       (*j)["added_tokens"][1]["id"] = 260;
     },
     "no token has id 259, but larger ids exist"},
    {"ByteMissing",
     [](Json* j) {
       (*j)["model"]["vocab"].erase("a");
       (*j)["model"]["vocab"]["zz"] = 97;
     },
     "has no token \"a\" for byte 97"},
    {"EmptyToken", [](Json* j) { (*j)["model"]["vocab"][""] = 260; }, "the token with id 260 is empty"},
    {"VocabularyIsArray", [](Json* j) { (*j)["model"]["vocab"] = Json::array(); },
     "model.vocab: expected an object, found an array"},
    {"MergesIsObject", [](Json* j) { (*j)["model"]["merges"] = Json::object(); },
     "model.merges: expected an array, found an object"},
    {"MergeOfOne", [](Json* j) { (*j)["model"]["merges"][1] = "abc"; },
     "model.merges[1]: expected two tokens with one blank"},
    {"MergeOfThree", [](Json* j) { (*j)["model"]["merges"][1] = "a b c"; },
     "model.merges[1]: expected two tokens with one blank"},
    {"PairOfOne", [](Json* j) { (*j)["model"]["merges"][0] = {"a"}; },
     "model.merges[0]: expected two tokens, found fewer"},
    {"PairOfThree",
     [](Json* j) {
       (*j)["model"]["merges"][0] = {"a", "b", "c"};
     },
     "model.merges[0]: expected two tokens, found more"},
    {"MergeIsNumber", [](Json* j) { (*j)["model"]["merges"][0] = 5; }, "model.merges[0]: expected \"left right\""},
    {"PairOfNumbers",
     [](Json* j) {
       (*j)["model"]["merges"][0] = {1, 2};
     },
     "model.merges[0]: expected \"left right\""},
    {"MergeUnknownLeft", [](Json* j) { (*j)["model"]["merges"][1] = "abx c"; }, "\"abx\" is not in model.vocab"},
    {"MergeUnknownRight", [](Json* j) { (*j)["model"]["merges"][1] = "ab 中"; }, "\"中\" is not in model.vocab"},
    {"MergeUnknownResult", [](Json* j) { (*j)["model"]["merges"][1] = "a c"; },
     "the merged token is not in model.vocab"},
    {"MergeMakesAddedToken",
     [](Json* j) {
       (*j)["added_tokens"].push_back({{"id", 257}, {"content", "abc"}, {"special", false}});
     },
     "makes an added token"},
    {"ByteIsAddedToken",
     [](Json* j) {
       (*j)["added_tokens"].push_back({{"id", 97}, {"content", "a"}, {"special", false}});
     },
     "added_tokens lists \"a\", the token of a single byte"},
    {"MergeTwice", [](Json* j) { (*j)["model"]["merges"][1] = "a b"; }, "is the same as model.merges[0]"},
};

class TokenizerJson : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, TokenizerJson, ::testing::ValuesIn(kCases),
                         [](const auto& suite) { return std::string(suite.param.name); });

TEST_P(TokenizerJson, IsAcceptedOrExplained) {
  Json json = SmallTokenizerJson({"a b", "ab c"});
  GetParam().change(&json);
  const auto tokenizer = Tokenizer::FromJson(json.dump(), "model/tokenizer.json");
  if (GetParam().message == nullptr) {
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return;
  }
  ASSERT_FALSE(tokenizer.ok());
  const std::string message = tokenizer.status().message();
  EXPECT_EQ(message.rfind("model/tokenizer.json: ", 0), 0u) << message;
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(TokenizerJson, DamagedTextIsRefusedEverywhere) {
  const std::string whole = SmallTokenizerJson({"a b", "ab c"}).dump();
  for (size_t length = 0; length < whole.size(); length += 7) {
    EXPECT_FALSE(Tokenizer::FromJson(whole.substr(0, length)).ok()) << length;
  }
  for (const char* text :
       {"", "null", "7", "\"x\"", "{}", "[[", "\xFF", "{\"a\":1,\"a\":2}", "{\"model\":{\"vocab\":{\"\xFF\":1}}}"}) {
    EXPECT_FALSE(Tokenizer::FromJson(text).ok()) << text;
  }
  EXPECT_FALSE(Tokenizer::FromJson(std::string(100000, '[')).ok());
}

TEST(TokenizerJson, DuplicateKeysAreRefused) {
  std::string json = SmallTokenizerJson({"a b", "ab c"}).dump();
  json.insert(json.find("\"merges\""), "\"merges\":[],");
  const auto tokenizer = Tokenizer::FromJson(json);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.status().message().find("key \"merges\" occurs twice"), std::string::npos);
}

TEST(TokenizerJson, DuplicateSpellingsAreRefused) {
  std::string json = SmallTokenizerJson({"a b", "ab c"}).dump();
  json.insert(json.find("\"abc\":"), "\"ab\":260,");
  const auto tokenizer = Tokenizer::FromJson(json);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.status().message().find("model.vocab has the token \"ab\" twice, as ids 256 and 260"),
            std::string::npos)
      << tokenizer.status().message();
}

}  // namespace
}  // namespace deepinfer
