// generate, through the real binary and the bundled model.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "program.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;

constexpr char kPrompt[] = "Long ago, in a small village by the sea, there lived";

Json RunJson(std::vector<std::string> arguments, const std::string& input = "") {
  arguments.insert(arguments.begin(), {"generate", "--json"});
  const ProgramResult result = RunProgram(arguments, input);
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return Json::parse(result.out);
}

TEST(Generate, TextAndJsonSayTheSame) {
  const ProgramResult text = RunProgram({"generate", "--temperature", "0", "--max-tokens", "24", kPrompt});
  EXPECT_EQ(text.exit_status, 0);
  EXPECT_EQ(text.err, "");
  const Json json = RunJson({"--temperature", "0", "--max-tokens", "24", kPrompt});
  EXPECT_EQ(json["text"].get<std::string>() + "\n", text.out);
  EXPECT_TRUE(text.out.starts_with(" a ")) << text.out;
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["ids"].size(), 24u);
  ASSERT_EQ(json["logprobs"].size(), json["ids"].size());
  EXPECT_EQ(json["logprobs"][0]["id"], json["ids"][0]);
  EXPECT_LE(json["logprobs"][0]["logprob"], 0.0);
  EXPECT_TRUE(json["logprobs"][0]["top_logprobs"].empty());
  EXPECT_EQ(json["usage"]["completion_tokens"], 24);
  EXPECT_EQ(json["usage"]["total_tokens"], json["usage"]["prompt_tokens"].get<int>() + 24);
}

TEST(Generate, EveryWayToGiveAPromptIsTheSame) {
  const std::vector<std::string> flags = {"--temperature", "0", "--max-tokens", "8"};
  const auto run = [&flags](std::vector<std::string> more, const std::string& input = "") {
    more.insert(more.end(), flags.begin(), flags.end());
    return RunJson(more, input);
  };
  const Json by_word = run({kPrompt});
  EXPECT_EQ(run({}, kPrompt)["ids"], by_word["ids"]);
  EXPECT_EQ(run({"--prompt-file", "-"}, std::string(kPrompt) + "\n")["ids"], by_word["ids"]);
  const std::string ids = RunProgram({"tokenize", kPrompt}).out;
  EXPECT_EQ(run({"--prompt-ids", "0 " + ids})["ids"], by_word["ids"]);
  EXPECT_EQ(run({"--special", std::string("<｜begin▁of▁sentence｜>") + kPrompt})["ids"], by_word["ids"]);
  EXPECT_EQ(run({"--no-bos", kPrompt})["usage"]["prompt_tokens"].get<int>() + 1, by_word["usage"]["prompt_tokens"]);
}

TEST(Generate, SeedsReproduceOnAnyNumberOfThreads) {
  const std::vector<std::string> flags = {"--temperature", "1", "--max-tokens", "24", kPrompt};
  const auto run = [&flags](std::vector<std::string> more) {
    more.insert(more.end(), flags.begin(), flags.end());
    return RunJson(more);
  };
  // Drafts are spent as they pay on the machine at hand; what they spell is the same.
  const auto without_drafts = [](Json json) {
    json.erase("drafts");
    return json;
  };
  const Json one = without_drafts(run({"--seed", "7", "--threads", "1"}));
  EXPECT_EQ(one, without_drafts(run({"--seed", "7", "--threads", "2"})));
  EXPECT_EQ(one, without_drafts(run({"--seed", "7", "--draft-length", "0", "--sync"})));
  EXPECT_EQ(one, without_drafts(run({"--seed", "7", "--draft-varlen", "off", "--no-prefix-cache"})));
  EXPECT_NE(one["ids"], run({"--seed", "8"})["ids"]);
  // Without a seed one is drawn and told, and gives the same text again.
  const Json drawn = without_drafts(run({}));
  EXPECT_EQ(without_drafts(run({"--seed", std::to_string(drawn["seed"].get<uint64_t>())})), drawn);
}

TEST(Generate, StopTextsAcrossTokensEndTheAnswer) {
  const Json whole = RunJson({"--temperature", "0", "--max-tokens", "24", kPrompt});
  const std::string text = whole["text"];
  ASSERT_GT(text.size(), 40u);
  for (const std::string& stop : {text.substr(4, 12), text.substr(9, 3), text.substr(30, 9)}) {
    const Json json =
        RunJson({"--temperature", "0", "--max-tokens", "24", "--stop", "absent", "--stop", stop, kPrompt});
    EXPECT_EQ(json["text"], text.substr(0, text.find(stop)));
    EXPECT_EQ(json["finish_reason"], "stop_sequence");
    EXPECT_EQ(json["stop_sequence"], stop);
    const ProgramResult streamed =
        RunProgram({"generate", "--temperature", "0", "--max-tokens", "24", "--stop", stop, kPrompt});
    EXPECT_EQ(streamed.out, text.substr(0, text.find(stop)) + "\n");
  }
}

TEST(Generate, TheEndTokenStopsOrIsIgnored) {
  const std::vector<std::string> chat = {
      "--special", "--temperature",
      "0",         "--max-tokens",
      "40",        "<｜User｜>What is the capital of France?<｜Assistant｜></think>"};
  const Json stopped = RunJson(chat);
  EXPECT_EQ(stopped["text"], "The capital of France is Paris.");
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["ids"].back(), 1);
  std::vector<std::string> ignored = chat;
  ignored.push_back("--ignore-eos");
  const Json on = RunJson(ignored);
  EXPECT_EQ(on["ids"].size(), 40u);
  EXPECT_EQ(on["finish_reason"], "length");
}

TEST(Generate, LogprobsAreConsistent) {
  const Json json = RunJson({"--temperature", "0", "--max-tokens", "6", "--logprobs", "3", kPrompt});
  ASSERT_EQ(json["logprobs"].size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const Json& entry = json["logprobs"][i];
    EXPECT_EQ(entry["id"], json["ids"][i]);
    ASSERT_EQ(entry["top_logprobs"].size(), 3u);
    // Greedy: the chosen token is the most likely one.
    EXPECT_EQ(entry["top_logprobs"][0]["id"], entry["id"]);
    EXPECT_EQ(entry["top_logprobs"][0]["logprob"], entry["logprob"]);
    double sum = 0;
    double previous = 0;
    for (const Json& token : entry["top_logprobs"]) {
      const double logprob = token["logprob"];
      EXPECT_LE(logprob, previous);
      previous = logprob;
      sum += std::exp(logprob);
    }
    EXPECT_LE(sum, 1 + 1e-9);
  }
}

TEST(Generate, DraftsAreCounted) {
  const Json whole = RunJson({"--temperature", "0", "--max-tokens", "24", "--draft-varlen", "off", kPrompt});
  const Json& drafts = whole["drafts"];
  EXPECT_GT(drafts["accepted"], 0);
  EXPECT_EQ(drafts["drafted"], 5 * drafts["steps"].get<int>());
  EXPECT_LE(drafts["accepted"], drafts["verified"]);
  // Each step yields its own token and the accepted drafts, the last one perhaps more than was asked for.
  EXPECT_GE(1 + drafts["steps"].get<int>() + drafts["accepted"].get<int>(), 24);
  const Json none = RunJson({"--temperature", "0", "--max-tokens", "24", "--draft-length", "0", kPrompt});
  EXPECT_EQ(none["drafts"]["drafted"], 0);
  EXPECT_EQ(none["drafts"]["steps"], 23);
  EXPECT_EQ(none["ids"], whole["ids"]);
}

TEST(Generate, SeveralAnswersAreChoices) {
  const std::vector<std::string> flags = {"--temperature", "1", "--seed", "7", "--max-tokens", "12", kPrompt};
  const auto run = [&flags](std::vector<std::string> more) {
    more.insert(more.end(), flags.begin(), flags.end());
    return RunJson(more);
  };
  const Json three = run({"-n", "3"});
  ASSERT_EQ(three["choices"].size(), 3u);
  EXPECT_FALSE(three.contains("ids"));
  EXPECT_EQ(three["usage"]["completion_tokens"], 36);
  const Json one = run({});
  EXPECT_FALSE(one.contains("choices"));
  EXPECT_EQ(three["choices"][0]["ids"], one["ids"]);
  EXPECT_NE(three["choices"][1]["ids"], one["ids"]);
  // A choice is what its seed gives alone.
  const uint64_t seed = three["choices"][2]["seed"].get<uint64_t>();
  const Json third = RunJson({"--temperature", "1", "--seed", std::to_string(seed), "--max-tokens", "12", kPrompt});
  EXPECT_EQ(three["choices"][2]["ids"], third["ids"]);
}

TEST(Generate, BiasesBarsAndPenalties) {
  const std::vector<std::string> flags = {"--temperature", "0", "--max-tokens", "8", kPrompt};
  const auto ids = [&flags](std::vector<std::string> more) {
    more.insert(more.end(), flags.begin(), flags.end());
    return RunJson(more)["ids"].get<std::vector<int>>();
  };
  const std::vector<int> plain = ids({});
  EXPECT_EQ(ids({"--logit-bias", "777:100", "--logit-bias", "778:-100"}), std::vector<int>(8, 777));
  EXPECT_NE(ids({"--logit-bias", std::to_string(plain[0]) + ":-100"})[0], plain[0]);
  // A hundred of anything comes again and again, until that is made dear.
  EXPECT_NE(ids({"--logit-bias", "777:20", "--repetition-penalty", "100"}), std::vector<int>(8, 777));
  EXPECT_NE(ids({"--logit-bias", "777:20", "--frequency-penalty", "2", "--presence-penalty", "2"}),
            ids({"--logit-bias", "777:20"}));

  std::vector<std::string> text_flags = {"generate", "--temperature", "0", "--max-tokens", "8", kPrompt};
  const std::string text = RunProgram(text_flags).out;
  const size_t begin = text.find_first_not_of(' ');
  const std::string word = text.substr(begin, text.find(' ', begin) - begin);
  text_flags.insert(text_flags.begin() + 1, {"--bad-word", word});
  EXPECT_FALSE(RunProgram(text_flags).out.starts_with(" " + word + " ")) << word;
}

TEST(Generate, StopTokensAndLeastLengths) {
  const std::vector<std::string> flags = {"--temperature", "0", "--max-tokens", "16", kPrompt};
  const auto run = [&flags](std::vector<std::string> more) {
    more.insert(more.end(), flags.begin(), flags.end());
    return RunJson(more);
  };
  const std::vector<int> plain = run({})["ids"];
  const std::string third = std::to_string(plain[2]);
  const Json stopped = run({"--stop-token-id", "9", "--stop-token-id", third});
  EXPECT_EQ(stopped["ids"], std::vector<int>(plain.begin(), plain.begin() + 3));
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["stop_token_id"], plain[2]);
  EXPECT_GE(run({"--stop-token-id", third, "--min-tokens", "6"})["ids"].size(), 6u);
}

TEST(Generate, PromptLogprobsCoverThePrompt) {
  const Json json = RunJson({"--temperature", "0", "--max-tokens", "1", "--prompt-logprobs", "2", kPrompt});
  const Json& prompt = json["prompt_logprobs"];
  ASSERT_EQ(prompt.size(), json["usage"]["prompt_tokens"]);
  EXPECT_TRUE(prompt[0].is_null());
  std::string text;
  for (size_t i = 1; i < prompt.size(); ++i) {
    text += prompt[i]["token"].get<std::string>();
    ASSERT_EQ(prompt[i]["top_logprobs"].size(), 2u);
    EXPECT_LE(prompt[i]["logprob"], prompt[i]["top_logprobs"][0]["logprob"]);
  }
  EXPECT_EQ(text, kPrompt);
  EXPECT_EQ(json["replay"], "exact");  // every row passes the head
}

TEST(Generate, ActivationModesDifferAndBothRun) {
  const Json official = RunJson({"--temperature", "0", "--max-tokens", "4", "--logprobs", "0", kPrompt});
  const Json off =
      RunJson({"--temperature", "0", "--max-tokens", "4", "--logprobs", "0", "--activation-quant", "off", kPrompt});
  EXPECT_NE(official["logprobs"][0]["logprob"], off["logprobs"][0]["logprob"]);
  EXPECT_NEAR(official["logprobs"][0]["logprob"], off["logprobs"][0]["logprob"], 0.5);
}

TEST(Generate, OutputIsWellFormedUtf8AtAnyLength) {
  for (int tokens = 1; tokens <= 6; ++tokens) {
    // High temperature and a prompt of odd characters: many tokens are parts of characters.
    const ProgramResult result = RunProgram({"generate", "--temperature", "2", "--seed", std::to_string(tokens),
                                             "--max-tokens", std::to_string(8 * tokens), "🦊狐éß🦊狐éß"});
    EXPECT_EQ(result.exit_status, 0);
    EXPECT_TRUE(IsValidUtf8(result.out)) << result.out;
  }
}

TEST(Generate, ContextLimitsTheAnswer) {
  const Json json = RunJson({"--temperature", "0", "--ctx", "20", "--ignore-eos", kPrompt});
  EXPECT_EQ(json["usage"]["total_tokens"], 20);
  EXPECT_EQ(json["finish_reason"], "length");
}

TEST(Generate, AFullOutputIsAnErrorAndAClosedOneIsNot) {
  const ProgramResult full = RunShell("\"$DEEPINFER\" generate --max-tokens 4 Hello > /dev/full");
  EXPECT_EQ(full.exit_status, 1);
  EXPECT_EQ(full.err, "deepinfer: standard output: No space left on device\n");
  const ProgramResult closed = RunShell(
      "\"$DEEPINFER\" generate --ignore-eos --max-tokens 100000 --temperature 0 Hello | head -c 1; "
      "echo \" ${PIPESTATUS[0]}\"");
  EXPECT_EQ(closed.err, "");
  EXPECT_EQ(closed.out.substr(1), " 141\n");  // ended by SIGPIPE, as other tools do
}

}  // namespace
}  // namespace deepinfer
