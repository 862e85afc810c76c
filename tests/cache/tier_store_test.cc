// What a TierStore keeps: its queues, tiers that fail, and how it closes.
#include "cache/tier_store.h"

#include <atomic>
#include <deque>
#include <thread>

#include "tests/cache/tier_store_fixture.h"

namespace deepinfer {
namespace {

using test::MemoryRecords;
using test::MemoryTier;

/// A MemoryTier that tells in which order it was written.
class OrderedTier : public MemoryTier {
 public:
  OrderedTier(std::string name, const KvNamespace& name_space, std::shared_ptr<MemoryRecords> records,
              std::vector<KvKey>* order)
      : MemoryTier(std::move(name), name_space, std::move(records)), order_(order) {}

  // By the tier's own thread; read after Flush.
  Status Write(std::span<const KvWrite> writes) override {
    const Status status = MemoryTier::Write(writes);
    for (const KvWrite& write : writes) order_->push_back(write.key);
    return status;
  }

 private:
  std::vector<KvKey>* order_;
};

TEST_F(TierStoreTest, EveryTierKeepsTheBatchesInTheirOrder) {
  std::vector<KvKey> host_order;
  std::vector<KvKey> disk_order;
  Open(Options(), std::make_unique<OrderedTier>("host", name_space_, host_, &host_order),
       std::make_unique<OrderedTier>("disk", name_space_, disk_, &disk_order));
  disk_->Set(&MemoryRecords::hold_writes, true);
  std::vector<KvKey> sent_order;
  std::deque<Sent> all;
  for (uint32_t text = 0; text < 20; ++text) {
    Sent& sent = all.emplace_back(Chain(text, 1 + text % 3));
    for (const SampleRecord& record : sent.records) sent_order.push_back(record.key);
    EXPECT_TRUE(Store(&sent));
  }
  EXPECT_EQ(all.front().now(), 0);  // the disk still needs it
  disk_->Set(&MemoryRecords::hold_writes, false);
  ASSERT_TRUE(store_->Flush(kLong));
  for (Sent& sent : all) EXPECT_EQ(sent.now(), 1);
  EXPECT_EQ(host_order, sent_order);
  EXPECT_EQ(disk_order, sent_order);
  for (const TierReport& report : store_->report()) {
    EXPECT_EQ(report.queued_bytes, 0) << report.name;
    EXPECT_EQ(report.dropped, 0) << report.name;
    EXPECT_EQ(report.counts.written, std::ssize(sent_order)) << report.name;
  }
  // The payloads were overwritten afterwards; what was kept is right.
  for (uint32_t text = 0; text < 20; ++text) {
    for (const SampleRecord& record : Chain(text, 1 + text % 3)) EXPECT_TRUE(Holds(disk_, record)) << text;
  }
}

TEST_F(TierStoreTest, AFullQueueDropsWhatItsTierCannotTakeAndCountsIt) {
  TierStoreOptions options = Options();
  options.queue_bytes = 3 * kBlockBytes;
  Open(options, Tier("disk", disk_));
  disk_->Set(&MemoryRecords::hold_writes, true);
  Sent first(Chain(1, 1));
  Sent second(Chain(2, 2));
  Sent third(Chain(3, 2));
  EXPECT_TRUE(Store(&first));
  disk_->WaitUntil([&] { return disk_->writes == 1; });
  EXPECT_TRUE(Store(&second));
  EXPECT_EQ(store_->report()[0].queued_bytes, 3 * kBlockBytes);  // what is being written counts
  EXPECT_FALSE(Store(&third));
  EXPECT_EQ(third.now(), 1);  // nobody has it
  EXPECT_EQ(store_->report()[0].dropped, 2);
  disk_->Set(&MemoryRecords::hold_writes, false);
  ASSERT_TRUE(store_->Flush(kLong));
  EXPECT_EQ(first.now(), 1);
  EXPECT_EQ(second.now(), 1);
  EXPECT_EQ(third.now(), 1);
  EXPECT_EQ(disk_->Count(KvRecordKind::kBlock), 3);
  EXPECT_TRUE(store_->report()[0].up);
  // There is room again.
  Sent fourth(Chain(3, 2));
  EXPECT_TRUE(Store(&fourth));
  ASSERT_TRUE(store_->Flush(kLong));
  EXPECT_EQ(disk_->Count(KvRecordKind::kBlock), 5);
}

// So slow that only what lifts the pace can end these tests.
TEST_F(TierStoreTest, WhileTheEngineComputesATierWritesNoFasterThanItMay) {
  TierStoreOptions options = Options();
  options.computing_bytes_per_second = 1;
  options.queue_bytes = 10 * kBlockBytes;
  Open(options, Tier("disk", disk_));
  store_->SetComputing(true);
  Sent first(Chain(1, 1));
  Sent second(Chain(2, 3));
  EXPECT_TRUE(Store(&first));
  ASSERT_TRUE(store_->Flush(kLong));
  EXPECT_TRUE(Store(&second));
  EXPECT_EQ(store_->report()[0].queued_bytes, 3 * kBlockBytes);
  EXPECT_EQ(disk_->Count(KvRecordKind::kBlock), 1);

  // More than half of the queue: one batch goes.
  Sent third(Chain(3, 3));
  EXPECT_TRUE(Store(&third));
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_EQ(third.now(), 0);

  store_->SetComputing(false);
  EXPECT_EQ(third.Wait(), 1);
  store_->SetComputing(true);
  Sent fourth(Chain(4, 2));
  EXPECT_TRUE(Store(&fourth));
  EXPECT_EQ(fourth.now(), 0);
  ASSERT_TRUE(store_->Flush(kLong));
  EXPECT_EQ(fourth.now(), 1);
  Sent fifth(Chain(5, 4));
  EXPECT_TRUE(Store(&fifth));
  EXPECT_EQ(fifth.now(), 0);
  store_.reset();
  EXPECT_EQ(fifth.now(), 1);
  EXPECT_EQ(disk_->Count(KvRecordKind::kBlock), 13);
}

TEST_F(TierStoreTest, ATierThatFailsIsLeftAloneAndProbedUntilItWorks) {
  Open(Options(), Tier("host", host_), Tier("disk", disk_));
  disk_->Set(&MemoryRecords::hold_writes, true);
  disk_->Set(&MemoryRecords::fail_writes, true);
  Sent failing(Chain(1, 2));
  Sent waiting(Chain(2, 3));
  EXPECT_TRUE(Store(&failing));
  disk_->WaitUntil([&] { return disk_->writes == 1; });
  EXPECT_TRUE(Store(&waiting));
  disk_->Set(&MemoryRecords::hold_writes, false);
  EXPECT_EQ(failing.Wait(), 1);
  EXPECT_EQ(waiting.Wait(), 1);
  ASSERT_TRUE(store_->Flush(kLong));
  const TierReport down = store_->report()[1];
  EXPECT_FALSE(down.up);
  EXPECT_FALSE(down.reason.empty());
  EXPECT_EQ(down.failures, 1);
  EXPECT_EQ(down.dropped, 5);
  EXPECT_EQ(down.queued_bytes, 0);
  EXPECT_TRUE(store_->report()[0].up);

  // Down: nothing reaches it but probes.
  Sent refused(Chain(3, 1));
  EXPECT_TRUE(Store(&refused));  // every tier that works has it
  EXPECT_EQ(refused.Wait(), 1);
  EXPECT_EQ(store_->report()[1].dropped, 6);
  const int probes = [&] {
    const std::lock_guard lock(disk_->mutex);
    return disk_->probes;
  }();
  disk_->WaitUntil([&] { return disk_->probes >= probes + 3; });
  EXPECT_FALSE(store_->report()[1].up);
  EXPECT_EQ(store_->report()[1].failures, 1);

  disk_->Set(&MemoryRecords::fail_writes, false);
  ASSERT_TRUE(store_->WaitUntilUp(kLong));
  EXPECT_EQ(store_->report()[1].reason, "");
  Sent again(Chain(1, 2));
  EXPECT_TRUE(Store(&again));
  ASSERT_TRUE(store_->Flush(kLong));
  EXPECT_EQ(disk_->Count(KvRecordKind::kBlock), 2);
  EXPECT_EQ(host_->Count(KvRecordKind::kBlock), 6);
}

TEST_F(TierStoreTest, ATierThatCannotBeOpenedIsDownAndTriedAgain) {
  disk_->fail_reads = true;
  Open(Options(), Tier("disk", disk_));
  EXPECT_FALSE(store_->report()[0].up);
  EXPECT_EQ(store_->report()[0].failures, 1);
  Sent sent(Chain(1, 1));
  EXPECT_TRUE(Store(&sent));
  EXPECT_EQ(sent.now(), 1);  // nobody has it
  disk_->Set(&MemoryRecords::fail_reads, false);
  ASSERT_TRUE(store_->WaitUntilUp(kLong));
  EXPECT_EQ(store_->report()[0].failures, 1);
}

TEST_F(TierStoreTest, ClosingWaitsForWrites) {
  Open(Options(), Tier("host", host_), Tier("disk", disk_));
  disk_->Set(&MemoryRecords::hold_writes, true);
  Sent first(Chain(1, 2));
  Sent second(Chain(2, 2));
  EXPECT_TRUE(Store(&first));
  EXPECT_TRUE(Store(&second));
  std::thread closing([&] { store_.reset(); });
  disk_->Set(&MemoryRecords::hold_writes, false);
  closing.join();
  EXPECT_EQ(first.now(), 1);
  EXPECT_EQ(second.now(), 1);
  EXPECT_EQ(disk_->Count(KvRecordKind::kBlock), 4);
}

TEST_F(TierStoreTest, ClosingDropsWhatATierTakesTooLongFor) {
  TierStoreOptions options = Options();
  options.closing_seconds = 0;
  Open(options, Tier("disk", disk_));
  disk_->Set(&MemoryRecords::hold_writes, true);
  Sent first(Chain(1, 1));
  Sent second(Chain(2, 1));
  EXPECT_TRUE(Store(&first));
  disk_->WaitUntil([&] { return disk_->writes == 1; });
  EXPECT_TRUE(Store(&second));
  std::thread closing([&] { store_.reset(); });
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_EQ(first.now(), 0);  // the tier still reads its payload
  disk_->Set(&MemoryRecords::hold_writes, false);
  closing.join();
  EXPECT_EQ(first.now(), 1);
  EXPECT_EQ(second.now(), 1);
  EXPECT_TRUE(Holds(disk_, Chain(1, 1).front()));
  EXPECT_EQ(disk_->Count(KvRecordKind::kBlock), 1);
}

// Everything at once, for ThreadSanitizer: writers, readers and faults on three tiers.
TEST_F(TierStoreTest, BatchesAreDoneOnceAndReadsAreRightWhileTiersFail) {
  const auto far = std::make_shared<MemoryRecords>();
  TierStoreOptions options = Options();
  options.fetch_threads = 2;
  options.chunk_bytes = 2 * kBlockBytes;
  options.queue_bytes = 40 * kBlockBytes;
  Open(options, Tier("host", host_), Tier("disk", disk_), std::make_unique<FarTier>("redis", name_space_, far));
  constexpr int kRounds = 60;
  constexpr uint32_t kTexts = 8;
  std::vector<std::deque<Sent>> sent(2);
  const auto write = [&](size_t who) {
    for (int round = 0; round < kRounds; ++round) {
      Store(
          &sent[who].emplace_back(Chain((static_cast<uint32_t>(round) * 3 + static_cast<uint32_t>(who)) % kTexts, 6)));
    }
  };
  std::atomic<int64_t> arrived = 0;
  const auto read = [&] {
    for (uint32_t round = 0; round < kRounds; ++round) {
      const std::vector<SampleRecord> chain = Chain(round % kTexts, 6);
      Fetched fetched;
      Locate(chain, &fetched);
      Read(std::span(chain).first(static_cast<size_t>(fetched.fetch->answer().blocks)), &fetched);
      if (round % 5 == 0) fetched.fetch->Stop();
      fetched.WaitUntilFinished();
      const auto good = static_cast<size_t>(fetched.fetch->arrived_blocks());
      for (size_t i = 0; i < good; ++i) ASSERT_EQ(fetched.payloads[i], chain[i].payload) << round;
      arrived += static_cast<int64_t>(good);
    }
  };
  std::thread writer([&] { write(0); });
  std::thread reader(read);
  std::thread faults([&] {
    for (int round = 0; round < kRounds; ++round) {
      const auto& records = round % 2 == 0 ? disk_ : far;
      records->Set(round % 3 == 0 ? &MemoryRecords::fail_reads : &MemoryRecords::fail_writes, true);
      Sent nudge(Chain(100, 1));
      Store(&nudge);
      nudge.Wait();
      records->Set(round % 3 == 0 ? &MemoryRecords::fail_reads : &MemoryRecords::fail_writes, false);
    }
  });
  write(1);
  writer.join();
  reader.join();
  faults.join();
  ASSERT_TRUE(store_->WaitUntilUp(kLong));
  store_.reset();
  for (std::deque<Sent>& batches : sent) {
    for (Sent& batch : batches) EXPECT_EQ(batch.now(), 1);
  }
  EXPECT_GT(arrived, 0);
}

}  // namespace
}  // namespace deepinfer
