// DiskTier alone in its folder: what was written is there, also after a restart; what is wrong on the disk is a miss.
#include "cache/disk_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "disk_fixture.h"
#include "tests/app/temporary_folder.h"

namespace deepinfer::test {
namespace {

class DiskTierTest : public testing::Test {
 protected:
  std::unique_ptr<DiskTier> Open(int64_t budget_bytes = int64_t{4} << 20) {
    return OpenTier(SmallOptions(folder(), &now_, budget_bytes), &files_);
  }
  std::string folder() const { return (folder_.path() / "kv").string(); }

  TemporaryFolder folder_;
  FaultyFileSystem files_;
  int64_t now_ = kStart;
  KvNamespace name_space_ = SmallNamespace();
};

TEST_F(DiskTierTest, WhatIsWrittenIsFoundAndReadsBack) {
  const auto tier = Open();
  Chain chain(name_space_, "tenant", 1, 40);
  EXPECT_EQ(*tier->Find(chain.keys()), 0);
  ASSERT_TRUE(tier->Write(chain.Writes(0, 30, now_ + 3 * kDay)).ok());
  const std::vector<KvWrite> rings = {chain.Write(29, now_ + 3 * kDay, KvRecordKind::kRings)};
  ASSERT_TRUE(tier->Write(rings).ok());
  EXPECT_EQ(*tier->Find(chain.keys()), 30);
  EXPECT_TRUE(*tier->Has(KvRecordKind::kRings, chain.keys()[29]));
  EXPECT_FALSE(*tier->Has(KvRecordKind::kRings, chain.keys()[28]));
  EXPECT_EQ(CountRight(*tier, chain, 0, 40), 30);
  EXPECT_EQ(CountRight(*tier, chain, 29, 30, KvRecordKind::kRings), 1);
  const KvTierCounts counts = tier->counts();
  EXPECT_EQ(counts.records, 31);
  EXPECT_EQ(counts.written, 31);
  EXPECT_EQ(counts.hits, 31);
  EXPECT_EQ(counts.misses, 10);
  EXPECT_EQ(counts.corrupt, 0);
  EXPECT_EQ(counts.read_bytes, 30 * 4096 + 8192);
  EXPECT_EQ(tier->name(), "disk");
}

TEST_F(DiskTierTest, ARestartFindsEverything) {
  Chain chain(name_space_, "tenant", 1, 100);
  Chain other(name_space_, "other tenant", 1, 20);
  {
    const auto tier = Open();
    ASSERT_TRUE(tier->Write(chain.Writes(0, 100, now_ + 3 * kDay)).ok());
    ASSERT_TRUE(tier->Write(other.Writes(0, 20, now_ + 7 * kDay)).ok());
  }
  EXPECT_TRUE(FilesBelow(folder(), ".open").empty());
  EXPECT_EQ(FilesBelow(folder(), ".seg").size(), 3u);  // of 256 KiB at most
  const auto tier = Open();
  EXPECT_EQ(*tier->Find(chain.keys()), 100);
  EXPECT_EQ(CountRight(*tier, chain, 0, 100), 100);
  EXPECT_EQ(CountRight(*tier, other, 0, 20), 20);
  EXPECT_EQ(tier->counts().corrupt, 0);
}

TEST_F(DiskTierTest, FilesAndFoldersAreForTheirOwnerOnly) {
  const auto tier = Open();
  Chain chain(name_space_, "tenant", 1, 4);
  ASSERT_TRUE(tier->Write(chain.Writes(0, 4, now_ + 3 * kDay)).ok());
  int64_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder())) {
    const auto mode = entry.status().permissions() & std::filesystem::perms::all;
    EXPECT_EQ(static_cast<int>(mode), entry.is_directory() ? 0700 : 0600) << entry.path();
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 3);  // lock, namespace.json, one segment
}

}  // namespace
}  // namespace deepinfer::test
