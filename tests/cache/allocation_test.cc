// What runs in the step loop allocates nothing (promise 5): blocks, inserts, pins, uses, snapshots, evictions.
#include <gtest/gtest.h>

#include <vector>

#include "cache/prefix_tree.h"
#include "tests/allocation_counter.h"

namespace deepinfer {
namespace {

TEST(CacheAllocation, NothingAfterANamespacesFirstBlock) {
  if (!test::CountsAllocations()) GTEST_SKIP() << "allocations are not counted under a sanitizer";
  const auto blocks = KvPool::Create(64, 64).value();
  const auto snapshots = BlockPool::Create(64, 4).value();
  const auto tree = PrefixTree::Create(*blocks, *snapshots).value();
  std::vector<int32_t> ids(64);
  const NodeId first = tree->Insert("a", kRoot, ids, *blocks->Allocate());
  tree->Pin(first);

  const int64_t before = test::AllocationCount();
  NodeId parent = first;
  for (int32_t i = 0; i < 500; ++i) {
    if (blocks->free_count() == 0) {
      tree->Touch(parent);
      tree->EvictBlocks(40);
      parent = first;
    }
    ids[0] = i;
    const int32_t block = *blocks->Allocate();
    parent = tree->Insert("a", parent, ids, block);
    blocks->Release(block);
    if (snapshots->free_count() == 0) tree->EvictSnapshot();
    const int32_t snapshot = *snapshots->Allocate();
    tree->AttachSnapshot(parent, snapshot);
    snapshots->Release(snapshot);
  }
  EXPECT_EQ(test::AllocationCount() - before, 0);
  EXPECT_GT(tree->statistics().evicted_blocks, 400);
}

}  // namespace
}  // namespace deepinfer
