// What a TierStore finds and reads: prefixes over several tiers, holes, failures, and fetches that are ended.
#include "cache/kv_fetch.h"

#include <thread>

#include "tests/cache/tier_store_fixture.h"

namespace deepinfer {
namespace {

using test::MemoryRecords;
using KvFetchTest = TierStoreTest;

TEST_F(KvFetchTest, APrefixMayBeginInOneTierAndGoOnInAnother) {
  const auto far = std::make_shared<MemoryRecords>();
  const std::vector<SampleRecord> chain = Chain(1, 8);
  const std::span<const SampleRecord> all = chain;
  Keep(host_, all.first(2));
  Keep(disk_, all.subspan(2, 3));
  Keep(far, all.subspan(5, 1));
  Keep(host_, all.subspan(6, 1));
  Open(Options(), Tier("host", host_), Tier("disk", disk_), std::make_unique<FarTier>("redis", name_space_, far));
  Fetched fetched;
  Locate(chain, &fetched);
  EXPECT_EQ(fetched.fetch->answer().blocks, 7);
  EXPECT_EQ(fetched.fetch->answer().by_tier, (std::vector<int64_t>{3, 3, 1}));
  EXPECT_EQ(fetched.fetch->answer().rings, -1);
  Read(all.first(7), &fetched);
  fetched.WaitUntilFinished();
  EXPECT_EQ(TiersOf(*fetched.fetch), (std::vector<uint8_t>{0, 0, 1, 1, 1, 2, 0}));
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(fetched.payloads[i], chain[i].payload) << i;
  // The host has learned them.
  EXPECT_EQ(host_->Count(KvRecordKind::kBlock), 7);
  for (const SampleRecord& record : all.first(7)) EXPECT_TRUE(Holds(host_, record));
}

TEST_F(KvFetchTest, AHoleEndsTheFetchWithWhatIsContiguous) {
  for (const int64_t blocks_of_chunk : {1, 2, 8}) {
    const auto records = std::make_shared<MemoryRecords>();
    const std::vector<SampleRecord> chain = Chain(1, 6);
    Keep(records, chain);
    TierStoreOptions options = Options();
    options.chunk_bytes = blocks_of_chunk * kBlockBytes;
    Open(options, Tier("disk", records));
    Fetched fetched;
    Locate(chain, &fetched);
    EXPECT_EQ(fetched.fetch->answer().blocks, 6);
    Forget(records.get(), chain[3].key);  // evicted meanwhile
    Read(chain, &fetched);
    fetched.WaitUntilFinished();
    EXPECT_EQ(fetched.fetch->arrived_blocks(), 3) << blocks_of_chunk;
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(fetched.payloads[i], chain[i].payload) << i;
    EXPECT_TRUE(store_->report()[0].up);
    store_.reset();
  }
}

TEST_F(KvFetchTest, AnotherTierFillsTheHole) {
  const std::vector<SampleRecord> chain = Chain(1, 4);
  Keep(host_, chain);
  Keep(disk_, chain);
  Open(Options(), Tier("host", host_), Tier("disk", disk_));
  Fetched fetched;
  Locate(chain, &fetched);
  Forget(host_.get(), chain[1].key);
  {
    const std::lock_guard lock(host_->mutex);
    std::vector<uint8_t>& record = host_->records.at({0, ToHex(chain[2].key)});
    record[record.size() / 4] ^= 1;
  }
  Read(chain, &fetched);
  fetched.WaitUntilFinished();
  EXPECT_EQ(TiersOf(*fetched.fetch), (std::vector<uint8_t>{0, 1, 1, 0}));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(fetched.payloads[i], chain[i].payload) << i;
  EXPECT_EQ(store_->report()[0].counts.corrupt, 1);
  for (const SampleRecord& record : chain) EXPECT_TRUE(Holds(host_, record));
}

TEST_F(KvFetchTest, ATierThatFailsToReadIsDownAndTheOthersAnswer) {
  const std::vector<SampleRecord> chain = Chain(1, 4);
  Keep(host_, std::span(chain).first(2));
  Keep(disk_, chain);
  Open(Options(), Tier("host", host_), Tier("disk", disk_));
  Fetched fetched;
  Locate(chain, &fetched);
  EXPECT_EQ(fetched.fetch->answer().blocks, 4);
  disk_->Set(&MemoryRecords::fail_reads, true);
  Read(chain, &fetched);
  fetched.WaitUntilFinished();
  EXPECT_EQ(TiersOf(*fetched.fetch), (std::vector<uint8_t>{0, 0}));
  EXPECT_FALSE(store_->report()[1].up);
  Fetched without;
  Locate(chain, &without);
  EXPECT_EQ(without.fetch->answer().blocks, 2);
  EXPECT_EQ(Failures(), 1);
  store_->Abandon(without.fetch);
  EXPECT_TRUE(without.fetch->finished());

  disk_->Set(&MemoryRecords::fail_reads, false);
  ASSERT_TRUE(store_->WaitUntilUp(kLong));
  disk_->Set(&MemoryRecords::fail_finds, true);
  Fetched unfound;
  Locate(chain, &unfound);
  EXPECT_EQ(unfound.fetch->answer().blocks, 2);
  EXPECT_FALSE(store_->report()[1].up);
  EXPECT_EQ(Failures(), 2);
}

TEST_F(KvFetchTest, TheDeepestRingsOfWhatWasFoundCome) {
  const std::vector<SampleRecord> chain = Chain(1, 6);
  const std::vector<SampleRecord> rings = {SampleRings(name_space_, chain[1]), SampleRings(name_space_, chain[2]),
                                           SampleRings(name_space_, chain[5])};
  Keep(disk_, std::span(chain).first(4));
  Keep(disk_, rings);
  Open(Options(), Tier("host", host_), Tier("disk", disk_));
  Fetched limited;
  Locate(chain, &limited, 1);
  EXPECT_EQ(limited.fetch->answer().rings, 1);
  // Those behind block 5 are of no use: blocks 4 and 5 are gone.
  Fetched fetched;
  Locate(chain, &fetched, 5);
  EXPECT_EQ(fetched.fetch->answer().blocks, 4);
  EXPECT_EQ(fetched.fetch->answer().rings, 2);
  Read(std::span(chain).first(4), &fetched, std::span(rings).subspan(1, 1));
  fetched.WaitUntilFinished();
  EXPECT_TRUE(fetched.fetch->arrived_rings());
  EXPECT_EQ(fetched.rings[0], rings[1].payload);
  EXPECT_EQ(host_->Count(KvRecordKind::kRings), 1);
}

TEST_F(KvFetchTest, MissingRingsAreNoHole) {
  const std::vector<SampleRecord> chain = Chain(1, 2);
  Keep(disk_, chain);
  Open(Options(), Tier("disk", disk_));
  Fetched fetched;
  Locate(chain, &fetched, 1);
  const std::vector<SampleRecord> rings = {SampleRings(name_space_, chain[1])};
  Read(chain, &fetched, rings);
  fetched.WaitUntilFinished();
  EXPECT_EQ(fetched.fetch->arrived_blocks(), 2);
  EXPECT_FALSE(fetched.fetch->arrived_rings());
}

TEST_F(KvFetchTest, StopBeforeReadingGivesThePayloadsBackAtOnce) {
  const std::vector<SampleRecord> chain = Chain(1, 2);
  Keep(disk_, chain);
  Open(Options(), Tier("disk", disk_));
  Fetched busy;
  Fetched stopped;
  Locate(chain, &busy);
  Locate(chain, &stopped);
  // The only thread is held by another fetch.
  disk_->Set(&MemoryRecords::hold_reads, true);
  Read(chain, &busy);
  disk_->WaitUntil([&] { return disk_->reads == 1; });
  Read(chain, &stopped);
  EXPECT_TRUE(stopped.fetch->Stop());
  for (std::vector<uint8_t>& payload : stopped.payloads) std::ranges::fill(payload, uint8_t{77});
  disk_->Set(&MemoryRecords::hold_reads, false);
  stopped.WaitUntilFinished();
  EXPECT_EQ(stopped.fetch->arrived_blocks(), 0);
  for (const std::vector<uint8_t>& payload : stopped.payloads)
    EXPECT_EQ(payload, std::vector<uint8_t>(payload.size(), 77));
  EXPECT_EQ(busy.fetch->arrived_blocks(), 2);
  const std::lock_guard lock(disk_->mutex);
  EXPECT_EQ(disk_->reads, 1);
}

TEST_F(KvFetchTest, StopWhileReadingEndsItAfterTheChunk) {
  const std::vector<SampleRecord> chain = Chain(1, 4);
  Keep(disk_, chain);
  TierStoreOptions options = Options();
  options.chunk_bytes = 2 * kBlockBytes;
  Open(options, Tier("disk", disk_));
  Fetched fetched;
  Locate(chain, &fetched, 3);
  disk_->Set(&MemoryRecords::hold_reads, true);
  const std::vector<SampleRecord> rings = {SampleRings(name_space_, chain[3])};
  Read(chain, &fetched, rings);
  disk_->WaitUntil([&] { return disk_->reads == 1; });
  EXPECT_FALSE(fetched.fetch->Stop());
  EXPECT_FALSE(fetched.fetch->finished());
  disk_->Set(&MemoryRecords::hold_reads, false);
  fetched.WaitUntilFinished();
  EXPECT_EQ(fetched.fetch->arrived_blocks(), 2);
  EXPECT_FALSE(fetched.fetch->arrived_rings());
  EXPECT_FALSE(fetched.fetch->Stop());
  const std::lock_guard lock(disk_->mutex);
  EXPECT_EQ(disk_->reads, 1);
}

TEST_F(KvFetchTest, ReadingIsEstimatedFromEarlierReads) {
  const std::vector<SampleRecord> chain = Chain(1, 6);
  Keep(disk_, chain);
  TierStoreOptions options = Options();
  options.stopwatch = [now = 0.0]() mutable { return now += 1; };  // a Read takes a second
  Open(options, Tier("disk", disk_));
  Fetched first;
  Locate(chain, &first);
  EXPECT_EQ(first.fetch->answer().seconds, 0);  // not known
  Read(std::span(chain).first(2), &first);
  first.WaitUntilFinished();
  EXPECT_EQ(store_->report()[0].bytes_per_second, 2 * kBlockBytes);
  EXPECT_EQ(store_->report()[0].read_seconds, 1);
  Fetched second;
  Locate(chain, &second);
  EXPECT_EQ(second.fetch->answer().seconds, 3);
}

TEST_F(KvFetchTest, ClosingEndsFetchesUnderWay) {
  const std::vector<SampleRecord> chain = Chain(1, 3);
  Keep(disk_, chain);
  Open(Options(), Tier("disk", disk_));
  Fetched fetched;
  Locate(chain, &fetched);
  disk_->Set(&MemoryRecords::hold_reads, true);
  Read(chain, &fetched);
  disk_->WaitUntil([&] { return disk_->reads == 1; });
  std::thread closing([&] { store_.reset(); });
  disk_->Set(&MemoryRecords::hold_reads, false);
  closing.join();
  EXPECT_TRUE(fetched.fetch->finished());
  EXPECT_EQ(fetched.fetch->arrived_blocks(), 3);
}

}  // namespace
}  // namespace deepinfer
