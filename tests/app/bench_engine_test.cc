// bench throughput, bench latency and calibrate, through the real binary with tiny loads. Figures are only checked for
// being there and for adding up; speed is nobody's test.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "program.h"
#include "temporary_folder.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;

Json RunJson(const std::vector<std::string>& arguments) {
  const ProgramResult result = RunProgram(arguments);
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return Json::parse(result.out);
}

void ExpectSpread(const Json& spread) {
  for (const char* key : {"mean", "p50", "p99"}) EXPECT_GT(spread.at(key).get<double>(), 0) << spread;
}

TEST(BenchThroughput, JsonOfRandomPrompts) {
  const Json result = RunJson({"bench", "throughput", "--limit-ms", "20", "--num-prompts", "4", "--input-len", "8:16",
                               "--output-len", "6", "--threads", "1", "--max-num-seqs", "2", "--json"});
  EXPECT_EQ(result["model"], "nano");
  EXPECT_EQ(result["requests"], 4);
  EXPECT_EQ(result["output_tokens"], 24);  // random prompts do not end early
  EXPECT_GE(result["prompt_tokens"], 32);
  EXPECT_LE(result["prompt_tokens"], 64);
  EXPECT_EQ(result["options"]["max_num_seqs"], 2);
  EXPECT_EQ(result["options"]["threads"], 1);
  EXPECT_EQ(result["config_hash"].get<std::string>().size(), 16u);
  EXPECT_EQ(result["fingerprint"].get<std::string>().size(), 16u);
  for (const char* key : {"seconds", "requests_per_second", "output_tokens_per_second", "total_tokens_per_second",
                          "steps", "host_ms_per_step", "device_ms_per_step"}) {
    EXPECT_GT(result.at(key).get<double>(), 0) << key;
  }
  ExpectSpread(result["ttft_ms"]);
  ExpectSpread(result["tpot_ms"]);
  const Json& acceptance = result["acceptance"];
  EXPECT_GT(acceptance["steps"], 0);
  EXPECT_LE(acceptance["accepted"], acceptance["verified"]);
  EXPECT_LE(acceptance["verified"], acceptance["drafted"]);
  EXPECT_TRUE(acceptance["by_position"].is_array());
  EXPECT_EQ(result["prefix_hit_tokens"], 0);
  EXPECT_EQ(result["preemptions"], 0);
  const Json& limit = result["limit"];
  for (const char* key : {"read_bytes_per_second", "fma_flops_per_second", "rows_per_step", "bytes_per_step",
                          "flops_per_step", "decode_seconds", "prefill_seconds", "share"}) {
    EXPECT_GT(limit.at(key).get<double>(), 0) << key;
  }
  EXPECT_GE(limit["sequences_per_step"], 1);
}

TEST(BenchThroughput, PromptsOfAFileShareTheirPrefixes) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "prompts.jsonl").string();
  std::string words;
  for (int i = 0; i < 80; ++i) words += "the cat sat on the mat and ";
  std::ofstream(file) << Json({{"prompt", words}}).dump() << "\n" << Json({{"prompt", words + "slept"}}).dump() << "\n";
  // One after the other, so that the second finds what the first has left.
  const Json result = RunJson({"bench", "throughput", "--limit-ms", "20", "--prompts", file, "--output-len", "3",
                               "--threads", "1", "--max-num-seqs", "1", "--json"});
  EXPECT_EQ(result["requests"], 2);
  EXPECT_GE(result["prefix_hit_tokens"], 64);
  const Json cold = RunJson({"bench", "throughput", "--limit-ms", "20", "--prompts", file, "--output-len", "3",
                             "--threads", "1", "--max-num-seqs", "1", "--no-prefix-cache", "--json"});
  EXPECT_EQ(cold["prefix_hit_tokens"], 0);
  EXPECT_NE(cold["config_hash"], result["config_hash"]);
}

TEST(BenchThroughput, TextNamesTheLimit) {
  const ProgramResult result = RunProgram({"bench", "throughput", "--limit-ms", "20", "--num-prompts", "2",
                                           "--input-len", "4", "--output-len", "2", "--threads", "1"});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  for (const char* row : {"requests/s", "time to first token", "acceptance", "prefix hits", "share of limit"}) {
    EXPECT_NE(result.out.find(std::string("\n").append(row)), std::string::npos) << row << "\n" << result.out;
  }
}

TEST(BenchLatency, ComparesInTurn) {
  const Json result = RunJson({"bench", "latency", "--batch-size", "2", "--input-len", "8", "--output-len", "4", "-r",
                               "2", "--threads", "1", "--compare-sync", "--compare-draft", "--json"});
  EXPECT_EQ(result["batch_size"], 2);
  ASSERT_EQ(result["sides"].size(), 3u);
  for (const Json& side : result["sides"]) {
    EXPECT_EQ(side["output_tokens"], 2 * 2 * 4) << side["name"];
    EXPECT_GT(side["output_tokens_per_second"], 0);
    ExpectSpread(side["ttft_ms"]);
    ExpectSpread(side["tpot_ms"]);
    ExpectSpread(side["total_ms"]);
  }
  EXPECT_EQ(result["sides"][0]["options"]["asynchronous"], true);
  EXPECT_EQ(result["sides"][0]["options"]["max_num_seqs"], 2);
  EXPECT_EQ(result["sides"][1]["options"]["asynchronous"], false);
  EXPECT_EQ(result["sides"][2]["options"]["draft_length"], 0);
  EXPECT_EQ(result["sides"][2]["acceptance"]["drafted"], 0);
  ASSERT_EQ(result["comparisons"].size(), 2u);
  for (const Json& comparison : result["comparisons"]) {
    EXPECT_GT(comparison["ratio"], 0);
    EXPECT_GT(comparison["median_ratio"], 0);
  }
}

TEST(BenchEngine, WrongFlagsAreUsageErrorsThatNameThem) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"throughput", "--num-prompts", "0"}, "--num-prompts"},
      {{"throughput", "--input-len", "9:3"}, "--input-len"},
      {{"throughput", "--output-len", "x"}, "--output-len"},
      {{"throughput", "--temperature", "3"}, "--temperature"},
      {{"throughput", "--synthetic", "huge"}, "huge"},
      {{"throughput", "--synthetic", "v41-flash", "--device", "cpu"}, "needs --device cuda"},
      {{"throughput", "--max-num-seqs", "9999"}, "--max-num-seqs: expected at most 4096"},
      {{"latency", "--batch-size", "none"}, "--batch-size"},
      {{"latency", "--compare-sync", "--sync"}, "--compare-sync"},
      {{"latency", "--compare-draft", "--draft-length", "0"}, "--compare-draft"},
      {{"latency", "--numprompts", "3"}, "deepinfer bench latency --help"},
  };
  for (const auto& [flags, named] : cases) {
    std::vector<std::string> arguments = {"bench"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.exit_status, 2) << named;
    EXPECT_EQ(result.out, "") << named;
    EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
  }
  const ProgramResult missing = RunProgram({"bench", "throughput", "--prompts", "/nonexistent"});
  EXPECT_EQ(missing.exit_status, 1);
  EXPECT_NE(missing.err.find("/nonexistent: No such file"), std::string::npos) << missing.err;
}

TEST(Calibrate, WritesTheFileThatItTellsOf) {
  const TemporaryFolder folder;
  const Json result = RunJson({"calibrate", "--output", folder.path().string(), "--max-tokens", "4", "--threads", "1",
                               "--max-num-seqs", "8", "--json"});
  EXPECT_EQ(result["file"], (folder.path() / "dspark_calibration.json").string());
  EXPECT_EQ(result["temperatures"].size(), 5u);
  EXPECT_GE(result["observations"], 100);
  EXPECT_LE(result["error_after"], result["error_before"]);
  EXPECT_GT(result["acceptance"]["verified"], 0);

  std::ifstream file(folder.path() / "dspark_calibration.json");
  const Json written = Json::parse(file);
  EXPECT_EQ(written["temperatures"], result["temperatures"]);
  EXPECT_EQ(written["model_fingerprint"], result["model_fingerprint"]);
}

TEST(Calibrate, SaysWhereItCannotWrite) {
  const ProgramResult result = RunProgram({"calibrate", "--output", "/nonexistent/folder"});
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.err, "deepinfer: --output: /nonexistent/folder: no such folder\n");
}

}  // namespace
}  // namespace deepinfer
