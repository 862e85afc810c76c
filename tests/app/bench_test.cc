// bench, through the real binary: the three forms of the table, synthetic checkpoints, wrong flags. Figures are only
// checked for being there; speed is nobody's test.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "program.h"
#include "temporary_folder.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;

TEST(Bench, PrintsJsonRows) {
  const ProgramResult result =
      RunProgram({"bench", "-p", "4", "-n", "0", "-d", "8", "-r", "1", "--limit-ms", "20", "-o", "json"});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  const Json rows = Json::parse(result.out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["test"], "pp4 @ d8");
  EXPECT_EQ(rows[0]["model"], "nano");
  EXPECT_EQ(rows[0]["limit"], "fma");
  for (const char* key : {"tokens_per_second", "bytes_per_token", "flops_per_token", "read_bytes_per_second",
                          "fma_flops_per_second", "share"}) {
    EXPECT_GT(rows[0][key].get<double>(), 0) << key;
  }
}

TEST(Bench, SyntheticCheckpointIsKeptWhereAskedAndOnlyForItsSpec) {
  const TemporaryFolder folder;
  const std::string kept = (folder.path() / "smoke").string();
  const std::vector<std::string> run = {"bench", "--synthetic", "smoke", "--synthetic-dir", kept, "-p", "0",  "-n",
                                        "4",     "-r",          "1",     "--limit-ms",      "20", "-o", "csv"};
  const ProgramResult result = RunProgram(run);
  ASSERT_EQ(result.exit_status, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("model,bytes,parameters,")) << result.out;
  EXPECT_NE(result.out.find("\"smoke\""), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\"tg4\""), std::string::npos) << result.out;
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "smoke" / "config.json"));

  const ProgramResult other =
      RunProgram({"bench", "--synthetic", "smoke:experts=4", "--synthetic-dir", kept, "-p", "0", "-n", "4"});
  EXPECT_EQ(other.exit_status, 1);
  EXPECT_NE(other.err.find("--synthetic-dir"), std::string::npos) << other.err;
}

TEST(Bench, TemporaryCheckpointIsRemovedAndTheTableIsMarkdown) {
  const TemporaryFolder folder;
  const ProgramResult result =
      RunProgram({"bench", "--synthetic", "smoke", "-p", "0", "-n", "2", "-r", "1", "--limit-ms", "20"}, "",
                 {"TMPDIR=" + folder.path().string()});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("| model | size | params |")) << result.out;
  EXPECT_NE(result.out.find("| tg2 |"), std::string::npos) << result.out;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Bench, BatchesDecodeBehindFilledContexts) {
  const ProgramResult result = RunProgram(
      {"bench", "--synthetic", "smoke",          "-p",       "0",   "-n",         "4",  "-d", "200", "-b", "1,3",
       "-r",    "1",           "--depth-filled", "--device", "cpu", "--limit-ms", "20", "-o", "json"});
  ASSERT_EQ(result.exit_status, 0) << result.err;
  const Json rows = Json::parse(result.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["test"], "tg4 @ d200");
  EXPECT_EQ(rows[1]["test"], "tg4 b3 @ d200");
  EXPECT_EQ(rows[1]["context"], "filled");
  EXPECT_EQ(rows[0]["distinct_experts"], 2);
  EXPECT_GE(rows[1]["distinct_experts"], 2);
  EXPECT_LE(rows[1]["distinct_experts"], 6);
  EXPECT_LT(rows[1]["bytes_per_token"].get<double>(), rows[0]["bytes_per_token"].get<double>());
}

TEST(Bench, WrongFlagsAreUsageErrorsThatNameThem) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"-p", "12,x"}, "--n-prompt"},
      {{"-n", "-1"}, "--n-gen"},
      {{"-d", ""}, "--n-depth"},
      {{"--synthetic", "huge"}, "huge"},
      {{"--synthetic", "smoke:wings=2"}, "wings"},
      {{"--synthetic-dir", "here"}, "--synthetic-dir"},
      {{"-o", "xml"}, "--output"},
      {{"--limit-ms", "0"}, "--limit-ms"},
      {{"--batch", "0"}, "--batch"},
      {{"--depth-filled", "-d", "3"}, "--depth-filled"},
      {{"--device", "tpu"}, "--device"},
      {{"--synthetic", "v41-flash:12", "--device", "cpu"}, "needs --device cuda and a GPU"},
      {{"--synthetic", "v41-flash:3"}, "layers"},
  };
  for (const auto& [flags, named] : cases) {
    std::vector<std::string> arguments = {"bench"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.exit_status, 2) << named;
    EXPECT_EQ(result.out, "") << named;
    EXPECT_NE(result.err.find(named), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

}  // namespace
}  // namespace deepinfer
