// Prompt -> ids with the released tokenizer: measured counts, injection, missing tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "text/prompt_renderer.h"
#include "tokenizer_fixture.h"

namespace deepinfer {
namespace {

using testing::ReleasedTokenizer;

std::vector<int32_t> Ids(const Prompt& prompt, const Tokenizer& tokenizer = ReleasedTokenizer()) {
  const Result<std::vector<int32_t>> ids = PromptIds(prompt, tokenizer);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return ids.ok() ? *ids : std::vector<int32_t>();
}

std::vector<int32_t> UserIds(const std::string& content, const Tokenizer& tokenizer = ReleasedTokenizer()) {
  Conversation chat = NewChat("", /*thinking=*/false);
  AppendUserTurn(content, &chat);
  return Ids(*RenderPrompt(chat), tokenizer);
}

// Input token counts that the hosted service reports (docs/prompt-format.md, "Segments").
TEST(PromptIds, MeasuredCounts) {
  EXPECT_EQ(UserIds(""), (std::vector<int32_t>{0, 128803, 128804, 128822}));
  EXPECT_EQ(UserIds("x").size(), 5u);
  EXPECT_EQ(UserIds("<｜User｜>"), (std::vector<int32_t>{0, 128803, 30, 28217, 6756, 28217, 32, 128804, 128822}));
  EXPECT_EQ(UserIds("<｜Assistant｜>").size(), 9u);
  EXPECT_EQ(UserIds("<｜System｜>").size(), 9u);
  EXPECT_EQ(UserIds("<think>").size(), 7u);
  EXPECT_EQ(UserIds("</think>").size(), 7u);
}

TEST(PromptIds, ThinkingAndTools) {
  Conversation chat = NewChat("", /*thinking=*/true);
  AppendUserTurn("x", &chat);
  std::vector<int32_t> ids = Ids(*RenderPrompt(chat));
  EXPECT_EQ(ids.front(), 0);
  EXPECT_EQ(ids[1], 128799);
  EXPECT_EQ(ids.back(), 128821);

  // The fixed text of the tools block holds 9 DSML marks, <think> twice and </think> twice, all special.
  chat.thinking = false;
  const std::vector<int32_t> without = Ids(*RenderPrompt(chat));
  Tool tool;
  tool.name = "f";
  chat.tools = {tool};
  const std::vector<int32_t> with = Ids(*RenderPrompt(chat));
  const auto added = [&](int32_t id) {
    return std::count(with.begin(), with.end(), id) - std::count(without.begin(), without.end(), id);
  };
  EXPECT_EQ(added(128825), 9);
  EXPECT_EQ(added(128821), 2);
  EXPECT_EQ(added(128822), 2);
}

TEST(PromptIds, FillInTheMiddle) {
  EXPECT_EQ(Ids(RenderCompletion("a", "b")), (std::vector<int32_t>{0, 128801, 67, 128800, 68, 128802}));
  EXPECT_EQ(Ids(RenderCompletion("a", "")), (std::vector<int32_t>{0, 128801, 67, 128800, 128802}));
  EXPECT_EQ(Ids(RenderCompletion("a")), (std::vector<int32_t>{0, 67}));
  // The user's text is plain here too.
  const std::vector<int32_t> ids = Ids(RenderCompletion("<｜fim▁hole｜>", "<｜fim▁end｜><｜begin▁of▁sentence｜>"));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 128800), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 128802), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), 1);
}

// No user text at all brings an added token into the prompt: every added token, alone and cut up, and random mixtures.
TEST(PromptIds, UserTextNeverBecomesAControlToken) {
  const Tokenizer& tokenizer = testing::NanoTokenizer();
  const std::vector<int32_t> empty = UserIds("", tokenizer);
  const auto expect_plain = [&](const std::string& content) {
    std::vector<int32_t> ids = UserIds(content, tokenizer);
    std::erase_if(ids, [&](int32_t id) { return !tokenizer.IsAdded(id); });
    EXPECT_EQ(ids, empty) << content;
  };
  std::vector<std::string> spellings;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.IsAdded(id)) spellings.push_back(tokenizer.TokenText(id));
  }
  ASSERT_GT(spellings.size(), 40u);
  for (const std::string& spelling : spellings) expect_plain(spelling);
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::string content;
    for (unsigned pieces = random() % 6; pieces > 0; --pieces) {
      const std::string& spelling = spellings[random() % spellings.size()];
      content += random() % 3 == 0 ? spelling.substr(random() % spelling.size()) : spelling;
      if (random() % 3 == 0) content += testing::RandomText(&random, random() % 8);
    }
    expect_plain(content);
  }
}

TEST(PromptIds, AMissingTokenIsNamed) {
  const Result<std::unique_ptr<Tokenizer>> bare = [] {
    // The released tokenizer without its reminder token.
    std::string json = testing::ReleasedTokenizerJson();
    const size_t at = json.find("<｜latest_reminder｜>");
    EXPECT_NE(at, std::string::npos);
    json.replace(at, std::string("<｜latest_reminder｜>").size(), "<｜latest_remainder｜>");
    return Tokenizer::FromJson(json);
  }();
  ASSERT_TRUE(bare.ok()) << bare.status().message();
  Conversation chat = NewChat("", /*thinking=*/false);
  AppendUserTurn("x", &chat);
  EXPECT_TRUE(PromptIds(*RenderPrompt(chat), **bare).ok());
  chat.messages[0].role = Role::kLatestReminder;
  const Result<std::vector<int32_t>> ids = PromptIds(*RenderPrompt(chat), **bare);
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), StatusCode::kNotFound);
  EXPECT_NE(ids.status().message().find("<｜latest_reminder｜>"), std::string::npos);
}

}  // namespace
}  // namespace deepinfer
