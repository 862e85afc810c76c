// Several tiers in one folder, as objects and as processes that die: they see each other's records, keep one budget,
// and leave nothing behind.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cache/disk_tier.h"
#include "disk_fixture.h"
#include "tests/app/temporary_folder.h"

namespace deepinfer::test {
namespace {

constexpr int64_t kBudget = int64_t{4} << 20;

class DiskSharingTest : public testing::Test {
 protected:
  /// Files of the folder that this process has open although their names are gone.
  int64_t CountRemovedButOpen() const {
    int64_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
      count += target.starts_with(folder()) && target.ends_with(" (deleted)") ? 1 : 0;
    }
    return count;
  }
  std::unique_ptr<DiskTier> Open(int64_t budget = kBudget) {
    return OpenTier(SmallOptions(folder(), &now_, budget), &files_);
  }
  std::string folder() const { return (folder_.path() / "kv").string(); }
  /// The kernel gives up the locks of a killed process when its last I/O has ended, which may be after its end.
  void TakeOverAll(DiskTier& tier) {
    while (!FilesBelow(folder(), ".open").empty()) ASSERT_TRUE(tier.Maintain().ok());
  }

  TemporaryFolder folder_;
  FaultyFileSystem files_;
  int64_t now_ = kStart;
  KvNamespace name_space_ = SmallNamespace();
};

TEST_F(DiskSharingTest, OneReadsWhatTheOtherWritesWhileItWrites) {
  const auto writer = Open();
  const auto reader = Open();
  Chain chain(name_space_, "tenant", 1, 200);
  for (int64_t end = 0; end < 200; end += 10) {
    ASSERT_TRUE(writer->Write(chain.Writes(end, end + 10, now_ + 3 * kDay)).ok());
    EXPECT_EQ(*reader->Find(chain.keys()), end);
    ASSERT_TRUE(reader->Maintain().ok());
    EXPECT_EQ(*reader->Find(chain.keys()), end + 10);
    EXPECT_EQ(CountRight(*reader, chain, 0, 200), end + 10);
  }
  EXPECT_FALSE(FilesBelow(folder(), ".open").empty());  // nobody took over the file of a living writer
  EXPECT_EQ(reader->counts().corrupt, 0);
  // Neither writes what the other has.
  ASSERT_TRUE(reader->Write(chain.Writes(0, 200, now_ + 3 * kDay)).ok());
  EXPECT_EQ(reader->counts().written, 0);
}

TEST_F(DiskSharingTest, HalfABatchIsNotSeen) {
  const auto writer = Open();
  const auto reader = Open();
  Chain chain(name_space_, "tenant", 1, 30);
  ASSERT_TRUE(writer->Write(chain.Writes(0, 10, now_ + 3 * kDay)).ok());
  files_.writes_left = 1;  // all of the batch but its first block
  EXPECT_FALSE(writer->Write(chain.Writes(10, 30, now_ + 3 * kDay)).ok());
  files_.writes_left = -1;
  ASSERT_TRUE(reader->Maintain().ok());
  EXPECT_EQ(CountRight(*reader, chain, 0, 30), 10);
  EXPECT_EQ(reader->counts().corrupt, 0);
}

TEST_F(DiskSharingTest, SealingAndDroppingAreSeen) {
  auto writer = Open();
  const auto reader = Open();
  Chain chain(name_space_, "tenant", 1, 100);
  ASSERT_TRUE(writer->Write(chain.Writes(0, 100, now_ + 3 * kDay)).ok());
  ASSERT_TRUE(reader->Maintain().ok());
  writer = nullptr;
  // The reader still knows the old name.
  EXPECT_EQ(CountRight(*reader, chain, 0, 100), 100);
  ASSERT_TRUE(reader->Maintain().ok());
  EXPECT_EQ(CountRight(*reader, chain, 0, 100), 100);
  EXPECT_EQ(reader->counts().records, 100);

  writer = Open();
  ASSERT_TRUE(writer->Write(Chain(name_space_, "tenant", 2, 5).Writes(0, 5, now_ + 3 * kDay)).ok());
  ASSERT_TRUE(reader->Drop(chain.scope()).ok());
  ASSERT_TRUE(writer->Maintain().ok());
  EXPECT_EQ(writer->counts().records, 0);
  EXPECT_EQ(CountRight(*writer, chain, 0, 100), 0);
  // The writer's own file has gone too; it makes another.
  ASSERT_TRUE(writer->Write(chain.Writes(0, 5, now_ + 3 * kDay)).ok());
  ASSERT_TRUE(reader->Maintain().ok());
  EXPECT_EQ(CountRight(*reader, chain, 0, 100), 5);
}

TEST_F(DiskSharingTest, TwoKeepOneBudget) {
  const auto one = Open();
  const auto two = Open();
  int64_t most = 0;
  files_.on_change = [&] { most = std::max(most, BytesBelow(folder())); };
  for (uint32_t i = 0; i < 40; ++i) {
    Chain chain(name_space_, i % 3 == 0 ? "a" : "b", i, 40);
    DiskTier& writer = i % 2 == 0 ? *one : *two;
    DiskTier& reader = i % 2 == 0 ? *two : *one;
    ASSERT_TRUE(writer.Write(chain.Writes(0, 40, now_ + 3 * kDay)).ok());
    ASSERT_TRUE(reader.Maintain().ok());
    ASSERT_EQ(CountRight(reader, chain, 0, 40), 40) << i;
    now_ += 600;
  }
  EXPECT_LE(most, kBudget + kBudget / 50);
  EXPECT_GT(most, kBudget * 9 / 10);
  EXPECT_GT(one->counts().evicted + two->counts().evicted, 500);
}

TEST_F(DiskSharingTest, WhatOneReadsTheOtherDoesNotEvict) {
  const auto reader = Open();
  Chain hot(name_space_, "hot", 1000, 50);
  {
    const auto first = Open();
    ASSERT_TRUE(first->Write(hot.Writes(0, 50, now_ + 3 * kDay)).ok());
  }
  const auto writer = Open();
  for (uint32_t i = 0; i < 60; ++i) {
    ASSERT_TRUE(reader->Maintain().ok());
    ASSERT_EQ(CountRight(*reader, hot, 0, 50), 50) << i;
    ASSERT_TRUE(reader->Maintain().ok());
    now_ += 3600;
    Chain chain(name_space_, "cold", i, 40);
    ASSERT_TRUE(writer->Write(chain.Writes(0, 40, now_ + 7 * kDay)).ok());
  }
  EXPECT_GT(writer->counts().evicted, 1000);
}

TEST_F(DiskSharingTest, EvictedFilesServeThoseWhoHaveThemOpen) {
  const auto reader = Open();
  const auto writer = Open();
  Chain chain(name_space_, "tenant", 1, 40);
  ASSERT_TRUE(writer->Write(chain.Writes(0, 40, now_ + 3 * kDay)).ok());
  ASSERT_TRUE(reader->Maintain().ok());
  ASSERT_EQ(CountRight(*reader, chain, 0, 40), 40);
  now_ += kDay;
  ASSERT_TRUE(writer->Maintain().ok());
  for (uint32_t i = 2; i < 40; ++i) {
    ASSERT_TRUE(writer->Write(Chain(name_space_, "tenant", i, 40).Writes(0, 40, now_ + 3 * kDay)).ok());
  }
  ASSERT_EQ(*writer->Find(chain.keys()), 0);
  EXPECT_EQ(CountRight(*reader, chain, 0, 40), 40);
  ASSERT_TRUE(reader->Maintain().ok());
  EXPECT_EQ(CountRight(*reader, chain, 0, 40), 0);
  EXPECT_EQ(reader->counts().corrupt, 0);
}

// Or two processes, each out of service because the other's removed files fill the disk, would wait forever.
TEST_F(DiskSharingTest, AFullDiskIsNotKeptFullByFilesThatOthersHaveRemoved) {
  auto writer = Open();
  const auto reader = Open();
  Chain chain(name_space_, "tenant", 1, 100);
  ASSERT_TRUE(writer->Write(chain.Writes(0, 100, now_ + 3 * kDay)).ok());
  ASSERT_TRUE(reader->Maintain().ok());
  EXPECT_EQ(CountRight(*reader, chain, 0, 100), 100);
  ASSERT_TRUE(writer->Drop(chain.scope()).ok());
  EXPECT_GT(CountRemovedButOpen(), 0);
  files_.full = true;
  EXPECT_EQ(reader->Probe().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(CountRemovedButOpen(), 0);
}

TEST_F(DiskSharingTest, ReadsWritesAndUpkeepOfOneTierAtOnce) {
  const auto tier = Open();
  std::atomic<int64_t> written{0};
  std::atomic<bool> failed{false};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (uint32_t i = 0; i < 40 && !failed; ++i) {
      const Chain chain(name_space_, "tenant", i, 40);
      if (!tier->Write(chain.Writes(0, 40, now_ + 3 * kDay)).ok()) failed = true;
      written = i + 1;
    }
    written = 1000;
  });
  threads.emplace_back([&] {
    while (written < 1000 && !failed) {
      if (!tier->Maintain().ok() || tier->counts().bytes > kBudget) failed = true;
    }
  });
  // More than there are buffers for.
  std::atomic<int64_t> found{0};
  for (uint32_t reader = 0; reader < 4; ++reader) {
    threads.emplace_back([&, reader] {
      for (uint32_t i = reader; written < 1000 && !failed; ++i) {
        Chain chain(name_space_, "tenant", i % static_cast<uint32_t>(written + 1), 40);
        const int64_t count = CountRight(*tier, chain, 0, 40);
        if (count < 0) failed = true;
        found += count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(failed);
  EXPECT_GT(found, 0);
  EXPECT_EQ(tier->counts().corrupt, 0);
}

// --- processes ---

/// Writes chains of this seed and onwards, says so for each in the pipe, and is killed somewhere.
[[noreturn]] void WriteUntilKilled(const std::string& folder, uint32_t seed, int64_t operations, int said) {
  class DyingFileSystem : public FaultyFileSystem {
   public:
    explicit DyingFileSystem(int64_t operations) : operations_(operations) {
      on_change = [this] { Count(); };
    }
    std::unique_ptr<Transfer> Start(std::span<FileOperation> list) override {
      Count();
      std::unique_ptr<Transfer> transfer = FaultyFileSystem::Start(list);
      Count();  // while it is under way
      return transfer;
    }

   private:
    void Count() {
      if (operations_ > 0 && --operations_ == 0) raise(SIGKILL);
    }
    int64_t operations_;
  };
  const int64_t now = kStart;
  DyingFileSystem files(operations);
  const KvNamespace name_space = SmallNamespace();
  const auto tier =
      DiskTier::Create(SmallOptions(folder, &now, int64_t{32} << 20), KvRecordCodec(name_space, {}), &files).value();
  if (!tier->Probe().ok()) _exit(2);
  for (;; ++seed) {
    const Chain chain(name_space, seed % 2 == 0 ? "a" : "b", seed, 12);
    if (!tier->Write(chain.Writes(0, 12, now + (3 + seed % 2) * kDay)).ok()) _exit(3);
    if (write(said, &seed, sizeof(seed)) != sizeof(seed)) _exit(4);
  }
}

TEST_F(DiskSharingTest, KilledAnywhereNothingPublishedIsLostAndNothingTornIsServed) {
  std::mt19937 random(1);
  std::vector<uint32_t> published;
  for (int round = 0; round < 60; ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const auto first_seed = static_cast<uint32_t>(1000 * round);
    // Half of them die at a counted call, the others whenever the signal comes.
    const int64_t operations = round % 2 == 0 ? 1 + random() % 80 : 0;
    const uint32_t wanted = random() % 12;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(ends[0]);
      WriteUntilKilled(folder(), first_seed, operations, ends[1]);
    }
    close(ends[1]);
    uint32_t seed = 0;
    uint32_t next = first_seed;
    while (read(ends[0], &seed, sizeof(seed)) == sizeof(seed)) {
      ASSERT_EQ(seed, next++);
      published.push_back(seed);
      if (operations == 0 && next - first_seed > wanted) kill(child, SIGKILL);
    }
    close(ends[0]);
    int state = 0;
    ASSERT_EQ(waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state)) << round << ": exit " << WEXITSTATUS(state);

    const auto tier = Open(int64_t{32} << 20);
    for (const uint32_t each : published) {
      Chain chain(name_space_, each % 2 == 0 ? "a" : "b", each, 12);
      ASSERT_EQ(CountRight(*tier, chain, 0, 12), 12) << round << " " << each;
    }
    // The chain after the last that was reported may be there; it is whole, in front, and right.
    Chain torn(name_space_, next % 2 == 0 ? "a" : "b", next, 12);
    const int64_t front = *tier->Find(torn.keys());
    ASSERT_EQ(CountRight(*tier, torn, 0, 12), front);
    ASSERT_EQ(tier->counts().corrupt, 0) << round;
    ASSERT_EQ(tier->counts().foreign, 0);
    TakeOverAll(*tier);
    if (published.size() > 150) {
      for (const char* salt : {"a", "b"}) {
        ASSERT_TRUE(tier->Drop(KvScope::Make(name_space_, "exact", salt)).ok());
      }
      published.clear();
    }
  }
}

TEST_F(DiskSharingTest, ALivingProcessTakesOverWhatAKilledOneLeft) {
  const auto tier = Open(int64_t{32} << 20);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(ends[0]);
    WriteUntilKilled(folder(), 0, 0, ends[1]);
  }
  close(ends[1]);
  uint32_t seed = 0;
  for (int i = 0; i < 5; ++i) ASSERT_EQ(read(ends[0], &seed, sizeof(seed)), static_cast<ssize_t>(sizeof(seed)));
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_FALSE(FilesBelow(folder(), ".open").empty());
  Chain first(name_space_, "a", 0, 12);
  EXPECT_EQ(CountRight(*tier, first, 0, 12), 12);
  kill(child, SIGKILL);
  while (read(ends[0], &seed, sizeof(seed)) == sizeof(seed)) continue;
  close(ends[0]);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  TakeOverAll(*tier);
  for (uint32_t each = 0; each <= seed; ++each) {
    Chain chain(name_space_, each % 2 == 0 ? "a" : "b", each, 12);
    EXPECT_EQ(CountRight(*tier, chain, 0, 12), 12) << each;
  }
  EXPECT_EQ(tier->counts().corrupt, 0);
}

/// Writes 30 chains and reads those of both processes. Exit status 0: every byte that was found is right.
[[noreturn]] void WriteAndRead(const std::string& folder, uint32_t own, uint32_t other) {
  const int64_t now = kStart;
  FaultyFileSystem files;
  const KvNamespace name_space = SmallNamespace();
  const auto tier = DiskTier::Create(SmallOptions(folder, &now), KvRecordCodec(name_space, {}), &files).value();
  if (!tier->Probe().ok()) _exit(2);
  int64_t found = 0;
  for (uint32_t i = 0; i < 30; ++i) {
    Chain chain(name_space, "tenant", own + i, 60);
    if (!tier->Write(chain.Writes(0, 60, now + 3 * kDay)).ok()) _exit(3);
    if (!tier->Maintain().ok()) _exit(4);
    for (const uint32_t each : {own + i, other + i, other + i / 2}) {
      Chain asked(name_space, "tenant", each, 60);
      const int64_t count = CountRight(*tier, asked, 0, 60);
      if (count < 0) _exit(5);
      found += count;
    }
  }
  if (found == 0) _exit(6);
  if (tier->counts().corrupt != 0) _exit(7);
  _exit(0);
}

/// Bytes by file; a segment is the same file before and after it is sealed.
std::map<std::string, int64_t> SizesBelow(const std::string& folder) {
  const std::unique_ptr<FileSystem> files = MakePosixFileSystem();
  std::map<std::string, int64_t> sizes;
  const std::function<void(const std::string&)> add = [&](const std::string& path) {
    const Result<std::vector<FolderEntry>> entries = files->List(path);
    if (!entries.ok()) return;
    for (const FolderEntry& entry : *entries) {
      const std::filesystem::path inner = path + "/" + entry.name;
      if (entry.is_folder) {
        add(inner);
      } else if (const Result<FileInfo> info = files->Info(inner.string()); info.ok()) {
        const auto [at, is_new] = sizes.emplace(inner.parent_path() / inner.stem(), info->bytes);
        if (!is_new) at->second = std::min(at->second, info->bytes);
      }
    }
  };
  add(folder);
  return sizes;
}

/// Segments are sealed right after their names were listed.
class SealsWhatIsListed : public FaultyFileSystem {
 public:
  Result<std::vector<FolderEntry>> List(const std::string& path) override {
    Result<std::vector<FolderEntry>> entries = FaultyFileSystem::List(path);
    if (!entries.ok()) return entries;
    for (const FolderEntry& entry : *entries) {
      std::filesystem::path file = path + "/" + entry.name;
      if (file.extension() == ".open")
        std::filesystem::rename(file, std::filesystem::path(file).replace_extension(".seg"));
    }
    return entries;
  }
};

TEST_F(DiskSharingTest, ASegmentThatIsSealedWhileItIsListedCounts) {
  const auto tier = Open();
  Chain chain(name_space_, "tenant", 1, 12);
  ASSERT_TRUE(tier->Write(chain.Writes(0, 12, now_ + 3 * kDay)).ok());
  SealsWhatIsListed files;
  const Result<DiskDirectory::Contents> contents = DiskDirectory(&files, folder(), name_space_, 1).List();
  ASSERT_TRUE(contents.ok());
  EXPECT_EQ(FilesBelow(folder(), ".open").size(), 0u);
  EXPECT_EQ(contents->bytes, BytesBelow(folder()));
  ASSERT_EQ(contents->segments.size(), 1u);
  EXPECT_TRUE(contents->segments[0].sealed);
}

TEST_F(DiskSharingTest, TwoProcessesAtOnce) {
  pid_t children[2] = {};
  for (int i = 0; i < 2; ++i) {
    children[i] = fork();
    ASSERT_GE(children[i], 0);
    if (children[i] == 0) WriteAndRead(folder(), i == 0 ? 1000 : 2000, i == 0 ? 2000 : 1000);
  }
  int64_t most = 0;
  int running = 2;
  // A listing takes time, and files come and go meanwhile. What two listings have in common was there at the moment
  // between them.
  std::map<std::string, int64_t> before;
  while (running > 0) {
    std::map<std::string, int64_t> sizes = SizesBelow(folder());
    int64_t common = 0;
    for (const auto& [file, bytes] : sizes) {
      if (const auto at = before.find(file); at != before.end()) common += std::min(bytes, at->second);
    }
    most = std::max(most, common);
    before = std::move(sizes);
    int state = 0;
    if (waitpid(-1, &state, WNOHANG) <= 0) continue;
    EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0) << WEXITSTATUS(state);
    --running;
  }
  EXPECT_LE(most, kBudget + kBudget / 50);
  EXPECT_GT(most, kBudget / 2);
  // They left without sealing.
  const auto tier = Open();
  TakeOverAll(*tier);
  EXPECT_LE(BytesBelow(folder()), kBudget);
  EXPECT_GT(tier->counts().records, 500);
  EXPECT_EQ(tier->counts().corrupt, 0);
}

}  // namespace
}  // namespace deepinfer::test
