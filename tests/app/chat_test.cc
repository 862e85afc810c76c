// chat, through the real binary: one-shot, by pipe, and on a terminal.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "program.h"

namespace deepinfer {
namespace {

constexpr char kQuestion[] = "What is the capital of France?";
constexpr char kAnswer[] = "The capital of France is Paris.";
constexpr char kSum[] = "Tom has 9 apples. Anna gives Tom 4 more. How many apples does Tom have now?";

/// A folder of its own for the history of one test.
class ChatTerminal : public testing::Test {
 protected:
  ChatTerminal() {
    char name[] = "/tmp/deepinfer-chat-XXXXXX";
    folder_ = mkdtemp(name);
    environment_ = {"XDG_STATE_HOME=" + folder_};
  }
  ~ChatTerminal() override { std::filesystem::remove_all(folder_); }

  std::string HistoryFile() const { return folder_ + "/deepinfer/chat_history"; }

  std::string folder_;
  std::vector<std::string> environment_;
};

TEST(Chat, AnswersOnStandardOutput) {
  const ProgramResult by_words = RunProgram({"chat", "--temperature", "0", kQuestion});
  EXPECT_EQ(by_words.exit_status, 0);
  EXPECT_EQ(by_words.out, std::string(kAnswer) + "\n");
  EXPECT_EQ(by_words.err, "");
  const ProgramResult by_pipe = RunProgram({"chat", "--temperature", "0"}, std::string(kQuestion) + "\n");
  EXPECT_EQ(by_pipe.out, by_words.out);
  // Words of the message may be names of commands.
  EXPECT_EQ(RunProgram({"chat", "--max-tokens", "2", "version", "info"}).exit_status, 0);
}

TEST(Chat, ReasoningIsNotPartOfAPipedAnswer) {
  const ProgramResult result = RunProgram({"chat", "--temperature", "0", "--think", "on", kSum});
  EXPECT_EQ(result.out, "The answer is 13.\n");
  EXPECT_NE(result.err.find("9 + 4 = 13."), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
}

TEST(Chat, ReasoningIsDimmed) {
  const ProgramResult result = RunProgram({"chat", "--temperature", "0", "--think", "on", "--color", "always", kSum});
  EXPECT_TRUE(result.out.starts_with("\x1b[2m")) << result.out;
  const size_t plain = result.out.find("\x1b[0m");
  ASSERT_NE(plain, std::string::npos);
  EXPECT_LT(result.out.find("9 + 4 = 13."), plain);
  EXPECT_EQ(result.out.substr(plain), "\x1b[0m\n\nThe answer is 13.\n");
}

TEST(Chat, StopTextsAndSeeds) {
  EXPECT_EQ(RunProgram({"chat", "--temperature", "0", "--stop", "France is", kQuestion}).out, "The capital of \n");
  const std::vector<std::string> arguments = {"chat", "--temperature", "1", "--seed", "3", "--max-tokens", "30", "Hi"};
  EXPECT_EQ(RunProgram(arguments).out, RunProgram(arguments).out);
}

TEST_F(ChatTerminal, ConversesAndLeaves) {
  TerminalProgram chat({"chat", "--temperature", "0"}, environment_);
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send(std::string(kQuestion) + "\r");
  ASSERT_TRUE(chat.Expect(kAnswer));
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send("/help\r");
  ASSERT_TRUE(chat.Expect("/clear  start a new conversation"));
  chat.Send("/claer\r");
  ASSERT_TRUE(chat.Expect("unknown command '/claer' (did you mean '/clear'?)"));
  chat.Send("/clear\r");
  ASSERT_TRUE(chat.Expect("A new conversation."));
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send("\x04");  // Ctrl-D
  EXPECT_EQ(chat.Wait(), 0);

  TerminalProgram again({"chat", "--temperature", "0"}, environment_);
  ASSERT_TRUE(again.Expect(">>> "));
  again.Send("/exit\r");
  EXPECT_EQ(again.Wait(), 0);
}

TEST_F(ChatTerminal, RemembersTheConversationUntilCleared) {
  TerminalProgram chat({"chat", "--temperature", "0", "--ctx", "40"}, environment_);
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send(std::string(kQuestion) + "\r");
  ASSERT_TRUE(chat.Expect(kAnswer));
  ASSERT_TRUE(chat.Expect(">>> "));
  // What was said before counts: with it this does not fit, after /clear it does.
  const std::string long_question = "What is the capital of France, of Spain, of Italy, of Sweden, of Norway?";
  chat.Send(long_question + "\r");
  ASSERT_TRUE(chat.Expect("leave no room in the context of 40 tokens"));
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send("/clear\r");
  ASSERT_TRUE(chat.Expect("A new conversation."));
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send(std::string(kQuestion) + "\r");
  ASSERT_TRUE(chat.Expect(kAnswer));
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send("\x04");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTerminal, ControlCStopsTheAnswerAndClearsTheLine) {
  TerminalProgram chat({"chat", "--temperature", "0", "--think", "on", "--ignore-eos"}, environment_);
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send("half a line\x03");
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send("Tell me a long story about a fox and a bear.\r");
  ASSERT_TRUE(chat.Expect("\x1b[2m"));  // the reasoning has begun
  chat.Send("\x03");
  ASSERT_TRUE(chat.Expect("\x1b[0m"));  // and its dimming ends
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send("/exit\r");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTerminal, ControlCEndsAOneShotAnswer) {
  // Without an end of its own, the answer is still running when the key arrives.
  TerminalProgram chat({"chat", "--temperature", "0", "--ignore-eos", "Tell me a story about a fox."}, environment_);
  ASSERT_TRUE(chat.Expect(" "));
  chat.Send("\x03");
  EXPECT_EQ(chat.Wait(), 130);
  EXPECT_TRUE(chat.screen().ends_with("\n")) << chat.screen();
}

TEST_F(ChatTerminal, EditsLinesAndKeepsTheHistory) {
  {
    TerminalProgram chat({"chat", "--temperature", "0"}, environment_);
    ASSERT_TRUE(chat.Expect(">>> "));
    // A character of several bytes is one key to delete.
    chat.Send(
        "What is the capital of 🦊é\x7f\x7f"
        "France?\r");
    ASSERT_TRUE(chat.Expect(kAnswer));
    ASSERT_TRUE(chat.Expect(">>> "));
    chat.Send("\x04");
    EXPECT_EQ(chat.Wait(), 0);
  }
  std::ifstream history(HistoryFile());
  EXPECT_TRUE(history.good());
  const auto permissions = std::filesystem::status(HistoryFile()).permissions();
  EXPECT_EQ(permissions & std::filesystem::perms::others_read, std::filesystem::perms::none);

  TerminalProgram chat({"chat", "--temperature", "0"}, environment_);
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send("\x1b[A");  // the line of the last session
  ASSERT_TRUE(chat.Expect(kQuestion));
  chat.Send("\r");
  ASSERT_TRUE(chat.Expect(kAnswer));
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send("What is the capital\\\r");
  ASSERT_TRUE(chat.Expect("... "));
  chat.Send("of France?\r");
  ASSERT_TRUE(chat.Expect("."));
  ASSERT_TRUE(chat.Expect(">>> "));
  chat.Send("\x04");
  EXPECT_EQ(chat.Wait(), 0);
}

}  // namespace
}  // namespace deepinfer
