// PrefixTree does what a brute-force tree does, whatever the order of calls.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

#include "cache/prefix_tree.h"
#include "tree_model.h"

namespace deepinfer::test {
namespace {

constexpr int64_t kBlocks = 20;
constexpr int64_t kSnapshots = 5;
constexpr int64_t kTokens = 2;

class RandomCalls {
 public:
  explicit RandomCalls(uint32_t seed)
      : random_(seed),
        blocks_(KvPool::Create(64, kBlocks).value()),
        snapshots_(BlockPool::Create(64, kSnapshots).value()),
        tree_(PrefixTree::Create(*blocks_, *snapshots_, kTokens).value()),
        model_(kTokens) {}

  void Step() {
    switch (Draw(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Insert();
      case 4:
        return Pin();
      case 5:
        return Unpin();
      case 6:
        return Touch();
      case 7:
        return Attach();
      case 8:
        return PinSnapshot();
      case 9:
        return UnpinSnapshot();
      case 10:
        return EvictBlocks();
      default:
        return EvictOther();
    }
  }

  void Check() {
    ASSERT_EQ(tree_->node_count(), static_cast<int64_t>(model_.nodes.size()));
    ASSERT_EQ(tree_->evictable_blocks(), model_.EvictableCount());
    ASSERT_EQ(tree_->namespace_count(), static_cast<int64_t>(model_.Namespaces().size()));
    ASSERT_EQ(blocks_->free_count(), kBlocks - tree_->node_count());
    int64_t snapshots = 0;
    for (const auto& [id, node] : model_.nodes) {
      ASSERT_EQ(tree_->parent(id), node.parent);
      ASSERT_EQ(tree_->snapshot(id), node.snapshot);
      ASSERT_EQ(tree_->depth(id) * kTokens, static_cast<int64_t>(node.prefix.size()));
      ASSERT_EQ(blocks_->reference_count(tree_->block(id)), 1);
      snapshots += node.snapshot >= 0 ? 1 : 0;
    }
    ASSERT_EQ(tree_->snapshot_count(), snapshots);
    ASSERT_EQ(snapshots_->free_count(), kSnapshots - snapshots);

    const std::string name_space = Name();
    std::vector<int32_t> ids(Draw(12));
    for (int32_t& id : ids) id = static_cast<int32_t>(Draw(2));
    const std::vector<int32_t> expected = model_.Match(name_space, ids);
    const PrefixMatch match = tree_->Match(name_space, ids);
    ASSERT_EQ(match.path.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(match.path[i].node, expected[i]);
      ASSERT_EQ(match.path[i].snapshot, model_.nodes[expected[i]].snapshot);
    }
  }

  /// Everything that is pinned is let go, and nothing is left.
  void Finish() {
    for (auto& [id, node] : model_.nodes) {
      for (; node.snapshot_pins > 0; --node.snapshot_pins, --node.pins) tree_->UnpinSnapshot(id);
      for (; node.pins > 0; --node.pins) tree_->Unpin(id);
    }
    ASSERT_EQ(tree_->evictable_blocks(), tree_->node_count());
    ASSERT_EQ(tree_->Clear(), static_cast<int64_t>(model_.nodes.size()));
    ASSERT_EQ(tree_->namespace_count(), 0);
    ASSERT_EQ(blocks_->free_count(), kBlocks);
    ASSERT_EQ(snapshots_->free_count(), kSnapshots);
  }

 private:
  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  std::string Name() { return Draw(3) == 0 ? "b" : "a"; }

  /// Any node; -1 in an empty tree.
  NodeId AnyNode() {
    if (model_.nodes.empty()) return kRoot;
    return std::next(model_.nodes.begin(), Draw(static_cast<uint32_t>(model_.nodes.size())))->first;
  }

  void Insert() {
    const NodeId parent = Draw(4) == 0 ? kRoot : AnyNode();
    const std::string name_space = parent == kRoot ? Name() : model_.nodes[parent].name_space;
    const std::vector<int32_t> ids = {static_cast<int32_t>(Draw(2)), static_cast<int32_t>(Draw(2))};
    const std::optional<int32_t> block = blocks_->Allocate();
    if (!block) return;
    std::vector<int32_t> prefix = parent == kRoot ? std::vector<int32_t>() : model_.nodes[parent].prefix;
    prefix.insert(prefix.end(), ids.begin(), ids.end());
    const int32_t existing = model_.Find(name_space, prefix);
    const NodeId node = tree_->Insert(name_space, parent, ids, *block);
    if (existing >= 0) {
      ASSERT_EQ(node, existing);
    } else {
      ASSERT_EQ(tree_->block(node), *block);
      model_.Insert(node, name_space, parent, ids);
    }
    blocks_->Release(*block);
  }

  void Pin() {
    const NodeId node = AnyNode();
    if (node == kRoot) return;
    tree_->Pin(node);
    ++model_.nodes[node].pins;
  }

  void Unpin() {
    for (auto& [id, node] : model_.nodes) {
      if (node.pins <= node.snapshot_pins || Draw(3) == 0) continue;
      tree_->Unpin(id);
      --node.pins;
      return;
    }
  }

  void Touch() {
    const NodeId node = AnyNode();
    tree_->Touch(node);
    model_.Touch(node);
  }

  void Attach() {
    const NodeId node = AnyNode();
    const std::optional<int32_t> snapshot = snapshots_->Allocate();
    if (!snapshot) return;
    if (node != kRoot) {
      const bool has_none = model_.nodes[node].snapshot < 0;
      ASSERT_EQ(tree_->AttachSnapshot(node, *snapshot), has_none);
      if (has_none) model_.Attach(node, *snapshot);
    }
    snapshots_->Release(*snapshot);
  }

  void PinSnapshot() {
    const NodeId id = AnyNode();
    if (id == kRoot || model_.nodes[id].snapshot < 0) return;
    tree_->PinSnapshot(id);
    ++model_.nodes[id].pins;
    ++model_.nodes[id].snapshot_pins;
    model_.UseSnapshot(id);
  }

  void UnpinSnapshot() {
    for (auto& [id, node] : model_.nodes) {
      if (node.snapshot_pins == 0) continue;
      tree_->UnpinSnapshot(id);
      --node.snapshot_pins;
      --node.pins;
      return;
    }
  }

  void EvictBlocks() {
    const int64_t count = Draw(5);
    int64_t expected = 0;
    for (int32_t victim = model_.OldestLeaf(); expected < count && victim >= 0; victim = model_.OldestLeaf()) {
      model_.nodes.erase(victim);
      ++expected;
    }
    ASSERT_EQ(tree_->EvictBlocks(count), expected);
  }

  void EvictOther() {
    const uint32_t choice = Draw(8);
    if (choice == 0) {
      const std::string name_space = Name();
      ASSERT_EQ(tree_->EvictNamespace(name_space), Drop(name_space));
    } else if (choice == 1) {
      ASSERT_EQ(tree_->Clear(), Drop("a") + Drop("b"));
    } else if (choice == 2) {
      const NodeId node = AnyNode();
      if (node == kRoot || model_.nodes[node].snapshot_pins > 0) return;
      tree_->DetachSnapshot(node);
      model_.nodes[node].snapshot = -1;
    } else {
      const int32_t victim = model_.OldestSnapshot();
      ASSERT_EQ(tree_->EvictSnapshot(), victim >= 0);
      if (victim >= 0) model_.nodes[victim].snapshot = -1;
    }
  }

  /// Removes what has no pin from the model's namespace.
  int64_t Drop(const std::string& name_space) {
    std::vector<int32_t> victims;
    for (const auto& [id, node] : model_.nodes) {
      if (node.name_space == name_space && model_.Evictable(id)) victims.push_back(id);
    }
    for (const int32_t id : victims) model_.nodes.erase(id);
    return static_cast<int64_t>(victims.size());
  }

  std::mt19937 random_;
  std::unique_ptr<KvPool> blocks_;
  std::unique_ptr<BlockPool> snapshots_;
  std::unique_ptr<PrefixTree> tree_;
  TreeModel model_;
};

TEST(PrefixTreeProperty, EqualsTheBruteForceTree) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomCalls calls(seed);
    for (int i = 0; i < 800; ++i) {
      calls.Step();
      ASSERT_NO_FATAL_FAILURE(calls.Check()) << "after step " << i;
    }
    calls.Finish();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace deepinfer::test
