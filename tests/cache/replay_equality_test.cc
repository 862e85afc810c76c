// Promise 3 on a toy model: with pools, tree, evictions and replay plans together, a request that resumes on a cached
// prefix computes what it computes without a cache, in both modes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "cache/prefix_tree.h"
#include "toy_model.h"

namespace deepinfer::test {
namespace {

constexpr ReplaySettings kExact = {
    .bounded = false, .block_tokens = kToyBlock, .receptive_field = kToyLayers * (kToyWindow - 1)};
constexpr ReplaySettings kBounded = {.bounded = true, .block_tokens = kToyBlock, .keep = 6, .grid = 16, .replay = 6};

struct Request {
  std::vector<int32_t> ids;  // prompt, outputs so far, outputs to come
  int64_t prompt = 0;
  int64_t known = 0;  // prompt and outputs so far
};

/// A run without a cache.
class ColdRun {
 public:
  ColdRun(const ReplaySettings& settings, const Request& request)
      : rows_((request.ids.size() + kToyBlock - 1) / kToyBlock) {
    std::vector<ToyBlock*> blocks;
    blocks.reserve(rows_.size());
    for (ToyBlock& block : rows_) blocks.push_back(&block);
    run_.emplace(settings, PlanReplay(settings, {}, request.known, request.prompt), request.ids, blocks);
    run_->Compute([](int64_t) {});
  }
  const ToyRun& run() const { return *run_; }
  const ToyBlock& rows(size_t block) const { return rows_[block]; }

 private:
  std::vector<ToyBlock> rows_;
  std::optional<ToyRun> run_;
};

/// What an engine does with pools, tree and plan.
class CachedRuns {
 public:
  CachedRuns(const ReplaySettings& settings, int64_t blocks, int64_t snapshots)
      : settings_(settings),
        blocks_(KvPool::Create(sizeof(ToyBlock), blocks).value()),
        snapshots_(BlockPool::Create(sizeof(ToyRings), snapshots).value()),
        tree_(PrefixTree::Create(*blocks_, *snapshots_, kToyBlock).value()) {}

  void Run(const Request& request) {
    const PrefixMatch match = tree_->Match("space", request.ids);
    const ReplayPlan plan = PlanReplay(settings_, match.path, request.known, request.prompt);
    const auto boundaries = SnapshotBoundaries(settings_, plan, match.path, request.known, 2 * kToyBlock);
    ++plans_[Kind(plan)];

    // Blocks: those of the hit are shared, the others new.
    const auto hits = static_cast<size_t>(plan.hit_tokens / kToyBlock);
    NodeId deepest = hits == 0 ? kRoot : match.path[hits - 1].node;
    tree_->Pin(deepest);
    tree_->Touch(deepest);
    std::vector<int32_t> held;
    for (size_t block = 0; block * kToyBlock < request.ids.size(); ++block) {
      held.push_back(block < hits ? match.path[block].block : NewBlock());
      if (block < hits) blocks_->AddReference(held.back());
    }
    std::vector<ToyBlock*> rows;
    rows.reserve(held.size());
    for (const int32_t block : held) rows.push_back(reinterpret_cast<ToyBlock*>(blocks_->data(block)));

    ToyRun run(settings_, plan, request.ids, rows);
    if (plan.snapshot_position >= 0) {
      const MatchedBlock& from = match.path[static_cast<size_t>(plan.snapshot_position / kToyBlock) - 1];
      tree_->PinSnapshot(from.node);
      ToyRings rings;
      std::memcpy(&rings, snapshots_->data(from.snapshot), sizeof(rings));
      run.Restore(rings);
      tree_->UnpinSnapshot(from.node);
    }
    std::vector<NodeId> nodes(hits);
    for (size_t i = 0; i < hits; ++i) nodes[i] = match.path[i].node;
    run.Compute([&](int64_t boundary) {
      const auto block = static_cast<size_t>(boundary / kToyBlock) - 1;
      if (block >= hits) {
        const NodeId node =
            tree_->Insert("space", deepest, std::span(request.ids).subspan(block * kToyBlock, kToyBlock), held[block]);
        tree_->Pin(node);
        tree_->Unpin(deepest);
        deepest = node;
        nodes.push_back(node);
      }
      if (std::ranges::binary_search(boundaries, boundary)) Save(nodes[block], run.rings());
    });
    tree_->Unpin(deepest);
    Compare(request, plan, run, held);
    for (const int32_t block : held) blocks_->Release(block);
  }

  void Finish() {
    EXPECT_EQ(blocks_->block_count() - blocks_->free_count(), tree_->node_count());
    EXPECT_EQ(tree_->evictable_blocks(), tree_->node_count());
    tree_->Clear();
    EXPECT_EQ(blocks_->free_count(), blocks_->block_count());
    EXPECT_EQ(snapshots_->free_count(), snapshots_->block_count());
  }

  /// How many requests started how.
  const std::map<std::string, int>& plans() const { return plans_; }
  const PrefixTree& tree() const { return *tree_; }

 private:
  static std::string Kind(const ReplayPlan& plan) {
    if (plan.snapshot_position >= 0) return "snapshot";
    if (plan.resume_position > 0) return "replay";
    return plan.hit_tokens > 0 ? "all rows, shared blocks" : "cold";
  }

  int32_t NewBlock() {
    if (blocks_->free_count() == 0) tree_->EvictBlocks(1);
    return *blocks_->Allocate();
  }

  void Save(NodeId node, const ToyRings& rings) {
    if (snapshots_->free_count() == 0 && !tree_->EvictSnapshot()) return;
    const int32_t snapshot = *snapshots_->Allocate();
    std::memcpy(snapshots_->data(snapshot), &rings, sizeof(rings));
    tree_->AttachSnapshot(node, snapshot);
    snapshots_->Release(snapshot);
  }

  void Compare(const Request& request, const ReplayPlan& plan, const ToyRun& run, const std::vector<int32_t>& held) {
    const ColdRun cold(settings_, request);
    EXPECT_EQ(run.contradictions(), 0);
    const auto begin = static_cast<size_t>(std::max(plan.resume_position, settings_.bounded ? plan.decoder_start : 0));
    ASSERT_LT(begin, static_cast<size_t>(request.known)) << "the row of the first new token is computed";
    for (size_t p = begin; p < request.ids.size(); ++p) {
      ASSERT_NE(run.outputs()[p], 0u);
      ASSERT_EQ(run.outputs()[p], cold.run().outputs()[p]) << "position " << p;
    }
    for (size_t block = 0; block < held.size(); ++block) {
      const ToyBlock& rows = *reinterpret_cast<const ToyBlock*>(blocks_->data(held[block]));
      for (size_t token = 0; token < kToyBlock && block * kToyBlock + token < request.ids.size(); ++token) {
        ASSERT_EQ(rows[token], cold.rows(block)[token]) << "global rows of block " << block;
      }
    }
    ASSERT_LE(run.computed_rows(), cold.run().computed_rows());
  }

  const ReplaySettings settings_;
  std::unique_ptr<KvPool> blocks_;
  std::unique_ptr<BlockPool> snapshots_;
  std::unique_ptr<PrefixTree> tree_;
  std::map<std::string, int> plans_;
};

/// Conversations that go on, split and begin; some requests come back after a preemption.
class Requests {
 public:
  explicit Requests(uint32_t seed) : random_(seed) {}

  Request Next() {
    Request request;
    if (!past_.empty() && Draw(8) != 0) {
      request.ids = past_[Draw(static_cast<uint32_t>(past_.size()))];
      if (Draw(2) == 0) request.ids.resize(1 + Draw(static_cast<uint32_t>(request.ids.size())));
    }
    const size_t more = 1 + Draw(30);
    for (size_t i = 0; i < more; ++i) request.ids.push_back(static_cast<int32_t>(Draw(3)));
    if (request.ids.size() > 100) request.ids.resize(100);
    const auto length = static_cast<uint32_t>(request.ids.size());
    request.prompt = length - Draw(std::min(length, Draw(6) == 0 ? 40u : 8u));
    request.known = request.prompt + (Draw(3) == 0 ? Draw(static_cast<uint32_t>(length - request.prompt) + 1) : 0);
    past_.push_back(request.ids);
    if (past_.size() > 12) past_.erase(past_.begin() + Draw(12));
    return request;
  }

 private:
  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  std::mt19937 random_;
  std::vector<std::vector<int32_t>> past_;
};

void ExpectEqualRuns(const ReplaySettings& settings) {
  ASSERT_TRUE(CheckReplaySettings(settings).ok());
  std::map<std::string, int> plans;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Requests requests(seed);
    CachedRuns runs(settings, 30 + seed * 2, seed % 4 * 4);
    for (int i = 0; i < 150; ++i) {
      runs.Run(requests.Next());
      if (testing::Test::HasFailure()) return;
    }
    runs.Finish();
    for (const auto& [kind, count] : runs.plans()) plans[kind] += count;
    EXPECT_GT(runs.tree().statistics().evicted_blocks, 30);
  }
  for (const char* kind : {"cold", "snapshot", "replay", "all rows, shared blocks"}) EXPECT_GT(plans[kind], 50) << kind;
}

TEST(ReplayEquality, ExactModeEqualsAColdRun) { ExpectEqualRuns(kExact); }
TEST(ReplayEquality, BoundedModeEqualsAColdRun) { ExpectEqualRuns(kBounded); }

TEST(ReplayEquality, BoundedModeWithOverlappingReplayEqualsAColdRun) {
  ReplaySettings settings = kBounded;
  settings.grid = settings.replay = 8;  // every token passes the encoder twice
  settings.keep = 2;
  ExpectEqualRuns(settings);
}

TEST(ReplayEquality, BoundedModeWithAReplayShorterThanTheWindowEqualsAColdRun) {
  // Behind a restart point, rows of several blocks have windows that reach the replay's start.
  ReplaySettings settings = kBounded;
  settings.keep = settings.replay = 2;
  ExpectEqualRuns(settings);
}

// The toy model notices what the plan protects from.

Request Sample() {
  std::mt19937 random(1);
  Request request;
  for (int i = 0; i < 40; ++i) request.ids.push_back(static_cast<int32_t>(random() % 3));
  request.prompt = request.known = 40;
  return request;
}

/// Outputs of a run by `plan` over the blocks of a cold run.
std::vector<uint64_t> Outputs(const ReplaySettings& settings, const ReplayPlan& plan) {
  const Request request = Sample();
  const ColdRun cold(settings, request);
  std::vector<ToyBlock> rows;
  for (size_t block = 0; block < request.ids.size() / kToyBlock; ++block) rows.push_back(cold.rows(block));
  std::vector<ToyBlock*> blocks;
  blocks.reserve(rows.size());
  for (ToyBlock& block : rows) blocks.push_back(&block);
  ToyRun run(settings, plan, request.ids, blocks);
  run.Compute([](int64_t) {});
  return run.outputs();
}

TEST(ReplayEquality, AReceptiveFieldOneTokenShortIsNoticed) {
  const ColdRun cold(kExact, Sample());
  for (int64_t missing = 0; missing < 3; ++missing) {
    const int64_t first = 36 - kExact.receptive_field + missing;
    EXPECT_EQ(Outputs(kExact, {36, first, 36, -1, first, first})[36] == cold.run().outputs()[36], missing == 0);
  }
}

TEST(ReplayEquality, AResumeOffTheGridIsNoticed) {
  const uint64_t expected = ColdRun(kBounded, Sample()).run().outputs().back();
  EXPECT_EQ(Outputs(kBounded, {32, 26, 32, -1, 26, 34}).back(), expected);
  EXPECT_NE(Outputs(kBounded, {32, 28, 32, -1, 28, 34}).back(), expected);
  EXPECT_NE(Outputs(kBounded, {32, 26, 32, -1, 26, 36}).back(), expected);
}

}  // namespace
}  // namespace deepinfer::test
