// Whatever is wrong with the bytes on the disk is a miss, never an answer and never an error.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "cache/disk_tier.h"
#include "cache/segment_file.h"
#include "disk_fixture.h"
#include "tests/app/temporary_folder.h"

namespace deepinfer::test {
namespace {

class DiskDamageTest : public testing::Test {
 protected:
  /// A folder with two scopes, sealed: 60 blocks and 10 rings, and 20 blocks.
  void SetUp() override {
    const auto tier = Open();
    ASSERT_TRUE(tier->Write(chain_.Writes(0, 60, now_ + 3 * kDay)).ok());
    std::vector<KvWrite> rings;
    for (int64_t i = 0; i < 10; ++i) rings.push_back(chain_.Write(i, now_ + 3 * kDay, KvRecordKind::kRings));
    ASSERT_TRUE(tier->Write(rings).ok());
    ASSERT_TRUE(tier->Write(other_.Writes(0, 20, now_ + 3 * kDay)).ok());
  }

  std::unique_ptr<DiskTier> Open() { return OpenTier(SmallOptions(folder(), &now_), &files_); }
  std::string folder() const { return (folder_.path() / "kv").string(); }

  /// Everything that is found is right; how much it is.
  int64_t CountAll(KvTier& tier) {
    const int64_t counts[] = {CountRight(tier, chain_, 0, 60), CountRight(tier, chain_, 0, 10, KvRecordKind::kRings),
                              CountRight(tier, other_, 0, 20)};
    if (std::ranges::find(counts, -1) != std::end(counts)) return -1;
    return counts[0] + counts[1] + counts[2];
  }

  TemporaryFolder folder_;
  FaultyFileSystem files_;
  int64_t now_ = kStart;
  KvNamespace name_space_ = SmallNamespace();
  Chain chain_{name_space_, "tenant", 1, 60};
  Chain other_{name_space_, "other", 1, 20};
};

TEST_F(DiskDamageTest, FlippedBytesOfRecordsAreMissesAndAreForgotten) {
  std::mt19937 random(1);
  const std::vector<std::string> paths = FilesBelow(folder(), ".seg");
  std::vector<std::string> good;
  for (const std::string& path : paths) good.push_back(ReadFile(path));
  for (int round = 0; round < 60; ++round) {
    int64_t flips = 0;
    for (size_t i = 0; i < paths.size(); ++i) {
      std::string bytes = good[i];
      for (int flip = 0; flip < 3; ++flip, ++flips)
        bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
      WriteFile(paths[i], bytes);
    }
    const auto tier = Open();
    const int64_t found = CountAll(*tier);
    ASSERT_GE(found, 0) << round;
    // A flip in the header of a file costs the file.
    ASSERT_TRUE(found >= 90 - flips || tier->counts().corrupt + tier->counts().foreign > 0) << round;
    // What was no good is asked for once.
    const int64_t corrupt = tier->counts().corrupt;
    ASSERT_EQ(CountAll(*tier), found);
    ASSERT_EQ(tier->counts().corrupt, corrupt);
    // It is written again, and then it is there.
    ASSERT_TRUE(tier->Write(chain_.Writes(0, 60, now_ + 3 * kDay)).ok());
    ASSERT_EQ(CountRight(*tier, chain_, 0, 60), 60);
    // Only the damaged files are there in the next round.
    for (const KvScope& scope : {chain_.scope(), other_.scope()}) ASSERT_TRUE(tier->Drop(scope).ok());
    for (const std::string& path : paths) {
      std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    }
  }
}

TEST_F(DiskDamageTest, BytesFlippedUnderAnOpenTierAreMisses) {
  const auto tier = Open();
  ASSERT_EQ(CountAll(*tier), 90);
  for (const std::string& path : FilesBelow(folder(), ".seg")) {
    std::string bytes = ReadFile(path);
    for (size_t at = 4096 + 1000; at < bytes.size(); at += 4096) bytes[at] ^= 1;
    WriteFile(path, bytes);
  }
  // A byte of every 4096: records of two pages are hit twice, footers do not count now.
  EXPECT_EQ(CountAll(*tier), 0);
  EXPECT_EQ(tier->counts().corrupt, 90);
  EXPECT_EQ(tier->counts().records, 0);
}

TEST_F(DiskDamageTest, FilesCutAnywhereServeTheirFront) {
  std::mt19937 random(2);
  const std::vector<std::string> paths = FilesBelow(folder(), ".seg");
  std::vector<std::string> good;
  for (const std::string& path : paths) good.push_back(ReadFile(path));
  for (int round = 0; round < 60; ++round) {
    for (size_t i = 0; i < paths.size(); ++i) WriteFile(paths[i], good[i].substr(0, random() % good[i].size()));
    const auto tier = Open();
    const int64_t found = CountAll(*tier);
    ASSERT_GE(found, 0) << round;
    ASSERT_LT(found, 90);
  }
  // Also under an open tier.
  for (size_t i = 0; i < paths.size(); ++i) WriteFile(paths[i], good[i]);
  const auto tier = Open();
  for (const std::string& path : paths) std::filesystem::resize_file(path, 4096 + 10 * 4096 + 5);
  const int64_t found = CountAll(*tier);
  EXPECT_GE(found, 20);
  EXPECT_LT(found, 90);
}

TEST_F(DiskDamageTest, ShortReadsAreMisses) {
  const auto tier = Open();
  files_.short_reads = 1;
  const int64_t found = CountRight(*tier, chain_, 0, 60);
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 60);
}

TEST_F(DiskDamageTest, FilesOfAnotherPlaceAreLeftAlone) {
  // Files of two scopes are swapped, a third has the name of another day.
  std::vector<std::string> paths = FilesBelow(folder(), ".seg");
  ASSERT_GE(paths.size(), 3u);
  const std::string first = ReadFile(paths.front());
  const std::string last = ReadFile(paths.back());
  WriteFile(paths.front(), last);
  WriteFile(paths.back(), first);
  const std::filesystem::path middle = paths[1];
  std::string name = middle.filename().string();
  name[4] = name[4] == '9' ? '8' : '9';
  std::filesystem::rename(middle, middle.parent_path() / name);
  const auto tier = Open();
  EXPECT_EQ(tier->counts().foreign, 3);
  EXPECT_GE(CountAll(*tier), 0);
  EXPECT_EQ(tier->counts().corrupt, 0);
  now_ += 30 * kDay;
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_TRUE(std::filesystem::exists(paths.front()));
  EXPECT_TRUE(std::filesystem::exists(paths.back()));
  EXPECT_TRUE(std::filesystem::exists(middle.parent_path() / name));
}

TEST_F(DiskDamageTest, OtherVersionsAreLeftAlone) {
  const std::vector<std::string> paths = FilesBelow(folder(), ".seg");
  for (const std::string& path : paths) {
    std::string bytes = ReadFile(path);
    bytes[8] = 9;
    WriteFile(path, bytes);
  }
  const auto tier = Open();
  EXPECT_EQ(CountAll(*tier), 0);
  EXPECT_EQ(tier->counts().foreign, std::ssize(paths));
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_EQ(tier->counts().foreign, std::ssize(paths));  // counted once
  now_ += 30 * kDay;
  ASSERT_TRUE(tier->Maintain().ok());
  // Nor for space: they count against the budget, and new records find the rest.
  for (uint32_t i = 0; i < 40; ++i) {
    Chain chain(name_space_, "tenant", 100 + i, 40);
    ASSERT_TRUE(tier->Write(chain.Writes(0, 40, now_ + 3 * kDay)).ok());
    ASSERT_EQ(CountRight(*tier, chain, 0, 40), 40);
  }
  for (const std::string& path : paths) EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(DiskDamageTest, ANamespaceSeesOnlyItsOwn) {
  const KvNamespace another = SmallNamespace(R"({"model": "small, retrained"})");
  Chain chain(another, "tenant", 1, 20);
  const auto tier = OpenTier(SmallOptions(folder(), &now_), &files_, another);
  EXPECT_EQ(tier->counts().records, 0);
  EXPECT_GT(tier->counts().bytes, 90 * 4096);  // all namespaces share the budget
  ASSERT_TRUE(tier->Write(chain.Writes(0, 20, now_ + 3 * kDay)).ok());
  EXPECT_EQ(CountRight(*tier, chain, 0, 20), 20);
  EXPECT_EQ(CountRight(*tier, chain_, 0, 60), 0);
  const auto first = Open();
  EXPECT_EQ(CountAll(*first), 90);
  // A whole folder under a foreign name is no better.
  const std::string own = folder() + "/" + ToHex(name_space_.fingerprint, 8);
  const std::string foreign = folder() + "/" + ToHex(another.fingerprint, 8);
  std::filesystem::rename(own, folder() + "/aside");
  std::filesystem::rename(foreign, own);
  const auto third = Open();
  EXPECT_EQ(CountAll(*third), 0);
  EXPECT_GE(third->counts().foreign, 1);
}

TEST_F(DiskDamageTest, SegmentsOfOtherNamespacesMakeRoom) {
  const KvNamespace another = SmallNamespace("another");
  const auto tier = OpenTier(SmallOptions(folder(), &now_), &files_, another);
  now_ += kDay;
  for (uint32_t i = 0; i < 40; ++i) {
    Chain chain(another, "tenant", i, 40);
    ASSERT_TRUE(tier->Write(chain.Writes(0, 40, now_ + 3 * kDay)).ok());
    ASSERT_LE(BytesBelow(folder()), int64_t{4} << 20);
  }
  const auto first = Open();
  EXPECT_LT(first->counts().records, 90);
}

TEST_F(DiskDamageTest, StrangeFilesAreNobodysBusiness) {
  const std::string own = folder() + "/" + ToHex(name_space_.fingerprint, 8);
  const std::string scope = own + "/" + ToHex(chain_.scope().root, 8);
  std::filesystem::create_directory(folder() + "/lost+found");
  std::filesystem::create_directory(own + "/notes");
  std::filesystem::create_directory(scope + "/more");
  for (const std::string& path :
       {folder() + "/readme", own + "/readme", scope + "/readme", scope + "/20003-0123456789abcdef-1.tmp",
        scope + "/20003-0123456789ABCDEF-1.seg", scope + "/020003-0123456789abcdef-1.seg",
        scope + "/-1-0123456789abcdef-1.seg", scope + "/9223372036854775807-0123456789abcdef-1.seg",
        scope + "/9223372036854775807-0123456789abcdef-1.open", scope + "/20003-0123456789abcdef-99999999999.seg"}) {
    WriteFile(path, "not ours");
  }
  const auto tier = Open();
  EXPECT_EQ(CountAll(*tier), 90);
  EXPECT_EQ(tier->counts().foreign, 0);
  now_ += 30 * kDay;
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_EQ(CountAll(*tier), 0);
  EXPECT_TRUE(std::filesystem::exists(scope + "/20003-0123456789abcdef-1.tmp"));
  EXPECT_TRUE(std::filesystem::exists(scope + "/readme"));
  EXPECT_TRUE(FilesBelow(folder(), "-0.seg").empty());
}

TEST_F(DiskDamageTest, DaysOfNamesHaveAnEnd) {
  EXPECT_EQ(ParseFileName("1000000-0123456789abcdef-1.seg")->id.expiry_day, 1000000);
  EXPECT_FALSE(ParseFileName("1000001-0123456789abcdef-1.seg").has_value());
  EXPECT_FALSE(ParseFileName("9223372036854775807-0123456789abcdef-1.seg").has_value());
}

TEST_F(DiskDamageTest, SpecialFilesAndLinksAreIgnored) {
  const std::string own = folder() + "/" + ToHex(name_space_.fingerprint, 8);
  const std::string scope = own + "/" + ToHex(chain_.scope().root, 8);
  const std::string segment = FilesBelow(scope, ".seg").front();
  const std::string outside = (folder_.path() / "outside").string();
  std::filesystem::create_directory(outside);
  WriteFile(outside + "/20003-0123456789abcdef-1.seg", ReadFile(segment));
  ASSERT_EQ(mkfifo((scope + "/20003-0123456789abcdef-1.seg").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo((scope + "/20003-0123456789abcdef-2.open").c_str(), 0600), 0);
  std::filesystem::create_symlink(segment, scope + "/20003-0123456789abcdef-3.seg");
  std::filesystem::create_directory_symlink(outside, own + "/0123456789abcdef");
  std::filesystem::create_directory_symlink(folder(), folder() + "/0123456789abcdef");
  const auto tier = Open();
  EXPECT_EQ(CountAll(*tier), 90);
  EXPECT_EQ(tier->counts().bytes, BytesBelow(folder()));
  EXPECT_EQ(tier->counts().foreign, 0);
  now_ += 30 * kDay;
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_TRUE(FilesBelow(folder(), ".seg").empty());
  EXPECT_TRUE(std::filesystem::exists(scope + "/20003-0123456789abcdef-1.seg"));
  EXPECT_TRUE(std::filesystem::exists(outside + "/20003-0123456789abcdef-1.seg"));
}

TEST_F(DiskDamageTest, ANamespaceThatIsALinkIsNotWrittenTo) {
  const std::string own = folder() + "/" + ToHex(name_space_.fingerprint, 8);
  const std::string outside = (folder_.path() / "outside").string();
  std::filesystem::rename(own, outside);
  std::filesystem::create_directory_symlink(outside, own);
  const std::vector<std::string> before = FilesBelow(outside);
  {
    const auto tier = DiskTier::Create(SmallOptions(folder(), &now_), KvRecordCodec(name_space_, {}), &files_).value();
    EXPECT_EQ(tier->Probe().code(), StatusCode::kIo);
    EXPECT_FALSE(tier->Write(other_.Writes(0, 20, now_ + 5 * kDay)).ok());
    EXPECT_EQ(FilesBelow(outside), before);
    std::filesystem::remove(own);
    std::filesystem::rename(outside, own);
    ASSERT_TRUE(tier->Probe().ok());
    EXPECT_EQ(CountAll(*tier), 90);
  }
  // The folder itself may be a link: its user has named it.
  std::filesystem::rename(folder(), outside);
  std::filesystem::create_directory_symlink(outside, folder());
  const auto tier = Open();
  EXPECT_EQ(CountAll(*tier), 90);
}

TEST_F(DiskDamageTest, FilesThatVanishAreMisses) {
  const auto tier = Open();
  const std::vector<std::string> paths = FilesBelow(folder(), ".seg");
  for (const std::string& path : paths) std::filesystem::remove(path);
  EXPECT_EQ(CountAll(*tier), 0);
  EXPECT_EQ(tier->counts().corrupt, 0);
  // The whole folder too, with its lock.
  std::filesystem::remove_all(folder());
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_EQ(tier->counts().records, 0);
  ASSERT_TRUE(tier->Write(chain_.Writes(0, 60, now_ + 3 * kDay)).ok());
  EXPECT_EQ(CountRight(*tier, chain_, 0, 60), 60);
  std::filesystem::remove_all(folder());
  ASSERT_TRUE(tier->Write(other_.Writes(0, 20, now_ + 3 * kDay)).ok());
  EXPECT_EQ(CountRight(*tier, other_, 0, 20), 20);
}

}  // namespace
}  // namespace deepinfer::test
