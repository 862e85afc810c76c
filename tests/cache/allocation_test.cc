// What runs in the step loop allocates nothing (promise 5): blocks, inserts, pins, uses, snapshots, evictions.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "cache/prefix_tree.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

// Sanitizers bring their own operator new, which must stay.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DEEPINFER_COUNTS_ALLOCATIONS 1
void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace deepinfer {
namespace {

TEST(CacheAllocation, NothingAfterANamespacesFirstBlock) {
#ifndef DEEPINFER_COUNTS_ALLOCATIONS
  GTEST_SKIP() << "allocations are not counted under a sanitizer";
#endif
  const auto blocks = KvPool::Create(64, 64).value();
  const auto snapshots = BlockPool::Create(64, 4).value();
  const auto tree = PrefixTree::Create(*blocks, *snapshots).value();
  std::vector<int32_t> ids(64);
  const NodeId first = tree->Insert("a", kRoot, ids, *blocks->Allocate());
  tree->Pin(first);

  const int64_t before = allocations;
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
  EXPECT_EQ(allocations - before, 0);
  EXPECT_GT(tree->statistics().evicted_blocks, 400);
}

}  // namespace
}  // namespace deepinfer
