// DiskTier alone in its folder: what was written is there, also after a restart; what is wrong on the disk is a miss.
#include "cache/disk_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
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

TEST_F(DiskTierTest, AnEmptyDescriptionOfTheNamespaceIsWrittenAgain) {
  Chain chain(name_space_, "tenant", 1, 4);
  ASSERT_TRUE(Open()->Write(chain.Writes(0, 4, now_ + 3 * kDay)).ok());
  const std::string path = folder() + "/" + DiskDirectory::FolderOf(name_space_.fingerprint) + "/namespace.json";
  const std::string whole = ReadFile(path);
  for (const bool as_folder : {false, true}) {
    std::filesystem::remove(path);
    if (as_folder) {
      std::filesystem::create_directory(path);
    } else {
      std::ofstream(path).close();
    }
    const auto tier = Open();
    ASSERT_TRUE(tier->Probe().ok());
    EXPECT_EQ(CountRight(*tier, chain, 0, 4), 4);
    if (!as_folder) {
      EXPECT_EQ(ReadFile(path), whole);
    }
  }
}

TEST_F(DiskTierTest, ARecordThatIsHereIsWrittenAgainOnlyForALongerClass) {
  const auto tier = Open();
  Chain chain(name_space_, "tenant", 1, 6);
  ASSERT_TRUE(tier->Write(chain.Writes(0, 6, now_ + 3 * kDay)).ok());
  ASSERT_TRUE(tier->Write(chain.Writes(0, 6, now_ + 3 * kDay)).ok());
  ASSERT_TRUE(tier->Write(chain.Writes(0, 6, now_ + kDay)).ok());
  ASSERT_TRUE(tier->Write(chain.Writes(0, 6, now_ + 4 * kDay)).ok());
  EXPECT_EQ(tier->counts().written, 6);
  ASSERT_TRUE(tier->Write(chain.Writes(0, 3, now_ + 7 * kDay)).ok());
  EXPECT_EQ(tier->counts().written, 9);
  EXPECT_EQ(tier->counts().records, 6);
  std::vector<KvWrite> twice = chain.Writes(3, 4, now_ + 9 * kDay);
  twice.push_back(twice[0]);
  ASSERT_TRUE(tier->Write(twice).ok());
  EXPECT_EQ(tier->counts().written, 10);
  EXPECT_EQ(CountRight(*tier, chain, 0, 6), 6);
}

TEST_F(DiskTierTest, ARecordLivesToItsSecond) {
  const auto tier = Open();
  Chain chain(name_space_, "tenant", 1, 2);
  const std::vector<KvWrite> writes = {chain.Write(0, now_ + 100), chain.Write(1, now_ + 200)};
  ASSERT_TRUE(tier->Write(writes).ok());
  now_ += 99;
  EXPECT_EQ(CountRight(*tier, chain, 1, 2), 1);
  now_ += 1;
  EXPECT_EQ(CountRight(*tier, chain, 0, 2), 1);
  EXPECT_EQ(tier->counts().expired, 1);
  // Each use gives it its 200 seconds anew.
  now_ += 199;
  EXPECT_EQ(CountRight(*tier, chain, 1, 2), 1);
  now_ += 200;
  EXPECT_EQ(CountRight(*tier, chain, 1, 2), 0);
  EXPECT_EQ(tier->counts().expired, 2);
  EXPECT_EQ(*tier->Find(chain.keys()), 0);
  // What has expired is not written at all.
  ASSERT_TRUE(tier->Write(std::vector<KvWrite>{chain.Write(0, now_)}).ok());
  EXPECT_EQ(tier->counts().written, 2);
}

TEST_F(DiskTierTest, ADroppedScopeIsGoneForGood) {
  Chain chain(name_space_, "tenant", 1, 80);
  Chain other(name_space_, "other", 1, 5);
  {
    const auto tier = Open();
    ASSERT_TRUE(tier->Write(chain.Writes(0, 80, now_ + 3 * kDay)).ok());
    ASSERT_TRUE(tier->Write(other.Writes(0, 5, now_ + 3 * kDay)).ok());
    ASSERT_TRUE(tier->Drop(chain.scope()).ok());
    EXPECT_EQ(*tier->Find(chain.keys()), 0);
    EXPECT_EQ(CountRight(*tier, chain, 0, 80), 0);
    EXPECT_EQ(CountRight(*tier, other, 0, 5), 5);
    ASSERT_TRUE(tier->Drop(chain.scope()).ok());
    for (const std::string& path : FilesBelow(folder())) EXPECT_EQ(path.find(ToHex(chain.scope().root, 8)), path.npos);
    // The tenant may come back.
    ASSERT_TRUE(tier->Write(chain.Writes(0, 3, now_ + 3 * kDay)).ok());
    EXPECT_EQ(*tier->Find(chain.keys()), 3);
    ASSERT_TRUE(tier->Drop(chain.scope()).ok());
  }
  const auto tier = Open();
  EXPECT_EQ(CountRight(*tier, chain, 0, 80), 0);
  EXPECT_EQ(CountRight(*tier, other, 0, 5), 5);
}

TEST_F(DiskTierTest, ManyScopesKeepFewFilesOpen) {
  const auto tier = Open(int64_t{16} << 20);
  std::vector<Chain> chains;
  for (int i = 0; i < 40; ++i) chains.emplace_back(name_space_, std::to_string(i), 1, 3);
  for (const Chain& chain : chains) ASSERT_TRUE(tier->Write(chain.Writes(0, 3, now_ + 3 * kDay)).ok());
  EXPECT_LE(FilesBelow(folder(), ".open").size(), 8u);
  for (Chain& chain : chains) EXPECT_EQ(CountRight(*tier, chain, 0, 3), 3);
  now_ += 600;
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_TRUE(FilesBelow(folder(), ".open").empty());
  for (Chain& chain : chains) EXPECT_EQ(CountRight(*tier, chain, 0, 3), 3);
}

TEST_F(DiskTierTest, TheBudgetHoldsAndTheNewestStays) {
  constexpr int64_t kBudget = int64_t{4} << 20;
  const auto tier = Open(kBudget);
  int64_t most = 0;
  files_.on_change = [&] { most = std::max(most, BytesBelow(folder())); };
  std::vector<Chain> chains;
  for (uint32_t i = 0; i < 60; ++i) {
    Chain& chain = chains.emplace_back(name_space_, "tenant", i, 40);
    ASSERT_TRUE(tier->Write(chain.Writes(0, 40, now_ + 3 * kDay)).ok());
    ASSERT_EQ(CountRight(*tier, chain, 0, 40), 40) << i;
    ASSERT_TRUE(tier->Maintain().ok());
    most = std::max(most, BytesBelow(folder()));
    now_ += 3600;
  }
  files_.on_change = nullptr;
  EXPECT_LE(most, kBudget);
  EXPECT_GT(most, kBudget * 9 / 10);
  const KvTierCounts counts = tier->counts();
  EXPECT_EQ(counts.written, 60 * 40);
  EXPECT_EQ(counts.evicted, counts.written - counts.records);
  EXPECT_GT(counts.records, 800);  // of 1024 that had room without headers, footers and space taken in advance
  EXPECT_LE(counts.bytes, kBudget);
  // The oldest went first.
  EXPECT_EQ(CountRight(*tier, chains[0], 0, 40), 0);
  EXPECT_EQ(CountRight(*tier, chains[59], 0, 40), 40);
}

TEST_F(DiskTierTest, TheNewestGoesWhenItLeavesNoRoomByItself) {
  constexpr int64_t kBudget = int64_t{2} << 20;
  Chain old(name_space_, "tenant", 1, 20);
  Chain large(name_space_, "tenant", 2, 600);
  Chain next(name_space_, "tenant", 3, 20);
  Open();  // makes the folder
  for (const bool damaged : {false, true}) {
    // The budget was larger once, or a file has become longer.
    const int64_t blocks = damaged ? 20 : 600;
    std::vector<std::string> segments;
    for (const auto& [chain, count] : {std::pair(&old, int64_t{20}), std::pair(&large, blocks)}) {
      segments = FilesBelow(folder(), ".seg");
      const auto tier = Open(int64_t{64} << 20);
      ASSERT_TRUE(tier->Write(chain->Writes(0, count, now_ + 3 * kDay)).ok());
      now_ += 60;
    }
    for (const std::string& path : FilesBelow(folder(), ".seg")) {
      const bool newest = std::ranges::find(segments, path) == segments.end();
      if (newest && damaged) std::filesystem::resize_file(path, 3 << 20);
      EXPECT_EQ(std::filesystem::file_size(path) > uint64_t{kBudget}, newest) << path;
    }
    const auto tier = Open(kBudget);
    ASSERT_TRUE(tier->Maintain().ok());
    EXPECT_LE(BytesBelow(folder()), kBudget) << damaged;
    ASSERT_TRUE(tier->Write(next.Writes(0, 20, now_ + 3 * kDay)).ok());
    EXPECT_EQ(CountRight(*tier, next, 0, 20), 20) << damaged;
    EXPECT_EQ(CountRight(*tier, large, 0, blocks), 0) << damaged;
    EXPECT_EQ(CountRight(*tier, old, 0, 20), 20) << damaged;  // older, and of no larger value
    ASSERT_TRUE(tier->Drop(old.scope()).ok());
  }
}

TEST_F(DiskTierTest, NothingGoesInVain) {
  constexpr int64_t kBudget = int64_t{2} << 20;
  std::vector<Chain> chains;
  for (uint32_t i = 0; i < 4; ++i) chains.emplace_back(name_space_, "tenant", i, 20);
  for (size_t i = 0; i < 3; ++i) {  // a sealed segment each
    ASSERT_TRUE(Open(kBudget)->Write(chains[i].Writes(0, 20, now_ + 3 * kDay)).ok());
    now_ += 60;
  }
  const auto tier = Open(kBudget);
  const std::string strange = folder() + "/backup.tar";
  std::ofstream(strange).put(0);
  std::filesystem::resize_file(strange, kBudget + 1);
  ASSERT_TRUE(tier->Maintain().ok());
  ASSERT_TRUE(tier->Write(chains[3].Writes(0, 20, now_ + 3 * kDay)).ok());  // dropped, and counted
  EXPECT_EQ(CountRight(*tier, chains[3], 0, 20), 0);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(CountRight(*tier, chains[i], 0, 20), 20) << i;
  EXPECT_TRUE(std::filesystem::exists(strange));

  std::filesystem::remove(strange);
  ASSERT_TRUE(tier->Write(chains[3].Writes(0, 20, now_ + 3 * kDay)).ok());
  EXPECT_EQ(CountRight(*tier, chains[3], 0, 20), 20);
}

TEST_F(DiskTierTest, WhatIsReadOutlivesWhatIsNot) {
  const auto tier = Open();
  Chain hot(name_space_, "tenant", 1000, 40);
  ASSERT_TRUE(tier->Write(hot.Writes(0, 40, now_ + 3 * kDay)).ok());
  for (uint32_t i = 0; i < 60; ++i) {
    Chain chain(name_space_, "tenant", i, 40);
    ASSERT_TRUE(tier->Write(chain.Writes(0, 40, now_ + 3 * kDay)).ok());
    ASSERT_EQ(CountRight(*tier, hot, 0, 40), 40) << i;
    now_ += 600;
  }
  EXPECT_GT(tier->counts().evicted, 1000);
}

TEST_F(DiskTierTest, EncryptedRecordsNeedTheSecret) {
  KvKey secret;
  secret.bytes.fill(9);
  Chain chain(name_space_, "tenant", 1, 20);
  const DiskTierOptions options = SmallOptions(folder(), &now_);
  {
    const auto tier = OpenTier(options, &files_, name_space_, secret);
    ASSERT_TRUE(tier->Write(chain.Writes(0, 20, now_ + 3 * kDay)).ok());
    EXPECT_EQ(CountRight(*tier, chain, 0, 20), 20);
  }
  for (const std::string& path : FilesBelow(folder(), ".seg")) {
    const std::vector<uint8_t> payload = PayloadOf(chain.keys()[3], KvRecordKind::kBlock, 64);
    EXPECT_EQ(ReadFile(path).find(std::string(payload.begin(), payload.end())), std::string::npos);
  }
  {
    const auto tier = OpenTier(options, &files_, name_space_, secret);
    EXPECT_EQ(CountRight(*tier, chain, 0, 20), 20);
  }
  const auto tier = OpenTier(options, &files_, name_space_, std::nullopt);
  EXPECT_EQ(CountRight(*tier, chain, 0, 20), 0);
}

TEST_F(DiskTierTest, SmallBudgetsAndBadOptionsAreRefused) {
  const KvRecordCodec codec(name_space_, std::nullopt);
  DiskTierOptions options = SmallOptions(folder(), &now_, 4096);
  const Result<std::unique_ptr<DiskTier>> tier = DiskTier::Create(options, codec, &files_);
  EXPECT_EQ(tier.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(tier.status().message().find("4096"), std::string::npos);
  options = SmallOptions("", &now_);
  EXPECT_EQ(DiskTier::Create(options, codec, &files_).status().code(), StatusCode::kInvalidArgument);
  options = SmallOptions(folder(), &now_);
  options.clock = nullptr;
  EXPECT_EQ(DiskTier::Create(options, codec, &files_).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(DiskTierTest, MemoryIsPlanned) {
  const auto tier = Open(int64_t{64} << 20);
  const int64_t planned = tier->memory_bytes();
  EXPECT_GT(planned, 64 * 256 * 48);
  for (uint32_t i = 0; i < 20; ++i) {
    Chain chain(name_space_, "tenant", i, 100);
    ASSERT_TRUE(tier->Write(chain.Writes(0, 100, now_ + 3 * kDay)).ok());
  }
  EXPECT_EQ(tier->memory_bytes(), planned);
  EXPECT_LT(tier->index_bytes(), 2000 * 64);
}

}  // namespace
}  // namespace deepinfer::test
