// RecordIndex does what maps do, in few bytes.
#include "cache/record_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace deepinfer {
namespace {

RecordName RandomName(std::mt19937_64& random) { return {random(), random()}; }

TEST(RecordIndex, KindsOfOneKeyHaveDifferentNames) {
  KvKey key;
  key.bytes[0] = 5;
  EXPECT_NE(RecordName::Of(KvRecordKind::kBlock, key), RecordName::Of(KvRecordKind::kRings, key));
  EXPECT_EQ(RecordName::Of(KvRecordKind::kBlock, key), RecordName::Of(KvRecordKind::kBlock, key));
}

TEST(RecordIndex, EqualsMapsUnderRandomCalls) {
  constexpr uint32_t kSegments = 12;
  constexpr int64_t kCapacity = 700;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    std::mt19937_64 random(seed);
    RecordIndex index;
    ASSERT_TRUE(index.Allocate(kCapacity));
    std::map<RecordName, IndexedRecord> model;
    // Names that share their low bits share buckets.
    std::vector<RecordName> names;
    for (int i = 0; i < 1000; ++i) names.push_back({random() % 64 | (i % 3 == 0 ? random() << 6 : 0), random()});
    for (int step = 0; step < 20000; ++step) {
      const RecordName name = names[random() % names.size()];
      const auto known = model.find(name);
      const RecordPlace place{static_cast<uint32_t>(random() % kSegments), static_cast<uint32_t>(random() % 1000)};
      switch (random() % 16) {
        case 0:
        case 1:
          EXPECT_EQ(index.Erase(name), known != model.end());
          model.erase(name);
          break;
        case 2:
          index.Use(name, static_cast<uint32_t>(step));
          if (known != model.end()) {
            known->second.last_use = static_cast<uint32_t>(step);
            ++known->second.hits;
          }
          break;
        case 3:
          if (known == model.end()) break;
          index.Move(name, place);
          known->second = {.name = name, .place = place, .tokens = known->second.tokens};
          break;
        case 4:
          if (random() % 20 == 0) {
            const int64_t expected = static_cast<int64_t>(
                std::erase_if(model, [&](const auto& each) { return each.second.place.segment == place.segment; }));
            EXPECT_EQ(index.EraseSegment(place.segment), expected);
          }
          break;
        default: {
          if (known != model.end()) break;
          const auto tokens = static_cast<uint16_t>(random());
          const bool fits = std::ssize(model) < kCapacity;
          ASSERT_EQ(index.Insert(name, place, tokens), fits);
          if (fits) model[name] = {.name = name, .place = place, .tokens = tokens};
        }
      }
      ASSERT_EQ(index.size(), std::ssize(model));
      const RecordName asked = names[random() % names.size()];
      IndexedRecord record;
      const bool found = index.Find(asked, &record);
      ASSERT_EQ(found, model.contains(asked));
      if (!found) continue;
      const IndexedRecord& expected = model[asked];
      ASSERT_EQ(record.place, expected.place);
      ASSERT_EQ(record.hits, expected.hits);
      ASSERT_EQ(record.last_use, expected.last_use);
      ASSERT_EQ(record.tokens, expected.tokens);
    }
    for (uint32_t segment = 0; segment <= kSegments; ++segment) {
      std::set<RecordName> listed;
      index.ForEach(segment, [&](const IndexedRecord& record) {
        EXPECT_EQ(record.place.segment, segment);
        EXPECT_TRUE(listed.insert(record.name).second);
      });
      std::set<RecordName> expected;
      for (const auto& [name, record] : model) {
        if (record.place.segment == segment) expected.insert(name);
      }
      EXPECT_EQ(listed, expected);
    }
  }
}

TEST(RecordIndex, StaysBelow52BytesARecordAtAnySize) {
  constexpr int64_t kRecords = 200000;
  std::mt19937_64 random(1);
  RecordIndex index;
  ASSERT_TRUE(index.Allocate(kRecords));
  for (int64_t i = 1; i <= kRecords; ++i) {
    ASSERT_TRUE(index.Insert(RandomName(random), {static_cast<uint32_t>(i / 4000), 1}, 64));
    ASSERT_LE(index.touched_bytes(), 52 * i + 64) << i;
  }
  EXPECT_LE(RecordIndex::BytesFor(kRecords), 52 * kRecords);
  EXPECT_FALSE(index.Insert(RandomName(random), {0, 1}, 64));
}

TEST(RecordIndex, TheSameCallsAnswerTheSame) {
  std::vector<RecordName> order[2];
  for (auto& listed : order) {
    std::mt19937_64 random(3);
    RecordIndex index;
    ASSERT_TRUE(index.Allocate(1000));
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(index.Insert(RandomName(random), {static_cast<uint32_t>(i % 3), 1}, 64));
    }
    index.ForEach(1, [&](const IndexedRecord& record) { listed.push_back(record.name); });
  }
  EXPECT_EQ(order[0], order[1]);
  EXPECT_EQ(order[0].size(), 333u);
}

TEST(RecordIndex, AnIndexWithoutRoomIsEmpty) {
  RecordIndex index;
  ASSERT_TRUE(index.Allocate(0));
  IndexedRecord record;
  EXPECT_FALSE(index.Find({1, 2}, &record));
  EXPECT_FALSE(index.Insert({1, 2}, {0, 1}, 64));
  EXPECT_FALSE(index.Erase({1, 2}));
  EXPECT_FALSE(index.Allocate(int64_t{1} << 32));
}

}  // namespace
}  // namespace deepinfer
