#include "cache/lru_index.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

namespace deepinfer {
namespace {

TEST(LruIndex, EqualTicksTakeTheLowerId) {
  LruIndex index;
  ASSERT_TRUE(index.Allocate(8));
  EXPECT_EQ(index.Oldest(), -1);
  for (const int32_t id : {5, 2, 7}) index.Insert(id, 1);
  index.Insert(3, 0);
  for (const int32_t id : {3, 2, 5, 7}) {
    EXPECT_EQ(index.Oldest(), id);
    index.Erase(id);
  }
  EXPECT_EQ(index.size(), 0);
}

TEST(LruIndex, EqualsAnOrderedSet) {
  constexpr int32_t kIds = 200;
  LruIndex index;
  ASSERT_TRUE(index.Allocate(kIds));
  std::set<std::pair<uint64_t, int32_t>> model;
  std::vector<uint64_t> tick(kIds);
  std::mt19937 random(1);
  for (int i = 0; i < 50000; ++i) {
    const auto id = static_cast<int32_t>(random() % kIds);
    if (random() % 8 == 0 && !model.empty()) {
      const int32_t oldest = index.Oldest();
      model.erase(model.begin());
      index.Erase(oldest);
    } else if (model.contains({tick[id], id})) {
      model.erase({tick[id], id});
      index.Erase(id);
    } else {
      index.Erase(id);  // not there: nothing happens
      tick[id] = random() % 64;
      model.insert({tick[id], id});
      index.Insert(id, tick[id]);
    }
    ASSERT_EQ(index.size(), static_cast<int64_t>(model.size()));
    ASSERT_EQ(index.Oldest(), model.empty() ? -1 : model.begin()->second);
    ASSERT_EQ(index.Contains(id), model.contains({tick[id], id}));
  }
}

}  // namespace
}  // namespace deepinfer
