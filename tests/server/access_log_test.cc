#include "server/access_log.h"

#include <gtest/gtest.h>
#include <limits.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "tests/app/temporary_folder.h"

namespace deepinfer {
namespace {

AccessRecord SomeRecord() {
  AccessRecord record;
  record.time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1767225599007));
  record.request_id = "req-1";
  record.peer = "127.0.0.1:4711";
  record.key = "alice";
  record.method = "POST";
  record.path = "/v1/chat/completions?api-key=secret";
  record.status = 200;
  record.total_ms = 1234.5678;
  return record;
}

std::vector<std::string> Lines(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(AccessLog, ALineSaysWhatHappened) {
  EXPECT_EQ(AccessLine(SomeRecord()),
            R"({"time":"2025-12-31T23:59:59.007Z","request_id":"req-1","peer":"127.0.0.1:4711","key":"alice",)"
            R"("method":"POST","path":"/v1/chat/completions","status":200,"total_ms":1234.568})");
}

TEST(AccessLog, AnAnswerAddsItsCounts) {
  AccessRecord record = SomeRecord();
  record.key.clear();
  record.answer = AnswerRecord{.protocol = "chat",
                               .model = "nano",
                               .prompt_tokens = 100,
                               .cached_tokens = 64,
                               .completion_tokens = 20,
                               .reasoning_tokens = 7,
                               .finish_reason = "stop",
                               .queue_ms = 0.5,
                               .first_token_ms = std::nullopt,
                               .accepted_drafts = 9};
  const std::string line = AccessLine(record);
  EXPECT_NE(line.find(R"("key":null)"), std::string::npos) << line;
  EXPECT_TRUE(line.ends_with(
      R"("total_ms":1234.568,"protocol":"chat","model":"nano","prompt_tokens":100,"cached_tokens":64,)"
      R"("completion_tokens":20,"reasoning_tokens":7,"finish_reason":"stop","queue_ms":0.500,"first_token_ms":null,)"
      R"("accepted_drafts":9})"))
      << line;
  EXPECT_TRUE(nlohmann::json::accept(line));
}

TEST(AccessLog, HostileTextStaysOnOneShortLine) {
  AccessRecord record = SomeRecord();
  record.path = "/a\n{\"forged\":1}\x1B[2J\x7F\xC2\x9B\xE2\x80\xA8\\\xFF";
  const nlohmann::json parsed = nlohmann::json::parse(AccessLine(record), nullptr, false);
  ASSERT_FALSE(parsed.is_discarded());
  EXPECT_EQ(parsed["path"], "/a\n{\"forged\":1}\x1B[2J\x7F\xC2\x9B\xE2\x80\xA8\\\xEF\xBF\xBD");
  const std::string line = AccessLine(record);
  for (const char c : line) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
  EXPECT_NE(line.find(R"(\u000a{\"forged\":1}\u001b[2J\u007f\u009b\u2028\\)"), std::string::npos) << line;

  // Clipped between characters, and only what is long.
  record.path = "/";
  for (int i = 0; i < 1000; ++i) record.path += "\xC3\xA4";
  const std::string clipped = nlohmann::json::parse(AccessLine(record))["path"];
  EXPECT_TRUE(clipped.ends_with("\xC3\xA4...")) << clipped;
  EXPECT_EQ(clipped.substr(0, clipped.size() - 3), record.path.substr(0, clipped.size() - 3));
  EXPECT_GT(clipped.size(), 1000u);
  record.key = std::string(64, 'k');
  EXPECT_EQ(nlohmann::json::parse(AccessLine(record))["key"], record.key);

  // The worst of everything at once.
  const std::string worst(100000, '\x01');
  record.request_id = record.peer = record.key = record.method = record.path = worst;
  record.answer = AnswerRecord();
  record.answer->protocol = record.answer->model = record.answer->finish_reason = worst;
  record.answer->prompt_tokens = record.answer->cached_tokens = record.answer->completion_tokens =
      record.answer->reasoning_tokens = record.answer->accepted_drafts = INT64_MIN;
  record.answer->queue_ms = record.answer->first_token_ms = record.total_ms = -1e15;
  record.status = INT_MIN;
  EXPECT_LT(AccessLine(record).size(), static_cast<size_t>(PIPE_BUF));
  EXPECT_TRUE(nlohmann::json::accept(AccessLine(record)));
}

TEST(AccessLog, AFileGrowsAtItsEndAndIsNotForEveryone) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "access.log";
  for (int run = 0; run < 2; ++run) {
    auto log = AccessLog::Open(path.string());
    ASSERT_TRUE(log.ok());
    (*log)->Write(SomeRecord());
    EXPECT_EQ((*log)->lost(), 0);
  }
  EXPECT_EQ(Lines(path), (std::vector<std::string>(2, AccessLine(SomeRecord()))));
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0007u, 0u);
}

TEST(AccessLog, ThreadsWriteWholeLines) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "access.log";
  auto log = AccessLog::Open(path.string());
  ASSERT_TRUE(log.ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        AccessRecord record = SomeRecord();
        record.request_id = std::to_string(t) + "/" + std::to_string(i);
        (*log)->Write(record);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> ids;
  for (const std::string& line : Lines(path)) {
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
    ASSERT_FALSE(parsed.is_discarded()) << line;
    ids.insert(parsed["request_id"]);
  }
  EXPECT_EQ(ids.size(), 800u);
}

TEST(AccessLog, FollowsAFileThatIsRotated) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "access.log", old = folder.path() / "access.log.1";
  auto log = AccessLog::Open(path.string());
  ASSERT_TRUE(log.ok());
  std::filesystem::rename(path, old);
  (*log)->Write(SomeRecord());  // still the renamed one
  ASSERT_TRUE((*log)->Reopen().ok());
  (*log)->Write(SomeRecord());
  (*log)->Write(SomeRecord());
  EXPECT_EQ(Lines(old).size(), 1u);
  EXPECT_EQ(Lines(path).size(), 2u);

  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  const Status status = (*log)->Reopen();
  EXPECT_EQ(status.message(), "--access-log: " + path.string() + ": Is a directory");
  (*log)->Write(SomeRecord());
  EXPECT_EQ((*log)->lost(), 0);
}

TEST(AccessLog, LostLinesAreCounted) {
  auto full = AccessLog::Open("/dev/full");
  ASSERT_TRUE(full.ok());
  (*full)->Write(SomeRecord());
  EXPECT_EQ((*full)->lost(), 1);
}

TEST(AccessLog, OffAndBadTargets) {
  auto off = AccessLog::Open("off");
  ASSERT_TRUE(off.ok());
  (*off)->Write(SomeRecord());
  EXPECT_TRUE((*off)->Reopen().ok());
  EXPECT_EQ((*off)->lost(), 0);
  EXPECT_EQ(AccessLog::Open("").status().code(), StatusCode::kInvalidArgument);
  const TemporaryFolder folder;
  const std::string missing = (folder.path() / "none" / "log").string();
  EXPECT_EQ(AccessLog::Open(missing).status().message(), "--access-log: " + missing + ": No such file or directory");
}

TEST(AccessLog, MinusIsStandardError) {
  auto log = AccessLog::Open("-");
  ASSERT_TRUE(log.ok());
  testing::internal::CaptureStderr();
  (*log)->Write(SomeRecord());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), AccessLine(SomeRecord()) + "\n");
}

}  // namespace
}  // namespace deepinfer
