// The disk tier of the real binary: what it leaves when it ends or is killed, and `deepinfer kv` over it.
//
// DEEPINFER_KV_DRILL=COUNT kills so many times with a prompt of 13 000 tokens instead of a few times with a short one.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "program.h"
#include "temporary_folder.h"

namespace deepinfer {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

std::string Prose(int64_t words) {
  constexpr const char* kWords[] = {"fox", "river", "tree", "star", "house", "wind", "ran", "saw", "the", "old"};
  std::mt19937 random(7);
  std::string text = "Once upon a time";
  for (int64_t i = 0; i < words; ++i) text += std::string(" ") + kWords[random() % std::size(kWords)];
  return text;
}

/// Files of the tier with this ending.
int64_t CountFiles(const fs::path& folder, std::string_view ending) {
  int64_t count = 0;
  std::error_code error;
  for (auto at = fs::recursive_directory_iterator(folder, error); at != fs::end(at) && !error; at.increment(error))
    count += at->path().extension() == ending ? 1 : 0;
  return count;
}

class KvDisk : public testing::Test {
 protected:
  void SetUp() override {
    const char* const drill = std::getenv("DEEPINFER_KV_DRILL");
    if (drill != nullptr) {
      kills_ = std::atoi(drill);
      words_ = 13'000;
    }
    // A small random model with a long context.
    model_ = (folder_.path() / "model").string();
    const ProgramResult made = RunProgram({"bench", "--synthetic", "smoke", "--synthetic-dir", model_, "-p", "8", "-n",
                                           "0", "-r", "1", "--limit-ms", "1"});
    ASSERT_EQ(made.exit_status, 0) << made.err;
    std::ofstream(prompt_file()) << Prose(words_);
  }

  std::string prompt_file() const { return (folder_.path() / "prompt.txt").string(); }
  fs::path disk(int index = 0) const { return folder_.path() / ("kv" + std::to_string(index)); }

  std::vector<std::string> Generate(const std::string& disk, const std::string& replay = "exact") const {
    std::vector<std::string> arguments = {
        "generate", "--model",      model_,           "--replay", replay,   "--max-tokens",  "24",         "--seed",
        "3",        "--ignore-eos", "--draft-length", "0",        "--json", "--prompt-file", prompt_file()};
    if (!disk.empty()) arguments.insert(arguments.end(), {"--kv-disk", disk});
    return arguments;
  }

  static Json Answer(const std::vector<std::string>& arguments) {
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    return Json::parse(result.out, nullptr, false);
  }

  static ProgramResult Kv(const std::string& what, const fs::path& disk, std::vector<std::string> flags = {}) {
    std::vector<std::string> arguments = {"kv", what, "--kv-disk", disk.string()};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunProgram(arguments);
  }

  TemporaryFolder folder_;
  std::string model_;
  int kills_ = 3;
  int64_t words_ = 4500;
};

TEST_F(KvDisk, AKilledProgramLeavesWhatItHadPublishedAndNothingTorn) {
  const Json reference = Answer(Generate(""));
  std::mt19937 random(std::random_device{}());
  int64_t hits = 0;
  for (int kill = 0; kill < kills_; ++kill) {
    const fs::path disk = this->disk(kill);
    {
      TerminalProgram program(Generate(disk.string()));
      // From the first write on, at any moment of those that follow.
      while (CountFiles(disk, ".open") + CountFiles(disk, ".seg") == 0) {
      }
      for (uint64_t spins = random() % 3000; spins > 0 && CountFiles(disk, ".seg") == 0; --spins) {
      }
      program.Signal(kill % 4 == 3 ? SIGTERM : SIGKILL);
      program.Wait();
    }
    const Json again = Answer(Generate(disk.string()));
    EXPECT_EQ(again["text"], reference["text"]) << "kill " << kill;
    EXPECT_EQ(again["ids"], reference["ids"]) << "kill " << kill;
    hits += again["usage"]["cached_tokens"] > 0 ? 1 : 0;
    const ProgramResult verified = Kv("verify", disk);
    EXPECT_EQ(verified.exit_status, 0) << verified.out << verified.err;
    EXPECT_NE(verified.out.find(" 0 bad"), std::string::npos) << verified.out;
    // What the second run has left is whole.
    const Json third = Answer(Generate(disk.string()));
    EXPECT_EQ(third["ids"], reference["ids"]) << "kill " << kill;
    EXPECT_GT(third["usage"]["cached_tokens"], 0.95 * third["usage"]["prompt_tokens"].get<double>());
    EXPECT_EQ(third["usage"]["cached_tokens_by_tier"]["disk"], third["usage"]["cached_tokens"]);
    fs::remove_all(disk);
  }
  std::printf("%d kills, %lld restarts found something\n", kills_, static_cast<long long>(hits));
}

TEST_F(KvDisk, DamagedFilesAreMisses) {
  const fs::path disk = this->disk();
  const Json reference = Answer(Generate(disk.string()));
  ASSERT_EQ(CountFiles(disk, ".seg"), 1);
  fs::path segment;
  for (const auto& entry : fs::recursive_directory_iterator(disk)) {
    if (entry.path().extension() == ".seg") segment = entry.path();
  }
  std::string bytes;
  {
    std::ifstream file(segment, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x40);
  std::ofstream(segment, std::ios::binary) << bytes;
  const ProgramResult verified = Kv("verify", disk);
  EXPECT_EQ(verified.exit_status, 1);
  EXPECT_NE(verified.out.find(" 1 bad"), std::string::npos) << verified.out << verified.err;
  const Json again = Answer(Generate(disk.string()));
  EXPECT_EQ(again["ids"], reference["ids"]);
  EXPECT_LT(again["usage"]["cached_tokens"], reference["usage"]["prompt_tokens"]);
}

TEST_F(KvDisk, ATierThatDoesNotWorkIsSaidAndHindersNoAnswer) {
  const Json reference = Answer(Generate(""));
  const ProgramResult result = RunProgram(Generate("/proc/x"));  // no folder can be made there, by nobody
  EXPECT_EQ(result.exit_status, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out, nullptr, false)["ids"], reference["ids"]);
  EXPECT_NE(result.err.find("deepinfer: the KV tier 'disk' does not work and is tried again: /proc/x"),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("; check the folder of --kv-disk, "), std::string::npos) << result.err;
  // Whoever only asks for the plan is told, too.
  for (std::vector<std::string> plan :
       {std::vector<std::string>{"info", "--json"}, {"serve", "--dry-run"}, {"doctor"}}) {
    plan.insert(plan.end(), {"--model", model_, "--kv-disk"});
    std::vector<std::string> good = plan;
    good.push_back((folder_.path() / "good").string());
    EXPECT_EQ(RunProgram(good).err, "");
    plan.push_back("/proc/x");
    const ProgramResult planned = RunProgram(plan);
    EXPECT_EQ(planned.exit_status, 0) << planned.err;
    EXPECT_NE(planned.out, "");
    EXPECT_TRUE(planned.err.starts_with("deepinfer: the KV tier 'disk' does not work and is tried again: /proc/x"))
        << planned.err;
  }
}

TEST_F(KvDisk, TheKvCommandsCountListCopyAndRemove) {
  const fs::path disk = this->disk();
  Answer(Generate(disk.string()));
  Answer(Generate(disk.string(), "bounded"));
  const Json stats = Json::parse(Kv("stats", disk, {"--json"}).out);
  ASSERT_EQ(stats["scopes"].size(), 2u);
  EXPECT_GT(stats["scopes"][0]["tokens"], 3000);
  EXPECT_EQ(stats["scopes"][0]["description"]["numerics"], 1);
  const std::string scope = stats["scopes"][0]["scope"];
  EXPECT_NE(Kv("list", disk, {"--scope", scope}).out.find(scope), std::string::npos);

  const fs::path copy = this->disk(1);
  EXPECT_EQ(Kv("export", disk, {"--to", copy.string()}).exit_status, 1);  // a typing error makes no folder
  fs::create_directory(copy);
  EXPECT_EQ(Kv("export", disk, {"--to", copy.string()}).exit_status, 0);
  EXPECT_EQ(Kv("verify", copy).exit_status, 0);
  const Json from_copy = Answer(Generate(copy.string()));
  EXPECT_GT(from_copy["usage"]["cached_tokens"], 3000);

  const ProgramResult same = Kv("export", disk, {"--to", (disk / ".").string()});
  EXPECT_EQ(same.exit_status, 2);
  EXPECT_NE(same.err.find("--to: expected another folder than that of --kv-disk"), std::string::npos) << same.err;
  EXPECT_EQ(Kv("delete", disk).exit_status, 2);
  EXPECT_EQ(Kv("delete", disk, {"--scope", "xyz"}).exit_status, 2);
  EXPECT_EQ(Kv("stats", this->disk(9)).exit_status, 1);
  EXPECT_NE(Kv("delete", disk, {"--salt", "nobody's"}).out.find("removed 0 segments"), std::string::npos);
  EXPECT_NE(Kv("delete", disk, {"--older-than", "1h"}).out.find("removed 0 segments"), std::string::npos);
  EXPECT_NE(Kv("delete", disk, {"--scope", scope}).out.find("removed 1 segments"), std::string::npos);
  EXPECT_NE(Kv("prune", disk).out.find("removed 0 segments"), std::string::npos);
  EXPECT_NE(Kv("prune", disk, {"--to-gib", "0"}).out.find("removed 1 segments"), std::string::npos);
  EXPECT_NE(Kv("delete", copy, {"--salt", ""}).out.find("removed 2 segments"), std::string::npos);
  EXPECT_EQ(CountFiles(disk, ".seg") + CountFiles(copy, ".seg"), 0);
}

TEST_F(KvDisk, VerifyKnowsWhatEnginesLeaveAlone) {
  Answer(Generate(disk().string()));
  std::vector<fs::path> segments;
  for (const auto& entry : fs::recursive_directory_iterator(disk())) {
    if (entry.path().extension() == ".seg") segments.push_back(entry.path());
  }
  ASSERT_EQ(segments.size(), 1u);
  std::string name = segments[0].filename().string();
  name.front() = name.front() == '9' ? '8' : static_cast<char>(name.front() + 1);  // another day
  const fs::path moved = segments[0].parent_path() / name;
  fs::rename(segments[0], moved);
  EXPECT_NE(Kv("verify", disk()).out.find("0 good records, 1 bad"), std::string::npos);
  fs::rename(moved, segments[0]);
  std::fstream(segments[0], std::ios::in | std::ios::out).seekp(8).put(2);  // a later version
  const ProgramResult later = Kv("verify", disk());
  EXPECT_EQ(later.exit_status, 0);
  EXPECT_NE(later.out.find("0 good records, 0 bad; 1 segments of another version"), std::string::npos) << later.out;
}

TEST_F(KvDisk, EncryptedFilesNeedTheirKey) {
  const std::string key = (folder_.path() / "key").string();
  const std::string other = (folder_.path() / "other").string();
  std::ofstream(key) << std::string(64, 'a') << "\n";
  std::ofstream(other) << std::string(64, 'b') << "\n";
  const auto with = [&](const std::string& file) {
    std::vector<std::string> arguments = Generate(disk().string());
    arguments.insert(arguments.end(), {"--kv-key-file", file});
    return arguments;
  };
  const Json first = Answer(with(key));
  EXPECT_EQ(Kv("verify", disk(), {"--kv-key-file", key}).exit_status, 0);
  const ProgramResult unread = Kv("verify", disk(), {"--kv-key-file", other});
  EXPECT_EQ(unread.exit_status, 1);
  EXPECT_NE(unread.out.find("0 good records, 0 bad; 1 segments are encrypted with another key"), std::string::npos)
      << unread.out;
  EXPECT_EQ(Answer(with(other))["usage"]["cached_tokens"], 0);
  const Json again = Answer(with(key));
  EXPECT_GT(again["usage"]["cached_tokens"], 3000);
  EXPECT_EQ(again["ids"], first["ids"]);
  const ProgramResult wrong = RunProgram(with(prompt_file()));
  EXPECT_EQ(wrong.exit_status, 1);
  EXPECT_NE(wrong.err.find("--kv-key-file: expected 32 bytes or 64"), std::string::npos) << wrong.err;
  const ProgramResult short_key = Kv("verify", disk(), {"--kv-key-file", prompt_file()});
  EXPECT_NE(short_key.err.find("--kv-key-file: expected 32 bytes or 64"), std::string::npos) << short_key.err;
}

}  // namespace
}  // namespace deepinfer
