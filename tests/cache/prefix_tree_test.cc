#include "cache/prefix_tree.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace deepinfer {
namespace {

/// A tree of blocks of `tokens` ids with its pools. The tree goes first.
struct Fixture {
  explicit Fixture(int64_t block_count = 32, int64_t snapshot_count = 8, int64_t block_tokens = 2)
      : tokens(static_cast<size_t>(block_tokens)),
        blocks(KvPool::Create(64, block_count).value()),
        snapshots(BlockPool::Create(64, snapshot_count).value()),
        tree(PrefixTree::Create(*blocks, *snapshots, block_tokens).value()) {}

  /// Inserts every full block of `ids` and keeps no reference of its own; returns the nodes.
  std::vector<NodeId> Add(std::string_view name_space, const std::vector<int32_t>& ids) {
    std::vector<NodeId> nodes;
    for (size_t at = 0; at + tokens <= ids.size(); at += tokens) {
      const int32_t block = *blocks->Allocate();
      const NodeId parent = nodes.empty() ? kRoot : nodes.back();
      nodes.push_back(tree->Insert(name_space, parent, std::span(ids).subspan(at, tokens), block));
      blocks->Release(block);
    }
    return nodes;
  }
  size_t MatchedBlocks(std::string_view name_space, const std::vector<int32_t>& ids) const {
    return tree->Match(name_space, ids).path.size();
  }
  void AddSnapshot(NodeId node) {
    const int32_t snapshot = *snapshots->Allocate();
    EXPECT_TRUE(tree->AttachSnapshot(node, snapshot));
    snapshots->Release(snapshot);
  }

  size_t tokens;
  std::unique_ptr<KvPool> blocks;
  std::unique_ptr<BlockPool> snapshots;
  std::unique_ptr<PrefixTree> tree;
};

TEST(PrefixTree, MatchesTheLongestPrefixOfFullBlocks) {
  Fixture f;
  const std::vector<NodeId> nodes = f.Add("a", {1, 2, 3, 4, 5, 6});
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(f.MatchedBlocks("a", {1, 2, 3, 4, 5, 6, 7}), 3u);
  EXPECT_EQ(f.MatchedBlocks("a", {1, 2, 3, 4, 5}), 2u);
  EXPECT_EQ(f.MatchedBlocks("a", {1, 2, 9, 4, 5, 6}), 1u);
  EXPECT_EQ(f.MatchedBlocks("a", {1}), 0u);
  EXPECT_EQ(f.MatchedBlocks("a", {3, 4}), 0u) << "a block counts below its own parent only";
  EXPECT_EQ(f.MatchedBlocks("a", {}), 0u);

  const PrefixMatch match = f.tree->Match("a", std::vector<int32_t>{1, 2, 3, 4});
  EXPECT_EQ(match.deepest(), nodes[1]);
  EXPECT_EQ(match.path[0].block, f.tree->block(nodes[0]));
  EXPECT_EQ(match.path[1].snapshot, kNoSnapshot);
  EXPECT_EQ(f.tree->parent(nodes[1]), nodes[0]);
  EXPECT_EQ(f.tree->parent(nodes[0]), kRoot);
  EXPECT_EQ(f.tree->depth(nodes[2]), 3);
  EXPECT_EQ(f.tree->depth(kRoot), 0);
}

TEST(PrefixTree, NamespacesDoNotMeet) {
  Fixture f;
  f.Add("salt one", {1, 2});
  EXPECT_EQ(f.MatchedBlocks("salt two", {1, 2}), 0u);
  EXPECT_EQ(f.MatchedBlocks("", {1, 2}), 0u);
  const std::vector<NodeId> second = f.Add("salt two", {1, 2, 3, 4});
  EXPECT_EQ(f.tree->node_count(), 3);
  EXPECT_EQ(f.tree->namespace_count(), 2);

  EXPECT_EQ(f.tree->EvictNamespace("salt three"), 0);
  f.tree->Pin(second[0]);
  EXPECT_EQ(f.tree->EvictNamespace("salt two"), 1) << "the pinned block stays";
  EXPECT_EQ(f.MatchedBlocks("salt two", {1, 2, 3, 4}), 1u);
  f.tree->Unpin(second[0]);
  EXPECT_EQ(f.tree->EvictNamespace("salt two"), 1);
  EXPECT_EQ(f.tree->namespace_count(), 1) << "an empty root disappears";
  EXPECT_EQ(f.MatchedBlocks("salt one", {1, 2}), 1u);

  // The slot of the namespace that went is used again.
  f.Add("salt four", {5, 6});
  EXPECT_EQ(f.MatchedBlocks("salt two", {5, 6}), 0u);
  EXPECT_EQ(f.MatchedBlocks("salt four", {5, 6}), 1u);
}

TEST(PrefixTree, AnEqualChildKeepsItsOwnBlock) {
  Fixture f;
  const NodeId first = f.Add("a", {1, 2})[0];
  const int32_t block = *f.blocks->Allocate();
  const NodeId again = f.tree->Insert("a", kRoot, std::vector<int32_t>{1, 2}, block);
  EXPECT_EQ(again, first);
  EXPECT_NE(f.tree->block(again), block);
  EXPECT_EQ(f.blocks->reference_count(block), 1);
  EXPECT_EQ(f.tree->node_count(), 1);
  f.blocks->Release(block);
}

TEST(PrefixTree, EqualHashesDoNotMixContents) {
  // XXH3's sum over the 64-byte stripes of a block: where the low half of a word equals the secret's, the product is 0
  // and only the sum of the words counts, so the high halves of two stripes can be swapped.
  std::vector<int32_t> ids(64, 7);
  std::memcpy(&ids[0], XXH3_kSecret, 4);
  std::memcpy(&ids[16], XXH3_kSecret + 8, 4);
  ids[1] = 100;
  ids[17] = 200;
  std::vector<int32_t> twin = ids;
  std::swap(twin[1], twin[17]);
  ASSERT_NE(ids, twin);
  ASSERT_EQ(XXH3_64bits(ids.data(), 256), XXH3_64bits(twin.data(), 256));

  Fixture f(4, 1, 64);
  const NodeId first = f.Add("a", ids)[0];
  EXPECT_EQ(f.MatchedBlocks("a", twin), 0u);
  const NodeId second = f.Add("a", twin)[0];
  EXPECT_NE(first, second);
  EXPECT_EQ(f.tree->Match("a", ids).deepest(), first);
  EXPECT_EQ(f.tree->Match("a", twin).deepest(), second);
  EXPECT_EQ(f.tree->EvictBlocks(1), 1);
  EXPECT_EQ(f.MatchedBlocks("a", ids), 0u);
  EXPECT_EQ(f.tree->Match("a", twin).deepest(), second);
}

TEST(PrefixTree, EvictsLeavesOfTheLeastRecentUse) {
  Fixture f;
  const std::vector<NodeId> old_chat = f.Add("a", {1, 1, 2, 2, 3, 3});
  const std::vector<NodeId> new_chat = f.Add("a", {1, 1, 4, 4});
  f.tree->Touch(old_chat[1]);  // its leaf stays the oldest
  EXPECT_EQ(f.tree->evictable_blocks(), 4);
  EXPECT_EQ(f.tree->EvictBlocks(1), 1);
  EXPECT_EQ(f.MatchedBlocks("a", {1, 1, 2, 2, 3, 3}), 2u);
  EXPECT_EQ(f.tree->EvictBlocks(1), 1);
  EXPECT_EQ(f.MatchedBlocks("a", {1, 1, 4, 4}), 1u) << "touched later than the other leaf's last use";
  EXPECT_EQ(f.tree->EvictBlocks(10), 2);
  EXPECT_EQ(f.tree->node_count(), 0);
  EXPECT_EQ(f.blocks->free_count(), 32);
  EXPECT_EQ(f.tree->statistics().evicted_blocks, 4);
  EXPECT_EQ(f.tree->EvictBlocks(1), 0);
}

TEST(PrefixTree, APinHoldsEverythingAboveIt) {
  Fixture f;
  const std::vector<NodeId> nodes = f.Add("a", {1, 1, 2, 2, 3, 3});
  f.Add("a", {1, 1, 4, 4});
  f.tree->Pin(nodes[1]);
  EXPECT_EQ(f.tree->evictable_blocks(), 2);
  EXPECT_EQ(f.tree->EvictBlocks(10), 2);
  EXPECT_EQ(f.MatchedBlocks("a", {1, 1, 2, 2}), 2u);
  f.tree->Pin(nodes[1]);
  f.tree->Unpin(nodes[1]);
  EXPECT_EQ(f.tree->evictable_blocks(), 0) << "pins count";
  EXPECT_EQ(f.tree->Clear(), 0);
  f.tree->Unpin(nodes[1]);
  EXPECT_EQ(f.tree->evictable_blocks(), 2);
  f.tree->Pin(kRoot);
  f.tree->Touch(kRoot);
  f.tree->Unpin(kRoot);
  EXPECT_EQ(f.tree->Clear(), 2);
}

TEST(PrefixTree, ABlockHeldElsewhereIsDroppedButNotCounted) {
  Fixture f;
  const NodeId held = f.Add("a", {1, 1})[0];
  f.Add("a", {2, 2});
  const int32_t block = f.tree->block(held);
  f.blocks->AddReference(block);
  EXPECT_EQ(f.tree->EvictBlocks(1), 1);
  EXPECT_EQ(f.tree->node_count(), 0);
  EXPECT_EQ(f.blocks->reference_count(block), 1);
  f.blocks->Release(block);
}

TEST(PrefixTree, SnapshotsGoByTheirOwnUse) {
  Fixture f;
  const std::vector<NodeId> nodes = f.Add("a", {1, 1, 2, 2, 3, 3});
  for (const NodeId node : nodes) f.AddSnapshot(node);
  const int32_t another = *f.snapshots->Allocate();
  EXPECT_FALSE(f.tree->AttachSnapshot(nodes[0], another)) << "it has one";
  EXPECT_EQ(f.snapshots->reference_count(another), 1);
  f.snapshots->Release(another);
  EXPECT_EQ(f.tree->Match("a", std::vector<int32_t>{1, 1}).path[0].snapshot, f.tree->snapshot(nodes[0]));

  f.tree->PinSnapshot(nodes[0]);
  f.tree->UnpinSnapshot(nodes[0]);  // used after the others
  f.tree->PinSnapshot(nodes[2]);
  EXPECT_EQ(f.tree->evictable_snapshots(), 2);
  EXPECT_EQ(f.tree->evictable_blocks(), 0) << "a pinned snapshot pins its node";
  EXPECT_TRUE(f.tree->EvictSnapshot());
  EXPECT_EQ(f.tree->snapshot(nodes[1]), kNoSnapshot);
  EXPECT_TRUE(f.tree->EvictSnapshot());
  EXPECT_EQ(f.tree->snapshot(nodes[0]), kNoSnapshot);
  EXPECT_FALSE(f.tree->EvictSnapshot());
  f.tree->UnpinSnapshot(nodes[2]);
  EXPECT_EQ(f.tree->snapshot_count(), 1);
  f.tree->DetachSnapshot(nodes[2]);
  f.tree->DetachSnapshot(nodes[2]);
  EXPECT_EQ(f.tree->snapshot_count(), 0);
  EXPECT_EQ(f.snapshots->free_count(), 8);
  EXPECT_EQ(f.tree->statistics().evicted_snapshots, 2);

  f.AddSnapshot(nodes[2]);
  EXPECT_EQ(f.tree->EvictBlocks(1), 1);
  EXPECT_EQ(f.snapshots->free_count(), 8) << "a node takes its snapshot along";
}

TEST(PrefixTree, TheDestructorReleasesWhatThePinsHeld) {
  Fixture f;
  const std::vector<NodeId> nodes = f.Add("a", {1, 1, 2, 2});
  f.AddSnapshot(nodes[0]);
  f.tree->PinSnapshot(nodes[0]);
  f.tree.reset();
  EXPECT_EQ(f.blocks->free_count(), 32);
  EXPECT_EQ(f.snapshots->free_count(), 8);
}

TEST(PrefixTree, QueriesAreCountedOnRequest) {
  Fixture f;
  f.MatchedBlocks("a", {1, 2, 3});
  EXPECT_EQ(f.tree->statistics().queries, 0);
  f.tree->CountQuery(300, 64);
  f.tree->CountQuery(10, 0);
  EXPECT_EQ(f.tree->statistics().queries, 2);
  EXPECT_EQ(f.tree->statistics().query_tokens, 310);
  EXPECT_EQ(f.tree->statistics().hit_tokens, 64);
}

TEST(PrefixTree, HostMemoryIsPlanned) {
  EXPECT_EQ(PrefixTree::bytes_per_node(), 64 * 4 + 64 + 2 * 4 + 2 * 16);
  for (const int64_t blocks : {1, 5, 64, 1000}) {
    Fixture f(blocks, 1, 64);
    EXPECT_LE(f.tree->bytes(), blocks * PrefixTree::bytes_per_node());
    EXPECT_GE(f.tree->bytes(), blocks * (PrefixTree::bytes_per_node() - 4));
  }
  Fixture none(0, 0);
  EXPECT_EQ(none.tree->EvictBlocks(1), 0);
  EXPECT_EQ(none.MatchedBlocks("a", {1, 2}), 0u);
  EXPECT_EQ(PrefixTree::Create(*none.blocks, *none.snapshots, 0).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace deepinfer
