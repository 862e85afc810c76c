// Every recorded request renders to its recorded prompt, and its ids are those of the whole string.
#include "prompt_vectors.h"

#include <gtest/gtest.h>

#include "tokenizer_fixture.h"

namespace deepinfer {
namespace {

using testing::PromptOf;
using testing::PromptVector;
using testing::PromptVectors;

// The recorded requests come from a server that skips json_schema.
constexpr RequestOptions kRecordedOptions{.ignore_schemas = true};

class PromptVectorTest : public ::testing::TestWithParam<PromptVector> {};

TEST_P(PromptVectorTest, RendersExactly) {
  EXPECT_EQ(testing::TextOf(GetParam().protocol, GetParam().request, kRecordedOptions), GetParam().expected);
}

TEST_P(PromptVectorTest, RendersExactlyWithReasoningKept) {
  if (GetParam().expected_keep.empty()) return;
  const RequestOptions keep{.reasoning_history = ReasoningHistory::kKeep, .ignore_schemas = true};
  EXPECT_EQ(testing::TextOf(GetParam().protocol, GetParam().request, keep), GetParam().expected_keep);
}

// Where no user text looks like a special token, encoding the string with special tokens matched gives the same ids.
TEST_P(PromptVectorTest, IdsAreThoseOfTheWholeString) {
  if (GetParam().name == "chat_special_literal_in_user") return;
  const Result<Prompt> prompt = PromptOf(GetParam().protocol, GetParam().request, kRecordedOptions);
  ASSERT_TRUE(prompt.ok());
  for (const Tokenizer* tokenizer : {&testing::ReleasedTokenizer(), &testing::NanoTokenizer()}) {
    const Result<std::vector<int32_t>> ids = PromptIds(*prompt, *tokenizer);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    std::vector<int32_t> whole;
    ASSERT_TRUE(tokenizer->EncodeWithSpecial(prompt->Text(), &whole).ok());
    EXPECT_EQ(*ids, whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, PromptVectorTest, ::testing::ValuesIn(PromptVectors()),
                         [](const auto& info) { return info.param.name; });

TEST(PromptVectorFile, HoldsEveryProtocol) {
  EXPECT_EQ(PromptVectors().size(), 71u);
  size_t keep = 0;
  for (const PromptVector& vector : PromptVectors()) keep += vector.expected_keep.empty() ? 0 : 1;
  EXPECT_EQ(keep, 3u);
}

}  // namespace
}  // namespace deepinfer
