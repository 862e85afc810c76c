// Days of a disk tier: what expires goes, what is used lives on.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "cache/disk_tier.h"
#include "disk_fixture.h"
#include "tests/app/temporary_folder.h"

namespace deepinfer::test {
namespace {

class DiskDaysTest : public testing::Test {
 protected:
  std::unique_ptr<DiskTier> Open(int64_t budget_bytes) {
    return OpenTier(SmallOptions(folder(), &now_, budget_bytes), &files_);
  }
  std::string folder() const { return (folder_.path() / "kv").string(); }

  TemporaryFolder folder_;
  FaultyFileSystem files_;
  int64_t now_ = kStart + 12 * 3600;
  KvNamespace name_space_ = SmallNamespace();
};

TEST_F(DiskDaysTest, ClassesExpireByThemselves) {
  const auto tier = Open(int64_t{16} << 20);
  Chain short_lived(name_space_, "tenant", 1, 50);
  Chain long_lived(name_space_, "tenant", 2, 50);
  ASSERT_TRUE(tier->Write(short_lived.Writes(0, 50, now_ + 3 * kDay)).ok());
  ASSERT_TRUE(tier->Write(long_lived.Writes(0, 50, now_ + 7 * kDay)).ok());
  const int64_t start = now_;
  int64_t short_left = 0, long_left = 0;
  for (; now_ < start + 9 * kDay; now_ += 3600) {
    ASSERT_TRUE(tier->Maintain().ok());
    const bool has_short = *tier->Has(KvRecordKind::kBlock, short_lived.keys()[0]);
    const bool has_long = *tier->Has(KvRecordKind::kBlock, long_lived.keys()[0]);
    if (has_short) short_left = now_ - start;
    if (has_long) long_left = now_ - start;
  }
  // Files go by the day.
  EXPECT_GE(short_left, 3 * kDay - 3600);
  EXPECT_LT(short_left, 4 * kDay);
  EXPECT_GE(long_left, 7 * kDay - 3600);
  EXPECT_LT(long_left, 8 * kDay);
  EXPECT_EQ(tier->counts().expired, 100);
  EXPECT_EQ(tier->counts().copied_forward, 0);
  EXPECT_EQ(tier->counts().records, 0);
  EXPECT_TRUE(FilesBelow(folder(), ".seg").empty());
  EXPECT_TRUE(FilesBelow(folder(), ".open").empty());
  EXPECT_LT(tier->counts().bytes, 4096);
}

TEST_F(DiskDaysTest, WhatIsUsedIsCopiedForwardAndTheRestGoes) {
  for (const bool encrypted : {false, true}) {
    std::optional<KvKey> secret;
    if (encrypted) secret = KvKey();
    const auto tier = OpenTier(SmallOptions(folder() + (encrypted ? "1" : "0"), &now_, int64_t{16} << 20), &files_,
                               name_space_, secret);
    Chain hot(name_space_, "tenant", 1, 60);
    Chain cold(name_space_, "tenant", 2, 60);
    ASSERT_TRUE(tier->Write(hot.Writes(0, 60, now_ + 3 * kDay)).ok());
    ASSERT_TRUE(tier->Write(cold.Writes(0, 60, now_ + 3 * kDay)).ok());
    ASSERT_TRUE(tier->Write(std::vector{hot.Write(59, now_ + 3 * kDay, KvRecordKind::kRings)}).ok());
    const int64_t start = now_;
    for (; now_ < start + 10 * kDay; now_ += 6 * 3600) {
      ASSERT_TRUE(tier->Maintain().ok());
      if ((now_ - start) % kDay == 0) {
        ASSERT_EQ(CountRight(*tier, hot, 0, 60), 60) << (now_ - start) / kDay;
        ASSERT_EQ(CountRight(*tier, hot, 59, 60, KvRecordKind::kRings), 1);
      }
    }
    EXPECT_EQ(CountRight(*tier, cold, 0, 60), 0);
    EXPECT_EQ(tier->counts().records, 61);
    // As rarely as it can be: once for each life of two to three days.
    EXPECT_GE(tier->counts().copied_forward, 3 * 61);
    EXPECT_LE(tier->counts().copied_forward, 9 * 61);
    EXPECT_EQ(tier->counts().corrupt, 0);
    // A life ends when nobody asks any more.
    const int64_t last = now_;
    for (; now_ < last + 5 * kDay; now_ += 6 * 3600) ASSERT_TRUE(tier->Maintain().ok());
    EXPECT_EQ(tier->counts().records, 0);
  }
}

TEST_F(DiskDaysTest, ADamagedRecordIsNotCopied) {
  const auto tier = Open(int64_t{16} << 20);
  Chain chain(name_space_, "tenant", 1, 20);
  ASSERT_TRUE(tier->Write(chain.Writes(0, 20, now_ + 3 * kDay)).ok());
  now_ += 600;
  ASSERT_TRUE(tier->Maintain().ok());  // seals it
  now_ += 2 * kDay + 12 * 3600;
  ASSERT_EQ(CountRight(*tier, chain, 0, 20), 20);
  const std::vector<std::string> paths = FilesBelow(folder(), ".seg");
  ASSERT_EQ(paths.size(), 1u);
  std::string bytes = ReadFile(paths[0]);
  bytes[4096 + 5 * 4096 + 500] ^= 1;
  WriteFile(paths[0], bytes);
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_EQ(tier->counts().copied_forward, 19);
  EXPECT_EQ(tier->counts().corrupt, 1);
  EXPECT_EQ(*tier->Find(chain.keys()), 5);
  now_ += 2 * kDay;
  ASSERT_TRUE(tier->Maintain().ok());
  EXPECT_EQ(CountRight(*tier, chain, 0, 20), 19);
}

// Three days of prompts on two processes' tiers, one of which restarts every few hours: classes, budget, copies.
TEST_F(DiskDaysTest, ThreeDaysOfTraffic) {
  constexpr int64_t kBudget = int64_t{8} << 20;
  std::unique_ptr<DiskTier> tiers[2] = {Open(kBudget), Open(kBudget)};
  std::mt19937 random(7);
  Chain system_prompt(name_space_, "everyone", 1, 20);
  ASSERT_TRUE(tiers[0]->Write(system_prompt.Writes(0, 20, now_ + kDay)).ok());
  int64_t most = 0, found = 0, asked = 0, copied = 0, evicted = 0;
  files_.on_change = [&] { most = std::max(most, BytesBelow(folder())); };
  const int64_t start = now_;
  for (int64_t step = 0; now_ < start + 3 * kDay; ++step, now_ += 600) {
    DiskTier& tier = *tiers[random() % 2];
    const auto seed = static_cast<uint32_t>(10 + step);
    const int64_t life = std::array<int64_t, 3>{6 * 3600, kDay, 3 * kDay}[random() % 3];
    Chain chain(name_space_, std::to_string(seed % 5), seed, 16);
    ASSERT_TRUE(tier.Write(chain.Writes(0, 16, now_ + life)).ok());
    for (const auto& each : tiers) ASSERT_TRUE(each->Maintain().ok());
    // Everyone uses the system prompt; old chats come back now and then.
    ASSERT_EQ(CountRight(*tiers[step % 2], system_prompt, 0, 20), 20) << step;
    const uint32_t old = 10 + static_cast<uint32_t>(random() % (step + 1));
    Chain again(name_space_, std::to_string(old % 5), old, 16);
    const int64_t count = CountRight(tier, again, 0, 16);
    ASSERT_GE(count, 0) << step;
    ++asked;
    found += count > 0 ? 1 : 0;
    if (step % 50 == 49) {
      copied += tiers[1]->counts().copied_forward;
      evicted += tiers[1]->counts().evicted;
      ASSERT_EQ(tiers[1]->counts().corrupt, 0);
      tiers[1] = nullptr;
      tiers[1] = Open(kBudget);
    }
  }
  files_.on_change = nullptr;
  copied += tiers[0]->counts().copied_forward;
  evicted += tiers[0]->counts().evicted;
  EXPECT_LE(most, kBudget + kBudget / 50);
  EXPECT_GT(most, kBudget * 8 / 10);
  EXPECT_GT(found, asked / 4);
  EXPECT_LT(found, asked);
  EXPECT_GE(copied, 20);
  EXPECT_GT(evicted, 0);
  EXPECT_GT(tiers[0]->counts().expired, 0);
  EXPECT_EQ(tiers[0]->counts().corrupt, 0);
  // Nothing that was not used outlives its class.
  now_ += 8 * kDay;
  for (const auto& each : tiers) ASSERT_TRUE(each->Maintain().ok());
  for (const auto& each : tiers) ASSERT_TRUE(each->Maintain().ok());
  EXPECT_EQ(tiers[0]->counts().records, 0);
  EXPECT_TRUE(FilesBelow(folder(), ".seg").empty());
}

}  // namespace
}  // namespace deepinfer::test
