#include "engine/sequence_cache.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine_fixture.h"

namespace deepinfer::test {
namespace {

constexpr int64_t kBlock = kKvBlockTokens;

KvManagerOptions Options() {
  KvManagerOptions options;
  options.blocks = 16;
  options.block_bytes = 64;
  options.snapshots = 12;
  options.snapshot_bytes = 64;
  options.snapshot_interval = 128;
  return options;
}

std::unique_ptr<KvManager> Make(const KvManagerOptions& options) {
  Result<std::unique_ptr<KvManager>> manager = KvManager::Create(options);
  EXPECT_TRUE(manager.ok()) << manager.status().message();
  return std::move(*manager);
}

/// Of a request in exact mode whose receptive field no prompt here fills: it resumes from snapshots only.
SequenceCache NewCache(const std::string& name_space = "exact:") {
  SequenceCache cache;
  cache.name_space = name_space;
  cache.settings.bounded = false;
  cache.settings.receptive_field = 100000;
  return cache;
}

std::vector<int32_t> Ids(int64_t count, int32_t text = 0) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 1000 * text);
  return ids;
}

bool Admit(KvManager& kv, std::span<const int32_t> ids, SequenceCache* cache, int64_t reserve = 0,
           bool use_hits = true) {
  return kv.Admit(ids, std::ssize(ids), use_hits, reserve, cache);
}

int64_t Available(const KvManager& kv) { return kv.blocks().free_count() + kv.tree().evictable_blocks(); }

void ExpectNothingHeld(KvManager& kv) {
  EXPECT_EQ(Available(kv), kv.blocks().block_count());
  kv.Clear();
  EXPECT_EQ(kv.tree().node_count(), 0);
  EXPECT_EQ(kv.blocks().free_count(), kv.blocks().block_count());
  EXPECT_EQ(kv.snapshots().free_count(), kv.snapshots().block_count());
}

TEST(KvManager, TakesBlocksForTheInputAndTheNextToken) {
  const auto kv = Make(Options());
  for (const auto& [tokens, blocks] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {63, 1}, {64, 2}, {127, 2}}) {
    SequenceCache cache = NewCache();
    const std::vector<int32_t> ids = Ids(tokens);
    ASSERT_TRUE(Admit(*kv, ids, &cache));
    EXPECT_EQ(std::ssize(cache.blocks), blocks) << tokens;
    EXPECT_EQ(kv->blocks().free_count(), 16 - blocks);
    EXPECT_TRUE(kv->Grow(blocks * kBlock, &cache));
    EXPECT_EQ(std::ssize(cache.blocks), blocks);
    EXPECT_TRUE(kv->Grow(blocks * kBlock + 1, &cache));
    EXPECT_EQ(std::ssize(cache.blocks), blocks + 1);
    kv->Release(ids, 0, &cache);
    ExpectNothingHeld(*kv);
  }
}

TEST(KvManager, GrowKeepsWhatItGotWhenThePoolEnds) {
  const auto kv = Make(Options());
  SequenceCache cache = NewCache();
  const std::vector<int32_t> ids = Ids(10);
  ASSERT_TRUE(Admit(*kv, ids, &cache));
  EXPECT_FALSE(kv->Grow(17 * kBlock, &cache));
  EXPECT_EQ(std::ssize(cache.blocks), 16);
  EXPECT_TRUE(kv->Grow(16 * kBlock, &cache));
  kv->Release(ids, 10, &cache);
  ExpectNothingHeld(*kv);
}

TEST(KvManager, RefusesWithoutRoomAndChangesNothing) {
  const auto kv = Make(Options());
  SequenceCache running = NewCache();
  const std::vector<int32_t> ids = Ids(12 * kBlock - 1);
  ASSERT_TRUE(Admit(*kv, ids, &running));
  kv->Publish(ids, 2 * kBlock, &running);
  const int64_t evictable = kv->tree().evictable_blocks();

  SequenceCache other = NewCache();
  const std::vector<int32_t> more = Ids(5 * kBlock - 1, 1);
  EXPECT_FALSE(Admit(*kv, more, &other));
  EXPECT_FALSE(Admit(*kv, std::span(more).first(4 * kBlock - 1), &other, 1));
  EXPECT_TRUE(other.blocks.empty());
  EXPECT_EQ(kv->blocks().free_count(), 4);
  EXPECT_EQ(kv->tree().evictable_blocks(), evictable);
  // Exactly what is left; and a common beginning of two blocks takes none.
  ASSERT_TRUE(Admit(*kv, std::span(more).first(4 * kBlock - 1), &other));
  kv->Release(more, 0, &other);
  std::vector<int32_t> sharing = Ids(6 * kBlock - 1);
  sharing[3 * kBlock] = 7;
  ASSERT_TRUE(Admit(*kv, sharing, &other));
  EXPECT_EQ(kv->blocks().free_count(), 0);
  kv->Release(sharing, 0, &other);
  kv->Release(ids, 12 * kBlock - 1, &running);
  ExpectNothingHeld(*kv);
}

TEST(KvManager, SharesPublishedPrefixes) {
  const auto kv = Make(Options());
  SequenceCache first = NewCache();
  const std::vector<int32_t> ids = Ids(200);
  ASSERT_TRUE(Admit(*kv, ids, &first));
  kv->Publish(ids, 130, &first);  // two full blocks
  EXPECT_EQ(kv->tree().node_count(), 2);

  SequenceCache second = NewCache();
  ASSERT_TRUE(Admit(*kv, ids, &second));
  EXPECT_EQ(second.replay.hit_tokens, 2 * kBlock);
  ASSERT_EQ(second.blocks.size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(second.blocks[i] == first.blocks[i], i < 2) << i;
  EXPECT_EQ(kv->blocks().reference_count(first.blocks[0]), 3);
  EXPECT_EQ(kv->blocks().free_count(), 16 - 6);

  // Both compute the third block; the tree keeps the one that came first, and the other one stays its owner's.
  kv->Publish(ids, 200, &second);
  kv->Publish(ids, 200, &first);
  EXPECT_EQ(kv->tree().node_count(), 3);
  EXPECT_EQ(kv->blocks().reference_count(second.blocks[2]), 2);
  EXPECT_EQ(kv->blocks().reference_count(first.blocks[2]), 1);
  kv->Release(ids, 200, &first);
  // Nothing that the second one uses can be evicted.
  EXPECT_EQ(kv->Clear(), 0);
  EXPECT_EQ(kv->blocks().reference_count(second.blocks[0]), 2);
  kv->Release(ids, 200, &second);
  ExpectNothingHeld(*kv);
}

TEST(KvManager, NamespacesShareNothing) {
  const auto kv = Make(Options());
  SequenceCache first = NewCache("exact:a");
  const std::vector<int32_t> ids = Ids(200);
  ASSERT_TRUE(Admit(*kv, ids, &first));
  kv->Release(ids, 200, &first);
  SequenceCache second = NewCache("exact:b");
  ASSERT_TRUE(Admit(*kv, ids, &second));
  EXPECT_EQ(second.replay.hit_tokens, 0);
  kv->Release(ids, 0, &second);
  ExpectNothingHeld(*kv);
}

TEST(KvManager, CachedBlocksMakeRoom) {
  const auto kv = Make(Options());
  SequenceCache cache = NewCache();
  const std::vector<int32_t> ids = Ids(16 * kBlock - 1);
  ASSERT_TRUE(Admit(*kv, ids, &cache));
  kv->Release(ids, 16 * kBlock - 1, &cache);
  EXPECT_EQ(kv->blocks().free_count(), 1);
  const std::vector<int32_t> other = Ids(10 * kBlock - 1, 50);
  ASSERT_TRUE(Admit(*kv, other, &cache));
  EXPECT_EQ(std::ssize(cache.blocks), 10);
  kv->Release(other, 0, &cache);
  ExpectNothingHeld(*kv);
}

TEST(KvManager, ASnapshotIsSeenWhenItsPositionWasComputed) {
  const auto kv = Make(Options());
  SequenceCache first = NewCache();
  const std::vector<int32_t> ids = Ids(200);
  ASSERT_TRUE(Admit(*kv, ids, &first));
  EXPECT_EQ(first.boundaries, std::vector<int64_t>({64, 128, 192}));
  uint8_t* const buffer = kv->SnapshotBuffer(2 * kBlock, &first);
  ASSERT_NE(buffer, nullptr);
  const auto resumes_at = [&] {
    SequenceCache cache = NewCache();
    EXPECT_TRUE(Admit(*kv, ids, &cache));
    const int64_t position = cache.replay.first_position;
    EXPECT_EQ(cache.rings, position > 0 ? buffer : nullptr);
    kv->Release(ids, 0, &cache);
    return position;
  };
  EXPECT_EQ(resumes_at(), 0);
  kv->Publish(ids, 2 * kBlock - 1, &first);
  EXPECT_EQ(resumes_at(), 0);
  kv->Publish(ids, 2 * kBlock, &first);
  EXPECT_EQ(resumes_at(), 2 * kBlock);
  kv->Release(ids, 200, &first);
  EXPECT_EQ(resumes_at(), 2 * kBlock);
  ExpectNothingHeld(*kv);
}

TEST(KvManager, ASnapshotOfAHitWaitsForItsRowsToo) {
  const auto kv = Make(Options());
  const std::vector<int32_t> ids = Ids(200);
  SequenceCache first = NewCache();
  ASSERT_TRUE(Admit(*kv, ids, &first));
  kv->Release(ids, 200, &first);  // three blocks without snapshots

  // Its blocks are in the tree from the start; its rings are not right before it comes there.
  SequenceCache second = NewCache();
  ASSERT_TRUE(Admit(*kv, ids, &second));
  ASSERT_EQ(second.published, 3);
  ASSERT_NE(kv->SnapshotBuffer(2 * kBlock, &second), nullptr);
  kv->Publish(ids, kBlock, &second);
  EXPECT_EQ(kv->tree().snapshot_count(), 0);
  kv->Publish(ids, 2 * kBlock, &second);
  EXPECT_EQ(kv->tree().snapshot_count(), 1);
  kv->Release(ids, 2 * kBlock, &second);
  ExpectNothingHeld(*kv);
}

TEST(KvManager, SnapshotsBeyondWhatWasComputedAreGivenBack) {
  const auto kv = Make(Options());
  SequenceCache cache = NewCache();
  const std::vector<int32_t> ids = Ids(200);
  ASSERT_TRUE(Admit(*kv, ids, &cache));
  ASSERT_NE(kv->SnapshotBuffer(kBlock, &cache), nullptr);
  ASSERT_NE(kv->SnapshotBuffer(3 * kBlock, &cache), nullptr);
  kv->Release(ids, 100, &cache);  // cancelled in the middle of the prefill
  EXPECT_EQ(kv->tree().snapshot_count(), 1);
  EXPECT_EQ(kv->snapshots().free_count(), 11);
  ExpectNothingHeld(*kv);
}

TEST(KvManager, ARestoredSnapshotStaysUntilItsStepWasRead) {
  KvManagerOptions options = Options();
  options.snapshots = 1;
  const auto kv = Make(options);
  const std::vector<int32_t> ids = Ids(100);
  SequenceCache first = NewCache();
  ASSERT_TRUE(Admit(*kv, ids, &first));
  ASSERT_NE(kv->SnapshotBuffer(kBlock, &first), nullptr);
  kv->Release(ids, 100, &first);

  SequenceCache second = NewCache();
  ASSERT_TRUE(Admit(*kv, ids, &second));
  ASSERT_EQ(second.replay.snapshot_position, kBlock);
  EXPECT_EQ(kv->SnapshotBuffer(2 * kBlock, &second), nullptr) << "the only one is being read";
  kv->ReleaseRestored(&second);
  EXPECT_EQ(second.rings, nullptr);
  EXPECT_NE(kv->SnapshotBuffer(2 * kBlock, &second), nullptr);
  kv->Release(ids, 100, &second);
  ExpectNothingHeld(*kv);
}

TEST(KvManager, RollingSnapshotsThatWereTakenStayBehind) {
  const auto kv = Make(Options());
  std::vector<int32_t> ids = Ids(100);
  SequenceCache cache = NewCache();
  ASSERT_TRUE(Admit(*kv, ids, &cache));
  const auto buffers = kv->TakeRollingBuffers(&cache);
  EXPECT_EQ(kv->snapshots().free_count(), 12 - kRollingSnapshots);
  ids = Ids(260);
  ASSERT_TRUE(kv->Grow(260, &cache));
  cache.rolling[0].position = 2 * kBlock;
  cache.rolling[1].position = 4 * kBlock;
  kv->Publish(ids, 260, &cache);
  EXPECT_EQ(kv->tree().snapshot_count(), 0) << "its owner may write it again";
  kv->Release(ids, 260, &cache);
  EXPECT_EQ(kv->tree().snapshot_count(), 2);
  EXPECT_EQ(kv->snapshots().free_count(), 10);

  ASSERT_TRUE(Admit(*kv, ids, &cache));
  EXPECT_EQ(cache.replay.first_position, 4 * kBlock);
  EXPECT_EQ(cache.rings, buffers[1]);
  kv->Release(ids, 260, &cache);
  ExpectNothingHeld(*kv);
}

TEST(KvManager, RowsThatMustBeComputedStillShareBlocks) {
  const auto kv = Make(Options());
  const std::vector<int32_t> ids = Ids(200);
  SequenceCache first = NewCache();
  ASSERT_TRUE(Admit(*kv, ids, &first));
  ASSERT_NE(kv->SnapshotBuffer(2 * kBlock, &first), nullptr);
  kv->Release(ids, 200, &first);
  SequenceCache second = NewCache();
  ASSERT_TRUE(Admit(*kv, ids, &second, 0, false));
  EXPECT_EQ(second.replay.first_position, 0);
  EXPECT_EQ(second.replay.hit_tokens, 3 * kBlock);
  EXPECT_EQ(second.rings, nullptr);
  EXPECT_EQ(kv->blocks().free_count(), 12);
  kv->Release(ids, 200, &second);
  ExpectNothingHeld(*kv);
}

TEST(KvManager, WithoutThePrefixCacheNothingStays) {
  KvManagerOptions options = Options();
  options.prefix_cache = false;
  const auto kv = Make(options);
  const std::vector<int32_t> ids = Ids(300);
  for (int round = 0; round < 2; ++round) {
    SequenceCache cache = NewCache();
    ASSERT_TRUE(Admit(*kv, ids, &cache));
    EXPECT_EQ(cache.replay.hit_tokens, 0);
    EXPECT_TRUE(cache.boundaries.empty());
    EXPECT_EQ(kv->SnapshotBuffer(128, &cache), nullptr);
    for (const uint8_t* buffer : kv->TakeRollingBuffers(&cache)) EXPECT_EQ(buffer, nullptr);
    kv->Publish(ids, 300, &cache);
    EXPECT_EQ(kv->tree().node_count(), 0);
    kv->Release(ids, 300, &cache);
    EXPECT_EQ(kv->blocks().free_count(), 16);
    EXPECT_EQ(kv->snapshots().free_count(), 12);
  }
}

// Random requests that grow, publish and end anywhere: every block and snapshot is held by somebody or free.
TEST(KvManager, RandomUse) {
  Random random(RunSeed("KvManager.RandomUse"));
  const auto kv = Make(Options());
  struct Running {
    std::vector<int32_t> ids;
    int64_t computed = 0;
    SequenceCache cache;
  };
  std::vector<Running> running;
  for (int step = 0; step < 20000; ++step) {
    if (running.size() < 4 && random.OneIn(4)) {
      Running one;
      one.ids = Ids(random.Between(1, 400), static_cast<int32_t>(random.Between(0, 1)));
      if (random.OneIn(2)) one.ids[static_cast<size_t>(random.Between(0, std::ssize(one.ids) - 1))] = 9;
      one.cache = NewCache();
      one.cache.settings.receptive_field = random.Between(0, 200);
      if (!Admit(*kv, one.ids, &one.cache, std::ssize(running), !random.OneIn(4))) continue;
      one.computed = one.cache.replay.first_position;
      if (random.OneIn(2)) kv->TakeRollingBuffers(&one.cache);
      running.push_back(std::move(one));
    } else if (!running.empty()) {
      const auto at = random.Between(0, std::ssize(running) - 1);
      Running& one = running[static_cast<size_t>(at)];
      const int64_t left = std::ssize(one.ids) - one.computed;
      if (left == 0 && random.OneIn(2) && kv->Grow(std::ssize(one.ids) + 2, &one.cache)) one.ids.push_back(5);
      const int64_t to = one.computed + (left > 0 ? random.Between(1, left) : 0);
      const int64_t boundary = to / kBlock * kBlock;
      const bool crosses = boundary > one.computed;
      if (crosses && random.OneIn(2)) kv->SnapshotBuffer(boundary, &one.cache);
      auto& rolling = one.cache.rolling[static_cast<size_t>(random.Between(0, kRollingSnapshots - 1))];
      if (crosses && rolling.id != kNoSnapshot) rolling.position = boundary;
      one.computed = to;
      kv->ReleaseRestored(&one.cache);
      kv->Publish(one.ids, one.computed, &one.cache);
      if (random.OneIn(6)) {
        kv->Release(one.ids, one.computed, &one.cache);
        running.erase(running.begin() + at);
      }
    }
    if (random.OneIn(500)) kv->Clear();
    int64_t snapshots = kv->tree().snapshot_count();
    for (const Running& one : running) {
      for (const int32_t block : one.cache.blocks) ASSERT_GE(kv->blocks().reference_count(block), 1);
      snapshots += std::ssize(one.cache.saved);
      for (const auto& rolling : one.cache.rolling) snapshots += rolling.id != kNoSnapshot ? 1 : 0;
    }
    ASSERT_EQ(kv->snapshots().block_count() - kv->snapshots().free_count(), snapshots) << "step " << step;
  }
  for (Running& one : running) kv->Release(one.ids, one.computed, &one.cache);
  ExpectNothingHeld(*kv);
}

}  // namespace
}  // namespace deepinfer::test
