#include "cache/block_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "cache/kv_pool.h"

namespace deepinfer {
namespace {

std::unique_ptr<BlockPool> Pool(int64_t blocks, int64_t block_bytes = 64) {
  Result<std::unique_ptr<BlockPool>> pool = BlockPool::Create(block_bytes, blocks);
  EXPECT_TRUE(pool.ok()) << pool.status().message();
  return std::move(*pool);
}

TEST(BlockPool, RefusesSizesThatCannotBe) {
  EXPECT_EQ(BlockPool::Create(0, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(BlockPool::Create(65, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(BlockPool::Create(64, -1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(BlockPool::Create(64, int64_t{1} << 31).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(BlockPool::Create(int64_t{1} << 40, int64_t{1} << 30).status().code(), StatusCode::kResourceExhausted);
}

TEST(BlockPool, HandsOutTheLowestFreeBlock) {
  const auto pool = Pool(130);
  for (int32_t id = 0; id < 130; ++id) EXPECT_EQ(pool->Allocate(), id);
  EXPECT_EQ(pool->Allocate(), std::nullopt);
  for (const int32_t id : {129, 64, 63, 5}) pool->Release(id);
  for (const int32_t id : {5, 63, 64, 129}) EXPECT_EQ(pool->Allocate(), id);
  EXPECT_EQ(pool->Allocate(), std::nullopt);
}

TEST(BlockPool, TheLastReferenceFrees) {
  const auto pool = Pool(2);
  const int32_t id = *pool->Allocate();
  pool->AddReference(id);
  pool->AddReference(id);
  EXPECT_EQ(pool->reference_count(id), 3);
  pool->Release(id);
  pool->Release(id);
  EXPECT_EQ(pool->free_count(), 1);
  EXPECT_EQ(pool->Allocate(), 1);
  pool->Release(id);
  EXPECT_EQ(pool->reference_count(id), 0);
  EXPECT_EQ(pool->free_count(), 1);
  EXPECT_EQ(pool->Allocate(), id);
}

TEST(BlockPool, AnEmptyPoolHasNothing) {
  const auto pool = Pool(0);
  EXPECT_EQ(pool->Allocate(), std::nullopt);
  EXPECT_EQ(pool->block_count(), 0);
}

TEST(BlockPool, BlocksAreAlignedAndDoNotOverlap) {
  const auto pool = Pool(9, 192);
  for (int32_t id = 0; id < 9; ++id) std::memset(pool->data(id), id, 192);
  for (int32_t id = 0; id < 9; ++id) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pool->data(id)) % 64, 0u);
    for (int i = 0; i < 192; ++i) ASSERT_EQ(pool->data(id)[i], id);
  }
}

TEST(BlockPool, ATerabyteIsReservedNotTouched) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer leaves no terabyte of addresses in one piece";
#endif
  const int64_t blocks = (int64_t{1} << 40) / 56960;
  const auto pool = Pool(blocks, 56960);
  EXPECT_GE(pool->bytes(), blocks * 56960);
  EXPECT_LT(pool->bytes(), blocks * (56960 + 5));  // 4 bytes of references, little more than a bit
  EXPECT_EQ(pool->Allocate(), 0);
  pool->data(0)[56959] = 1;
}

TEST(BlockPool, EqualsASetOfFreeIds) {
  for (const int32_t blocks : {1, 63, 64, 65, 4096, 4097, 5000}) {
    SCOPED_TRACE("blocks " + std::to_string(blocks));
    const auto pool = Pool(blocks);
    std::mt19937 random(static_cast<uint32_t>(blocks));
    std::map<int32_t, int32_t> held;  // id -> references
    std::map<int32_t, bool> free;
    for (int32_t id = 0; id < blocks; ++id) free[id] = true;
    for (int i = 0; i < 20000; ++i) {
      const uint32_t action = random() % (i / 5000 % 2 == 0 ? 3 : 5);  // fill, then drain
      if (action <= 1) {
        const std::optional<int32_t> id = pool->Allocate();
        ASSERT_EQ(id.has_value(), !free.empty());
        if (!id) continue;
        ASSERT_EQ(*id, free.begin()->first);
        free.erase(*id);
        held[*id] = 1;
      } else if (!held.empty()) {
        auto place = held.lower_bound(static_cast<int32_t>(random() % static_cast<uint32_t>(blocks)));
        if (place == held.end()) place = held.begin();
        const int32_t id = place->first;
        if (action == 2) {
          pool->AddReference(id);
          ++place->second;
        } else {
          pool->Release(id);
          if (--place->second == 0) {
            held.erase(place);
            free[id] = true;
          }
        }
        ASSERT_EQ(pool->reference_count(id), held.contains(id) ? held[id] : 0);
      }
      ASSERT_EQ(pool->free_count(), static_cast<int64_t>(free.size()));
    }
  }
}

}  // namespace
}  // namespace deepinfer
