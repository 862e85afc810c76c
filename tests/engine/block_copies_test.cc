// KV blocks between a device and the tiers, one task of the device's thread at a time.
#include "engine/block_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <future>
#include <numeric>

#include "../cache/memory_tier.h"
#include "cache/kv_pool.h"
#include "device_ops.h"

namespace deepinfer::test {
namespace {

constexpr int64_t kBlockBytes = 1024;
constexpr int64_t kBlocks = 8;
constexpr double kLong = 60;  // seconds; reached only by a test that fails

/// The device's thread, as far as a test lets it go.
class Tasks {
 public:
  void Post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }
  /// Waits for one and runs it.
  void RunNext() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !tasks_.empty(); });
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
};

class BlockCopiesTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<DeviceMemory> pool = ops_->Allocate(kBlocks * kBlockBytes);
    ASSERT_TRUE(pool.ok());
    pool_ = std::move(*pool);
    auto copies = BlockCopies::Create(*ops_, 4 * kBlockBytes,
                                      [this](std::function<void()> task) { tasks_.Post(std::move(task)); });
    ASSERT_TRUE(copies.ok());
    copies_ = std::move(*copies);
    MakeStore(TierStoreOptions());
  }

  void MakeStore(const TierStoreOptions& options) {
    std::vector<std::unique_ptr<KvTier>> tiers;
    tiers.push_back(std::make_unique<MemoryTier>("disk", name_space_, records_));
    store_ = std::make_unique<TierStore>(std::move(tiers), options);
  }

  uint8_t* block(int64_t at) const { return pool_.data() + at * kBlockBytes; }
  void Fill(int64_t at, uint8_t value) {
    const std::vector<uint8_t> bytes(kBlockBytes, value);
    ops_->CopyIn(bytes.data(), block(at), kBlockBytes);
  }
  std::vector<uint8_t> Bytes(int64_t at) {
    std::vector<uint8_t> bytes(kBlockBytes);
    ops_->CopyOut(block(at), bytes.data(), kBlockBytes);
    return bytes;
  }

  /// The blocks first .. last of a prefix, which lie in these of the pool.
  OutgoingRecords Records(int64_t first, std::vector<int64_t> places, std::shared_ptr<bool> refused) {
    OutgoingRecords records;
    records.refused = std::move(refused);
    records.lost = [this] { ++lost_; };
    for (const int64_t place : places) {
      records.blocks.push_back(Write(first, {block(place), kBlockBytes}));
      records.ids.insert(records.ids.end(), ids_.begin() + first * kKvBlockTokens,
                         ids_.begin() + (first + 1) * kKvBlockTokens);
      ++first;
    }
    return records;
  }
  KvWrite Write(int64_t at, std::span<const uint8_t> payload) {
    const auto place = static_cast<size_t>(at);
    return {KvRecordKind::kBlock, scope_, keys_[place], at == 0 ? scope_.root : keys_[place - 1],
            at * kKvBlockTokens,  {},     payload,      2'000'000'000};
  }
  KvRead Read(int64_t at, uint8_t* to) {
    const KvWrite write = Write(at, {});
    KvRead read;
    read.key = write.key;
    read.parent = write.parent;
    read.first_token = write.first_token;
    read.ids = std::span(ids_).subspan(static_cast<size_t>(write.first_token), static_cast<size_t>(kKvBlockTokens));
    read.payload = {to, kBlockBytes};
    return read;
  }
  /// What the tier has of a block; empty: nothing.
  std::vector<uint8_t> Kept(int64_t at) {
    EXPECT_TRUE(store_->Flush(kLong));
    std::vector<uint8_t> payload(kBlockBytes);
    KvRead read = Read(at, payload.data());
    MemoryTier tier("disk", name_space_, records_);
    EXPECT_TRUE(tier.Read({&read, 1}).ok());
    return read.found ? payload : std::vector<uint8_t>();
  }

  std::shared_ptr<std::atomic<bool>> broken_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<Ops> ops_ = MakeDeviceOps(broken_);
  DeviceMemory pool_;
  KvNamespace name_space_ = KvNamespace::Make("block copies", kBlockBytes, 64);
  KvScope scope_ = KvScope::Make(name_space_, "exact", "");
  std::vector<int32_t> ids_ = [] {
    std::vector<int32_t> ids(static_cast<size_t>(kBlocks * kKvBlockTokens));
    std::iota(ids.begin(), ids.end(), 5);
    return ids;
  }();
  std::vector<KvKey> keys_ = [this] {
    std::vector<KvKey> keys;
    ExtendKeys(scope_.root, ids_, kKvBlockTokens, &keys);
    return keys;
  }();
  std::shared_ptr<MemoryRecords> records_ = std::make_shared<MemoryRecords>();
  int lost_ = 0;
  Tasks tasks_;
  std::unique_ptr<BlockCopies> copies_;
  std::unique_ptr<TierStore> store_;  // behind what it lands with
};

TEST_F(BlockCopiesTest, WhatIsKeptIsWhatTheBlockHeldThen) {
  Fill(3, 1);
  copies_->Keep(Records(0, {3}, std::make_shared<bool>(false)), *store_);
  // The block is evicted, and a fetch takes it.
  uint8_t* const memory = copies_->Take();
  std::fill_n(memory, kBlockBytes, uint8_t{2});
  bool landed = false;
  copies_->Land(memory, {{memory, block(3), kBlockBytes}}, [&](bool all) { landed = all; });
  EXPECT_FALSE(landed);
  tasks_.RunNext();
  tasks_.RunNext();
  EXPECT_TRUE(landed);
  EXPECT_EQ(Bytes(3), std::vector<uint8_t>(kBlockBytes, 2));
  EXPECT_EQ(Kept(0), std::vector<uint8_t>(kBlockBytes, 1));
  EXPECT_EQ(lost_, 0);
}

TEST_F(BlockCopiesTest, FetchedBlocksArriveWhenTheyHaveLanded) {
  for (int64_t i = 0; i < 6; ++i) Fill(i, static_cast<uint8_t>(10 + i));
  const auto refused = std::make_shared<bool>(false);
  copies_->Keep(Records(0, {0, 1, 2, 3}, refused), *store_);
  copies_->Keep(Records(4, {4, 5}, refused), *store_);
  tasks_.RunNext();
  tasks_.RunNext();
  ASSERT_TRUE(store_->Flush(kLong));
  for (int64_t i = 0; i < kBlocks; ++i) Fill(i, 0);
  TierStoreOptions options;
  options.block_bytes = kBlockBytes;
  options.chunk_bytes = 2 * kBlockBytes;
  options.landing = copies_.get();
  MakeStore(options);
  std::mutex mutex;
  std::condition_variable changed;
  int news = 0;
  const auto fetch = store_->Locate(scope_, {keys_.begin(), keys_.begin() + 7}, 0, -1, [&] {
    const std::lock_guard lock(mutex);
    ++news;
    changed.notify_all();
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return news == 1; });
  }
  EXPECT_EQ(fetch->answer().blocks, 6);
  // Backwards in the pool, and one more than there are.
  std::vector<KvRead> reads;
  for (int64_t i = 0; i < 7; ++i) reads.push_back(Read(i, block(7 - i)));
  store_->Read(fetch, std::move(reads), {});
  // The fetch goes on by itself to its end, but for what only the device's thread can do. Its four chunks fit.
  records_->WaitUntil([&] { return records_->reads >= 4; });
  EXPECT_EQ(fetch->arrived_blocks(), 0);
  EXPECT_FALSE(fetch->finished());
  while (!fetch->finished()) tasks_.RunNext();
  EXPECT_EQ(fetch->arrived_blocks(), 6);
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(Bytes(7 - i), std::vector<uint8_t>(kBlockBytes, static_cast<uint8_t>(10 + i))) << i;
  }
  EXPECT_EQ(Bytes(1), std::vector<uint8_t>(kBlockBytes, 0));
}

TEST_F(BlockCopiesTest, AFetchWaitsForMemoryThatOthersStillLand) {
  std::vector<uint8_t*> taken;
  for (int i = 0; i < BlockCopies::kLandingBuffers; ++i) taken.push_back(copies_->Take());
  auto next = std::async(std::launch::async, [&] { return copies_->Take(); });
  copies_->Land(taken[2], {}, [](bool) {});
  tasks_.RunNext();
  EXPECT_EQ(next.get(), taken[2]);
}

TEST_F(BlockCopiesTest, NothingOfAPathIsKeptBehindWhatWasRefused) {
  TierStoreOptions options;
  options.queue_bytes = 1;
  MakeStore(options);
  const auto refused = std::make_shared<bool>(false);
  copies_->Keep(Records(0, {0}, refused), *store_);
  copies_->Keep(Records(1, {1, 2}, refused), *store_);
  tasks_.RunNext();
  tasks_.RunNext();
  EXPECT_EQ(lost_, 2);
  EXPECT_EQ(store_->report()[0].dropped, 1);  // the second was not even offered
}

TEST_F(BlockCopiesTest, ABrokenDeviceKeepsNothingAndLandsNothing) {
  std::vector<std::string> failures;
  copies_->on_failure = [&](const Status& cause) { failures.push_back(cause.message()); };
  *broken_ = true;
  copies_->Keep(Records(0, {0}, std::make_shared<bool>(false)), *store_);
  uint8_t* const memory = copies_->Take();
  bool landed = true;
  copies_->Land(memory, {{memory, block(3), kBlockBytes}}, [&](bool all) { landed = all; });
  tasks_.RunNext();
  tasks_.RunNext();
  EXPECT_EQ(lost_, 1);
  EXPECT_EQ(Kept(0), std::vector<uint8_t>());
  EXPECT_FALSE(landed);
  EXPECT_EQ(failures, std::vector<std::string>(2, "the device is broken"));
}

TEST_F(BlockCopiesTest, WhenItClosesWhatWasHandedOverIsStillDone) {
  Fill(0, 7);
  copies_->Keep(Records(0, {0}, std::make_shared<bool>(false)), *store_);
  uint8_t* const memory = copies_->Take();
  for (int i = 1; i < BlockCopies::kLandingBuffers; ++i) copies_->Take();
  auto waiting = std::async(std::launch::async, [&] { return copies_->Take(); });
  copies_->Close();
  EXPECT_EQ(waiting.get(), nullptr);
  bool landed = true;
  copies_->Land(memory, {{memory, block(3), kBlockBytes}}, [&](bool all) { landed = all; });
  EXPECT_FALSE(landed);
  EXPECT_EQ(copies_->Take(), nullptr);
  EXPECT_EQ(copies_->Wait(0), 1);
  tasks_.RunNext();
  EXPECT_EQ(copies_->Wait(kLong), 0);
  EXPECT_EQ(Kept(0), std::vector<uint8_t>(kBlockBytes, 7));
}

}  // namespace
}  // namespace deepinfer::test
