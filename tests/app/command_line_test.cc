// Usage: flags, errors, exit statuses, and the commands that do not run the model.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/suggest.h"
#include "base/machine.h"
#include "program.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;

/// One line on standard error that contains `part`, nothing on standard output.
void ExpectError(const ProgramResult& result, int exit_status, const std::string& part) {
  EXPECT_EQ(result.exit_status, exit_status) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_TRUE(result.err.starts_with("deepinfer: ")) << result.err;
  EXPECT_EQ(result.out, "");
}

TEST(CommandLine, AnEmptyValueTakesNoWord) {
  const std::vector<std::string> words = {"generate", "--seed", "1", "--max-tokens", "3"};
  const auto answer = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return RunProgram(more).out;
  };
  const std::string expected = answer({"hello"});
  EXPECT_NE(expected, "");
  EXPECT_EQ(answer({"--stop=", "hello"}), expected);
  EXPECT_EQ(answer({"--ignore-eos=", "hello"}), expected);
  EXPECT_EQ(answer({"--stop", "--x=", "hello"}), expected);
}

TEST(CommandLine, UsageErrorsAreOneLineAndSuggest) {
  const struct {
    std::vector<std::string> arguments;
    std::string part;
  } cases[] = {
      {{}, "which command? one of chat, generate"},
      {{"caht", "hi"}, "unknown command 'caht' (did you mean 'chat'?)"},
      {{"--threads", "2"}, "flags follow the command"},
      {{"chat", "--temprature", "1"}, "unknown flag '--temprature' (did you mean '--temperature'?)"},
      {{"chat", "--temp", "1"}, "(did you mean '--temperature'?)"},
      {{"generate", "--max-token=3", "x"}, "unknown flag '--max-token' (did you mean '--max-tokens'?)"},
      {{"generate", "--qqqqqq", "x"}, "unknown flag '--qqqqqq'; see deepinfer generate --help"},
      {{"generate", "--max-tokens", "abc", "x"}, "--max-tokens: expected a whole number of 1 or more, found 'abc'"},
      {{"generate", "--max-tokens", "0", "x"}, "--max-tokens: expected a whole number of 1 or more, found '0'"},
      {{"generate", "--temperature", "3", "x"},
       "--temperature: expected a number of at least 0 and at most 2, found 3"},
      {{"generate", "--temperature", "warm", "x"}, "--temperature: expected a number, found 'warm'"},
      {{"generate", "--top-p", "0", "x"}, "--top-p: expected a number above 0"},
      {{"generate", "--top-p"}, "--top-p: expected a value, found none"},
      {{"generate", "--seed", "-1", "x"}, "--seed: expected a whole number from 0"},
      {{"generate", "--logprobs", "2", "x"}, "--logprobs: needs --json"},
      {{"generate", "--prompt-logprobs", "2", "x"}, "--prompt-logprobs: needs --json"},
      {{"generate", "-n", "2", "x"}, "-n: needs --json"},
      {{"generate", "-n", "0", "--json", "x"}, "-n: expected a whole number from 1 to 128, found '0'"},
      {{"generate", "--repetition-penalty", "0", "x"}, "--repetition-penalty: expected a number above 0"},
      {{"generate", "--presence-penalty", "3", "x"}, "--presence-penalty: expected a number of at least -2"},
      {{"chat", "--frequency-penalty", "-3", "x"}, "--frequency-penalty: expected a number of at least -2"},
      {{"generate", "--logit-bias", "7", "x"}, "--logit-bias: expected ID:BIAS such as 17:-2.5, found '7'"},
      {{"generate", "--logit-bias", "7:200", "x"}, "--logit-bias: expected a number of at least -100"},
      {{"generate", "--bad-word", "", "x"}, "--bad-word: expected texts, found an empty one"},
      {{"generate", "--bad-word=", "x"}, "--bad-word: expected texts, found an empty one"},
      {{"chat", "--kv-disk=", "x"}, "--kv-disk: expected a path, found ''"},
      {{"generate", "--bad-word=", "--seed=x"}, "--seed: expected a whole number"},
      {{"generate", "--bad-word", "--seed=", "--seed", "x"}, "--seed: expected a whole number"},
      {{"generate", "--stop-token-id", "x1", "x"}, "--stop-token-id: expected a whole number from 0"},
      {{"generate", "--min-tokens", "9", "--max-tokens", "3", "x"},
       "--min-tokens: expected 0 to --max-tokens = 3, found 9"},
      {{"chat", "--max-num-seqs", "5000", "x"}, "--max-num-seqs: expected at most 4096, found 5000"},
      {{"chat", "--kv-memory", "3 potatoes", "x"}, "--kv-memory: expected a size such as 512MiB"},
      {{"chat", "--kv-disk", "", "x"}, "--kv-disk: expected a path, found ''"},
      {{"chat", "--kv-shared", "", "x"}, "--kv-shared: expected a path, found ''"},
      {{"chat", "--kv-disk", "d", "--kv-key-file", "", "x"}, "--kv-key-file: expected a path, found ''"},
      {{"chat", "--kv-key-file", "key", "x"}, "--kv-key-file: needs --kv-disk or --kv-shared"},
      {{"chat", "--kv-disk", "d", "--kv-disk-gib", "0", "x"}, "--kv-disk-gib: expected more than 0 GiB"},
      {{"chat", "--kv-disk", "d", "--kv-shared", "./e/../d/", "x"}, "--kv-shared: expected another folder"},
      {{"kv", "stats", "--kv-disk", ""}, "--kv-disk: expected a path, found ''"},
      {{"kv", "stats", "--kv-shared", "redis://host"}, "--kv-shared: expected a folder"},
      {{"chat", "--tpot-target-ms", "-1", "x"}, "--tpot-target-ms: expected 0 or more, found -1"},
      {{"chat", "--replay", "some", "x"}, "--replay: expected bounded or exact, found 'some'"},
      {{"chat", "--draft-length", "-1", "x"}, "--draft-length: expected a whole number from 0"},
      {{"chat", "--draft-varlen", "yes", "x"}, "--draft-varlen: expected on or off, found 'yes'"},
      {{"chat", "--speculation-rule", "x", "x"}, "--speculation-rule: expected coupled or rejection, found 'x'"},
      {{"chat", "--max-model-len", "1", "x"}, "--ctx: expected a whole number of 2 or more, found '1'"},
      {{"generate", "--prompt-ids", "1,two"}, "--prompt-ids: expected token ids"},
      {{"generate", "--prompt-ids", "1,2", "x"}, "the prompt is given more than once"},
      {{"generate", "--threads", "0", "x"}, "--threads: expected a whole number from 1"},
      {{"generate", "--activation-quant", "fp4", "x"}, "--activation-quant: expected official or off, found 'fp4'"},
      {{"chat", "--effort", "101", "x"}, "--effort: expected low, medium, high, max or 1 to 100, found '101'"},
      {{"chat", "--effort", "low", "--think", "off", "x"}, "--effort: needs --think on"},
      {{"info", "nano"}, "unexpected argument 'nano'"},
      {{"tokenize", "--decode", "1", "text"}, "--decode: takes no text"},
  };
  for (const auto& test : cases) ExpectError(RunProgram(test.arguments), 2, test.part);
}

TEST(CommandLine, RunTimeErrorsAreOneLine) {
  ExpectError(RunProgram({"info", "--model", "/nonexistent"}), 1, "/nonexistent/config.json");
  ExpectError(RunProgram({"chat", "--model", "/nonexistent", "hi"}), 1, "/nonexistent/config.json");
  ExpectError(RunProgram({"tokenize", "hi"}, "", {"DEEPINFER_MODEL=/nonexistent"}), 1, "/nonexistent/tokenizer.json");
  ExpectError(RunProgram({"render", "/nonexistent"}), 1, "/nonexistent: No such file");
  ExpectError(RunProgram({"render"}, "{\"model\": \"m\", \"messages\": [{\"role\": \"wizard\"}]}"), 1,
              "messages[0].role");
  ExpectError(RunProgram({"render"}, "{"), 1, "request body");
  ExpectError(RunProgram({"tokenize", "--decode", "8192"}), 1, "--decode: expected ids of 0 to 8191, found 8192");
  ExpectError(RunProgram({"generate", "--prompt-ids", "0,8192"}), 1, "expected token ids of 0 to 8191, found 8192");
  ExpectError(RunProgram({"generate", "--ctx", "100000", "x"}), 1, "the model holds at most 8192 tokens, found 100000");
  ExpectError(RunProgram({"generate", "--ctx", "4", "a prompt longer than that"}), 1, "in the context of 4 tokens");
  ExpectError(RunProgram({"generate", "--logit-bias", "8192:1", "x"}), 1, "--logit-bias: expected token ids of 0 to");
  ExpectError(RunProgram({"generate", "--kv-memory", "10", "x"}), 1, "--kv-memory: expected at least");
  ExpectError(RunProgram({"generate", "--replay-grid", "100", "x"}), 1, "--replay-grid: expected a multiple of 64");
  ExpectError(RunProgram({"generate", "--kv-memory", "40K", "--ignore-eos", "--max-tokens", "400", "x"}), 1,
              "--max-tokens: a prompt of");
  ExpectError(RunProgram({"generate", "--prompt-file", "/nonexistent"}), 1, "/nonexistent: No such file");
  ExpectError(RunProgram({"chat"}, "\n"), 1, "the message is empty");
}

TEST(CommandLine, TheEnvironmentComesBeforeFlags) {
  const std::vector<std::string> environment = {"DEEPINFER_USE_NEXTN_DECODE=2",
                                                "DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE=none"};
  const std::vector<std::string> run = {"generate", "--json", "--max-tokens", "1", "x"};
  EXPECT_EQ(Json::parse(RunProgram(run, "", environment).out)["replay"], "exact");
  std::vector<std::string> flag = run;
  flag.insert(flag.begin() + 1, {"--replay", "bounded"});
  EXPECT_EQ(Json::parse(RunProgram(flag, "", environment).out)["replay"], "bounded");
  EXPECT_NE(RunProgram({"chat", "--help"}, "", environment).out.find("no speculation (default 2)"), std::string::npos);
  ExpectError(RunProgram(run, "", {"DEEPINFER_USE_NEXTN_DECODE=many"}), 2, "$DEEPINFER_USE_NEXTN_DECODE: expected");
}

TEST(CommandLine, Help) {
  for (const std::string flag : {"--help", "-h", "help"}) {
    const ProgramResult result = RunProgram({flag});
    EXPECT_EQ(result.exit_status, 0);
    for (const std::string name : {"chat", "generate", "tokenize", "render", "info", "doctor", "bench",
                                   "bench throughput", "bench latency", "calibrate", "version"}) {
      EXPECT_NE(result.out.find("\n  " + name + " "), std::string::npos) << name;
      std::vector<std::string> words = {name.substr(0, name.find(' '))};
      if (words[0] != name) words.push_back(name.substr(words[0].size() + 1));
      words.push_back("--help");
      const ProgramResult help = RunProgram(words);
      EXPECT_EQ(help.exit_status, 0);
      EXPECT_NE(help.out.find("deepinfer " + name), std::string::npos) << help.out;
      EXPECT_EQ(help.err, "");
    }
  }
  EXPECT_EQ(RunProgram({"--version"}).out, RunProgram({"version"}).out);
}

TEST(CommandLine, AGroupOfCommandsPrintsItsUsage) {
  const ProgramResult help = RunProgram({"kv", "--help"});
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_EQ(help.err, "");
  EXPECT_TRUE(help.out.starts_with("Usage: deepinfer kv COMMAND [flags]\n\n  kv stats ")) << help.out;
  for (const std::string name : {"list", "verify", "export", "prune", "delete"}) {
    EXPECT_NE(help.out.find("\n  kv " + name + " "), std::string::npos) << name;
  }
  EXPECT_EQ(help.out.find("chat"), std::string::npos);
  EXPECT_EQ(RunProgram({"kv", "help"}).out, help.out);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"kv"}, {"kv", "--kv-disk", "d"}}) {
    const ProgramResult alone = RunProgram(words);
    EXPECT_EQ(alone.exit_status, 2);
    EXPECT_EQ(alone.out, "");
    EXPECT_EQ(alone.err, help.out);
  }
  EXPECT_TRUE(RunProgram({"grammar"}).err.starts_with("Usage: deepinfer grammar COMMAND [flags]\n\n  grammar check "));
  ExpectError(RunProgram({"kv", "lst"}), 2,
              "unknown command 'kv lst' (did you mean 'kv list'?); commands are kv stats");
}

TEST(CommandLine, TokenizeGoesBothWays) {
  const std::string text = "Hello, wörld 🦊 <think>";
  const ProgramResult ids = RunProgram({"tokenize", text});
  ASSERT_EQ(ids.exit_status, 0);
  EXPECT_EQ(RunProgram({"tokenize", "--decode", ids.out}).out, text + "\n");
  EXPECT_EQ(RunProgram({"tokenize"}, text).out, ids.out);
  EXPECT_EQ(ids.out.find(" 6\n"), std::string::npos);
  EXPECT_TRUE(RunProgram({"tokenize", "--special", text}).out.ends_with(" 6\n"));

  const Json object = Json::parse(RunProgram({"tokenize", "--json", text}).out);
  EXPECT_EQ(object["text"], text);
  EXPECT_EQ(object["ids"].size(), object["count"]);
  EXPECT_EQ(object["pieces"].size(), object["count"]);

  const ProgramResult pieces = RunProgram({"tokenize", "--pieces", "a b\n"});
  EXPECT_NE(pieces.out.find("\t\" b\"\n"), std::string::npos) << pieces.out;
}

TEST(CommandLine, RenderShowsThePrompt) {
  const std::string request =
      "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi <think>\"}], "
      "\"thinking\": {\"type\": \"disabled\"}}";
  const ProgramResult text = RunProgram({"render"}, request);
  EXPECT_EQ(text.out, "<｜begin▁of▁sentence｜><｜User｜>Hi <think><｜Assistant｜></think>\n");
  const ProgramResult ids = RunProgram({"render", "--ids"}, request);
  // Begin, user, ..., assistant, end of reasoning; what the user spelt out is text.
  EXPECT_TRUE(ids.out.starts_with("0 4 ")) << ids.out;
  EXPECT_TRUE(ids.out.ends_with(" 5 7\n")) << ids.out;
  EXPECT_EQ(ids.out.find(" 6 "), std::string::npos);
}

TEST(CommandLine, InfoPlansEveryByte) {
  const Json info = Json::parse(RunProgram({"info", "--json"}).out);
  EXPECT_EQ(info["config"]["text_config"]["hidden_size"], 320);
  EXPECT_EQ(info["parameters"]["total"]["parameters"], 42431362);
  const Json plan = info["memory_plan"];
  EXPECT_EQ(plan["context"], 8192);
  int64_t sum = 0;
  for (const Json& bytes : plan["allocations"]) {
    EXPECT_GE(bytes.get<int64_t>(), 0);
    sum += bytes.get<int64_t>();
  }
  EXPECT_EQ(plan["allocated_bytes"], sum);
  EXPECT_GT(plan["on_demand"]["grammars"], 0);
  EXPECT_EQ(plan["max_num_seqs"], 16);
  EXPECT_GT(plan["mapped_bytes"], 0);
  EXPECT_GT(plan["engram_table_bytes"], 0);
  // A pool for one context: its blocks, and one more for the token that is chosen last.
  const auto pool_of = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"info", "--json", "--max-num-seqs", "1"});
    return Json::parse(RunProgram(flags).out)["memory_plan"]["allocations"]["kv_pool"].get<double>();
  };
  const double block = 64 * plan["kv_bytes_per_token"].get<double>();
  const double bookkeeping = 16;  // at most, of a block
  EXPECT_NEAR(pool_of({"--ctx", "4096"}), 65 * block, 65 * bookkeeping);
  EXPECT_NEAR(pool_of({"--ctx", "2048"}), 33 * block, 33 * bookkeeping);
  EXPECT_NEAR(pool_of({"--kv-memory", "1MiB"}), 1 << 20, block);
  EXPECT_NE(RunProgram({"info"}).out.find("routed experts"), std::string::npos);
}

TEST(CommandLine, WhereWeightsLieChangesNoAnswer) {
  const std::vector<std::string> run = {"generate", "--device",     "cpu", "--temperature",
                                        "0",        "--max-tokens", "8",   "Once"};
  const ProgramResult expected = RunProgram(run);
  ASSERT_EQ(expected.exit_status, 0) << expected.err;
  for (const std::string engram : {"disk", "host", "device"}) {
    std::vector<std::string> placed = run;
    placed.insert(placed.begin() + 1, {"--gpu-layers", "2", "--engram", engram});
    const ProgramResult result = RunProgram(placed);
    EXPECT_EQ(result.out, expected.out) << engram;
    EXPECT_EQ(result.err, expected.err) << engram;
  }
  ExpectError(RunProgram({"generate", "--engram", "ram", "x"}), 2, "--engram: expected disk or host or device");
  ExpectError(RunProgram({"info", "--gpu-layers", "-1"}), 2, "--gpu-layers: expected a whole number of 0 or more");
  // A CPU has one memory.
  const Json plan = Json::parse(RunProgram({"info", "--json", "--device", "cpu"}).out)["memory_plan"];
  EXPECT_EQ(plan["device_bytes"], 0);
  EXPECT_FALSE(plan["allocations"].contains("weights"));
  EXPECT_FALSE(plan["allocations"].contains("weights_engram"));
  for (const std::string engram : {"host", "device"}) {
    const Json read =
        Json::parse(RunProgram({"info", "--json", "--device", "cpu", "--engram", engram}).out)["memory_plan"];
    EXPECT_EQ(read["allocations"]["weights_engram"], read["engram_table_bytes"]) << engram;
  }
}

TEST(CommandLine, DoctorFindsTheMachineAndTheModel) {
  const Json doctor = Json::parse(RunProgram({"doctor", "--json"}).out);
  EXPECT_GE(doctor["processor"]["threads"], 1);
  EXPECT_GT(doctor["memory"]["total"], 0);
  EXPECT_TRUE(doctor["problem"].is_null());
  EXPECT_TRUE(doctor["models"][0]["fits"]);
  EXPECT_NE(RunProgram({"doctor"}).out.find("runs "), std::string::npos);
  const ProgramResult broken = RunProgram({"doctor", "--model", "/nonexistent"});
  EXPECT_EQ(broken.exit_status, 1);
  EXPECT_NE(broken.out.find("/nonexistent"), std::string::npos);
}

TEST(Suggest, EditDistanceAndNearest) {
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("caht", "chat"), 1u);
  const std::vector<std::string> known = {"--top-k", "--top-p", "--temperature", "--think"};
  EXPECT_EQ(Nearest("--topk", known), "--top-k");
  EXPECT_EQ(Nearest("--thnik", known), "--think");
  EXPECT_EQ(Nearest("--wholly-other", known), "");
  EXPECT_EQ(Nearest(std::string(100000, 'x'), known), "");
}

TEST(Machine, HumanBytes) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(1048575), "1.0 MiB");
  EXPECT_EQ(HumanBytes(int64_t{3} << 40), "3.0 TiB");
}

}  // namespace
}  // namespace deepinfer
