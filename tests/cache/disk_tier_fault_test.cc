// A disk that fails: the call says so, nothing half-written is published, and the tier works again when the disk does.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cache/disk_tier.h"
#include "disk_fixture.h"
#include "tests/app/temporary_folder.h"

namespace deepinfer::test {
namespace {

class DiskFaultTest : public testing::Test {
 protected:
  std::unique_ptr<DiskTier> Open() { return OpenTier(SmallOptions(folder(), &now_, int64_t{16} << 20), &files_); }
  std::string folder() const { return (folder_.path() / "kv").string(); }
  /// What a new process finds of the chain.
  int64_t AfterRestart(Chain& chain) {
    const auto tier = Open();
    const int64_t count = CountRight(*tier, chain, 0, chain.size());
    EXPECT_EQ(tier->counts().corrupt, 0);
    return count;
  }

  TemporaryFolder folder_;
  FaultyFileSystem files_;
  int64_t now_ = kStart;
  KvNamespace name_space_ = SmallNamespace();
  Chain chain_{name_space_, "tenant", 1, 200};
};

TEST_F(DiskFaultTest, AFullDiskIsReportedAndComesBack) {
  auto tier = Open();
  ASSERT_TRUE(tier->Write(chain_.Writes(0, 20, now_ + 3 * kDay)).ok());
  files_.full = true;
  EXPECT_EQ(tier->Write(chain_.Writes(20, 200, now_ + 3 * kDay)).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(tier->Probe().code(), StatusCode::kResourceExhausted);
  const int64_t published = *tier->Find(chain_.keys());
  EXPECT_GE(published, 20);
  EXPECT_LT(published, 200);
  EXPECT_EQ(CountRight(*tier, chain_, 0, 200), published);
  files_.full = false;
  ASSERT_TRUE(tier->Probe().ok());
  ASSERT_TRUE(tier->Write(chain_.Writes(20, 200, now_ + 3 * kDay)).ok());
  EXPECT_EQ(CountRight(*tier, chain_, 0, 200), 200);
  tier = nullptr;
  EXPECT_EQ(AfterRestart(chain_), 200);
}

// Space that was not taken in advance runs out at any write, also between the two steps of a batch.
TEST_F(DiskFaultTest, AWriteThatRunsOutOfSpaceAnywherePublishesNothingTorn) {
  files_.preallocates = false;
  for (int64_t left = 0; left < 12; ++left) {
    Chain chain(name_space_, "tenant", static_cast<uint32_t>(100 + left), 120);
    int64_t published = 0;
    {
      const auto tier = Open();
      ASSERT_TRUE(tier->Write(chain.Writes(0, 10, now_ + 3 * kDay)).ok());
      files_.writes_left = left;
      const Status status = tier->Write(chain.Writes(10, 120, now_ + 3 * kDay));
      ASSERT_TRUE(status.ok() || status.code() == StatusCode::kResourceExhausted) << status.message();
      published = *tier->Find(chain.keys());
      ASSERT_GE(published, 10);
      ASSERT_EQ(status.ok(), published == 120);
      ASSERT_EQ(CountRight(*tier, chain, 0, 120), published) << left;
      if (left % 2 == 0) {
        // The next process finds what a killed one left; this one seals what it can.
        files_.writes_left = -1;
        ASSERT_TRUE(tier->Probe().ok());
        ASSERT_EQ(CountRight(*tier, chain, 0, 120), published) << left;
      }
    }
    files_.writes_left = -1;
    ASSERT_EQ(AfterRestart(chain), published) << left;
    EXPECT_TRUE(FilesBelow(folder(), ".open").empty());
  }
}

// A call of four batches and three buffers: the third batch finds no room while two are under way, and the fourth one,
// which has room, takes the first one's buffer.
TEST_F(DiskFaultTest, ABatchWithoutRoomLeavesTheBuffersOfThoseUnderWayAlone) {
  constexpr int64_t kBatch = 64;  // records of 4096 bytes in a batch of a 64th of this budget
  constexpr int64_t kBudget = int64_t{16} << 20;
  const auto tier = Open();
  // Somebody else's file leaves room for two batches, and not for a third one.
  constexpr int64_t kRoom = 5 * kBatch * 4096 / 2;
  WriteFile(folder() + "/other", "");
  std::filesystem::resize_file(folder() + "/other", static_cast<uintmax_t>(kBudget - kRoom));
  files_.late_writes = true;
  ASSERT_TRUE(tier->Write(chain_.Writes(0, 3 * kBatch + 8, now_ + 3 * kDay)).ok());
  EXPECT_EQ(tier->counts().evicted, kBatch);
  EXPECT_EQ(CountRight(*tier, chain_, 0, 2 * kBatch), 2 * kBatch);
  EXPECT_EQ(CountRight(*tier, chain_, 2 * kBatch, 3 * kBatch), 0);
  EXPECT_EQ(CountRight(*tier, chain_, 3 * kBatch, 3 * kBatch + 8), 8);
  EXPECT_EQ(tier->counts().corrupt, 0);
}

TEST_F(DiskFaultTest, ErrorsOfReadsAreOfTheTierNotOfTheRecords) {
  const auto tier = Open();
  ASSERT_TRUE(tier->Write(chain_.Writes(0, 20, now_ + 3 * kDay)).ok());
  files_.read_errors = true;
  std::vector<KvRead> reads = chain_.Reads(0, 20);
  EXPECT_EQ(tier->Read(reads).code(), StatusCode::kIo);
  for (const KvRead& read : reads) EXPECT_FALSE(read.found);
  EXPECT_EQ(tier->Probe().code(), StatusCode::kIo);
  EXPECT_EQ(tier->counts().corrupt, 0);
  EXPECT_EQ(*tier->Find(chain_.keys()), 20);
  files_.read_errors = false;
  ASSERT_TRUE(tier->Probe().ok());
  EXPECT_EQ(CountRight(*tier, chain_, 0, 20), 20);
}

// The kernel may yet write to the buffers of what did not end in time.
TEST_F(DiskFaultTest, ADiskThatDoesNotAnswerIsNotAskedOn) {
  const auto tier = Open();
  ASSERT_TRUE(tier->Write(chain_.Writes(0, 200, now_ + 3 * kDay)).ok());
  files_.runs = 0;
  ASSERT_EQ(CountRight(*tier, chain_, 0, 200), 200);
  ASSERT_GE(files_.runs, 3);
  const int64_t misses = tier->counts().misses;
  files_.runs = 0;
  files_.answers = 1;
  std::vector<KvRead> reads = chain_.Reads(0, 200);
  EXPECT_EQ(tier->Read(reads).code(), StatusCode::kCancelled);
  EXPECT_EQ(files_.runs, 3);  // two are under way when the first answers
  const int64_t found = std::ranges::count_if(reads, [](const KvRead& read) { return read.found; });
  EXPECT_GT(found, 0);
  for (const KvRead& read : reads) EXPECT_TRUE(!read.found || chain_.IsRight(read));
  EXPECT_EQ(tier->counts().misses - misses, 200 - found);
  EXPECT_EQ(tier->counts().corrupt, 0);
  files_.answers = -1;
  EXPECT_EQ(CountRight(*tier, chain_, 0, 200), 200);
}

TEST_F(DiskFaultTest, UpkeepEndsWhenTheDiskDoesNotAnswer) {
  for (uint32_t i = 0; i < 5; ++i) {
    Chain chain(name_space_, "tenant " + std::to_string(i), i, 10);
    ASSERT_TRUE(Open()->Write(chain.Writes(0, 10, now_ + 3 * kDay)).ok());
  }
  const auto tier = DiskTier::Create(SmallOptions(folder(), &now_), KvRecordCodec(name_space_, {}), &files_).value();
  files_.answers = 0;
  files_.runs = 0;
  EXPECT_EQ(tier->Maintain().code(), StatusCode::kCancelled);
  EXPECT_EQ(files_.runs, 1);
  EXPECT_EQ(tier->counts().foreign, 0);
  files_.answers = -1;
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_EQ(tier->counts().records, 50);
}

// One that another user made, or with a bad block under it.
TEST_F(DiskFaultTest, ABadFileOrFolderIsLeftOutAndComesBack) {
  Chain other(name_space_, "other", 2, 20);
  const KvNamespace another = SmallNamespace("another");
  Chain foreign(another, "tenant", 3, 20);
  ASSERT_TRUE(Open()->Write(chain_.Writes(0, 20, now_ + 3 * kDay)).ok());
  ASSERT_TRUE(Open()->Write(other.Writes(0, 20, now_ + 3 * kDay)).ok());
  const auto write_foreign = OpenTier(SmallOptions(folder(), &now_), &files_, another);
  ASSERT_TRUE(write_foreign->Write(foreign.Writes(0, 20, now_ + 3 * kDay)).ok());
  const std::string scope = ToHex(chain_.scope().root, 8);
  const std::string segment =
      std::filesystem::path(
          FilesBelow(folder() + "/" + ToHex(name_space_.fingerprint, 8) + "/" + scope, ".seg").front())
          .filename()
          .string();
  for (const std::string& broken : {segment, scope, ToHex(another.fingerprint, 8)}) {
    files_.broken = broken;
    const auto tier = Open();
    EXPECT_EQ(CountRight(*tier, other, 0, 20), 20) << broken;
    EXPECT_EQ(CountRight(*tier, chain_, 0, 20), broken.size() == 16 && broken != scope ? 20 : 0) << broken;
    EXPECT_EQ(tier->counts().foreign, 1) << broken;
    ASSERT_TRUE(tier->Maintain().ok()) << broken;
    EXPECT_EQ(tier->counts().foreign, 1) << broken;  // counted once
    ASSERT_TRUE(tier->Write(other.Writes(0, 20, now_ + 6 * kDay)).ok()) << broken;
    files_.broken.clear();
    now_ += 60;
    ASSERT_TRUE(tier->Maintain().ok()) << broken;
    EXPECT_EQ(CountRight(*tier, chain_, 0, 20), 20) << broken;
  }
}

TEST_F(DiskFaultTest, ASegmentThatCannotBeReadCanStillBeListed) {
  ASSERT_TRUE(Open()->Write(chain_.Writes(0, 20, now_ + 3 * kDay)).ok());
  Chain other(name_space_, "other", 2, 20);
  ASSERT_TRUE(Open()->Write(other.Writes(0, 20, now_ + 3 * kDay)).ok());
  const std::string path =
      FilesBelow(folder() + "/" + ToHex(name_space_.fingerprint, 8) + "/" + ToHex(chain_.scope().root, 8), ".seg")
          .front();
  files_.unreadable = path;
  const auto tier = Open();
  EXPECT_EQ(tier->counts().foreign, 1);
  EXPECT_EQ(CountRight(*tier, chain_, 0, 20), 0);
  EXPECT_EQ(CountRight(*tier, other, 0, 20), 20);
  EXPECT_EQ(tier->counts().bytes, BytesBelow(folder()));
  // It is no hindrance to making room, and not to expiry.
  for (uint32_t i = 0; i < 40; ++i) {
    Chain chain(name_space_, "tenant", 100 + i, 150);
    ASSERT_TRUE(tier->Write(chain.Writes(0, 150, now_ + 3 * kDay)).ok());
    ASSERT_EQ(CountRight(*tier, chain, 0, 150), 150);
  }
  EXPECT_GT(tier->counts().evicted, 0);
  EXPECT_EQ(tier->counts().foreign, 1);
  now_ += 30 * kDay;
  ASSERT_TRUE(tier->Probe().ok());
  EXPECT_EQ(FilesBelow(folder(), ".seg"), std::vector<std::string>{path});
  files_.unreadable.clear();
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_TRUE(FilesBelow(folder(), ".seg").empty());
}

TEST_F(DiskFaultTest, ABadSegmentIsNotCopiedForwardAndHindersNoUpkeep) {
  ASSERT_TRUE(Open()->Write(chain_.Writes(0, 20, now_ + 3 * kDay)).ok());
  const auto tier = Open();
  now_ += 2 * kDay;
  ASSERT_EQ(CountRight(*tier, chain_, 0, 20), 20);
  files_.unreadable = FilesBelow(folder(), ".seg").front();
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_EQ(tier->counts().copied_forward, 0);
  files_.unreadable.clear();
  now_ += 600;
  ASSERT_EQ(CountRight(*tier, chain_, 0, 20), 20);
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_EQ(tier->counts().copied_forward, 20);
}

// Left behind by a process that has died: neither followed nor taken over, as long as it cannot be read.
TEST_F(DiskFaultTest, ABadOpenSegmentIsTakenOverLater) {
  std::string path;
  {
    const auto tier = Open();
    ASSERT_TRUE(tier->Write(chain_.Writes(0, 20, now_ + 3 * kDay)).ok());
    path = FilesBelow(folder(), ".open").front();
    std::filesystem::copy_file(path, folder_.path() / "aside");
  }
  std::filesystem::remove(FilesBelow(folder(), ".seg").front());
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::filesystem::rename(folder_.path() / "aside", path);
  files_.unreadable = path;
  const auto tier = Open();
  EXPECT_EQ(tier->counts().foreign, 1);
  EXPECT_EQ(CountRight(*tier, chain_, 0, 20), 0);
  EXPECT_TRUE(std::filesystem::exists(path));
  files_.unreadable.clear();
  now_ += 60;
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_EQ(CountRight(*tier, chain_, 0, 20), 20);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(DiskFaultTest, ErrorsOfWritesLeaveWhatWasThere) {
  auto tier = Open();
  ASSERT_TRUE(tier->Write(chain_.Writes(0, 20, now_ + 3 * kDay)).ok());
  files_.write_errors = true;
  EXPECT_EQ(tier->Write(chain_.Writes(20, 40, now_ + 3 * kDay)).code(), StatusCode::kIo);
  EXPECT_EQ(tier->Probe().code(), StatusCode::kIo);
  EXPECT_EQ(CountRight(*tier, chain_, 0, 40), 20);
  files_.write_errors = false;
  ASSERT_TRUE(tier->Probe().ok());
  ASSERT_TRUE(tier->Write(chain_.Writes(20, 40, now_ + 3 * kDay)).ok());
  EXPECT_EQ(CountRight(*tier, chain_, 0, 40), 40);
  tier = nullptr;
  EXPECT_EQ(AfterRestart(chain_), 40);
}

TEST_F(DiskFaultTest, AFolderThatCannotBeWrittenIsReportedAndComesBack) {
  files_.read_only = true;
  const auto tier = DiskTier::Create(SmallOptions(folder(), &now_), KvRecordCodec(name_space_, {}), &files_).value();
  EXPECT_EQ(tier->Probe().code(), StatusCode::kIo);
  EXPECT_EQ(tier->Write(chain_.Writes(0, 20, now_ + 3 * kDay)).code(), StatusCode::kIo);
  EXPECT_EQ(*tier->Find(chain_.keys()), 0);
  EXPECT_EQ(CountRight(*tier, chain_, 0, 20), 0);
  files_.read_only = false;
  ASSERT_TRUE(tier->Probe().ok());
  ASSERT_TRUE(tier->Write(chain_.Writes(0, 20, now_ + 3 * kDay)).ok());
  files_.read_only = true;
  EXPECT_FALSE(tier->Write(chain_.Writes(20, 200, now_ + 3 * kDay)).ok());
  EXPECT_FALSE(tier->Probe().ok());
  EXPECT_EQ(CountRight(*tier, chain_, 0, 20), 20);
  files_.read_only = false;
  ASSERT_TRUE(tier->Probe().ok());
  ASSERT_TRUE(tier->Write(chain_.Writes(20, 200, now_ + 3 * kDay)).ok());
  EXPECT_EQ(CountRight(*tier, chain_, 0, 200), 200);
}

TEST_F(DiskFaultTest, AMissingParentIsReported) {
  DiskTierOptions options = SmallOptions((folder_.path() / "none" / "kv").string(), &now_);
  const auto tier = DiskTier::Create(options, KvRecordCodec(name_space_, {}), &files_).value();
  EXPECT_FALSE(tier->Probe().ok());
  std::filesystem::create_directory(folder_.path() / "none");
  EXPECT_TRUE(tier->Probe().ok());
}

// A disk that is really full.
TEST_F(DiskFaultTest, ASmallFileSystem) {
  const std::string mounted = (folder_.path() / "small").string();
  std::filesystem::create_directory(mounted);
  if (geteuid() != 0 || mount("tmpfs", mounted.c_str(), "tmpfs", 0, "size=2m") != 0) {
    GTEST_SKIP() << "only root may mount a tmpfs";
  }
  {
    DiskTierOptions options = SmallOptions(mounted + "/kv", &now_, int64_t{16} << 20);
    const auto tier = OpenTier(options, &files_);
    Status status;
    int64_t written = 0;
    for (; status.ok() && written < 3000; ++written) {
      Chain chain(name_space_, "tenant", static_cast<uint32_t>(written), 10);
      status = tier->Write(chain.Writes(0, 10, now_ + 3 * kDay));
      ASSERT_EQ(CountRight(*tier, chain, 0, 10) == 10, status.ok()) << written;
    }
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
    EXPECT_GT(written, 30);
    EXPECT_LT(written, 60);
    EXPECT_EQ(tier->Probe().code(), StatusCode::kResourceExhausted);
    // Every record of the chains that were reported is right, or has gone.
    for (int64_t i = 0; i + 1 < written; ++i) {
      Chain chain(name_space_, "tenant", static_cast<uint32_t>(i), 10);
      EXPECT_EQ(CountRight(*tier, chain, 0, 10), 10);
    }
    ASSERT_TRUE(tier->Drop(KvScope::Make(name_space_, "exact", "tenant")).ok());
    ASSERT_TRUE(tier->Probe().ok());
    ASSERT_TRUE(tier->Write(chain_.Writes(0, 40, now_ + 3 * kDay)).ok());
    EXPECT_EQ(CountRight(*tier, chain_, 0, 40), 40);
  }
  EXPECT_EQ(umount(mounted.c_str()), 0);
}

}  // namespace
}  // namespace deepinfer::test
