// Keys: the chain depends on everything that it should, and on nothing else.
#include "cache/kv_key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace deepinfer {
namespace {

std::vector<int32_t> Ids(size_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 7);
  return ids;
}

TEST(KvKey, HexGoesBothWaysAndRefusesTheRest) {
  const KvScope scope = KvScope::Make(KvNamespace::Make("{}", 1, 2), "exact", "salt");
  const std::string text = ToHex(scope.root);
  ASSERT_EQ(text.size(), 64u);
  EXPECT_EQ(ToHex(scope.root, 8), text.substr(0, 16));
  KvKey back;
  ASSERT_TRUE(FromHex(text, &back));
  EXPECT_EQ(back, scope.root);
  EXPECT_FALSE(FromHex(text.substr(1), &back));
  EXPECT_FALSE(FromHex(text + "00", &back));
  EXPECT_FALSE(FromHex("g" + text.substr(1), &back));
  EXPECT_FALSE(FromHex("A" + text.substr(1), &back));
}

TEST(KvKey, NamespacesDifferInDescriptionAndSizes) {
  std::set<std::string> fingerprints;
  for (const char* description : {"{}", R"({"model": "a"})"}) {
    for (const int64_t block_bytes : {1, 11}) {
      for (const int64_t rings_bytes : {1, 11}) {
        fingerprints.insert(ToHex(KvNamespace::Make(description, block_bytes, rings_bytes).fingerprint));
      }
    }
  }
  EXPECT_EQ(fingerprints.size(), 8u);
}

TEST(KvKey, ScopesDifferInNamespaceModeAndSalt) {
  const KvNamespace one = KvNamespace::Make("{}", 1, 2);
  const KvNamespace two = KvNamespace::Make("{}", 2, 2);
  std::set<std::string> roots;
  for (const KvNamespace& name_space : {one, two}) {
    for (const char* mode : {"exact", "bounded"}) {
      // Lengths are part of it: a salt cannot imitate the mode and a shorter salt.
      for (const char* salt : {"", "a", "0 ", "1 a"}) roots.insert(ToHex(KvScope::Make(name_space, mode, salt).root));
    }
  }
  EXPECT_EQ(roots.size(), 16u);
}

TEST(KvKey, AKeyNamesItsWholePrefixAndNothingBehind) {
  const KvScope scope = KvScope::Make(KvNamespace::Make("{}", 1, 2), "exact", "");
  const std::vector<int32_t> ids = Ids(35);
  std::vector<KvKey> keys;
  ExtendKeys(scope.root, ids, 8, &keys);
  ASSERT_EQ(keys.size(), 4u);  // the block that is not full has none

  for (size_t changed = 0; changed < ids.size(); ++changed) {
    std::vector<int32_t> other_ids = ids;
    ++other_ids[changed];
    std::vector<KvKey> other;
    ExtendKeys(scope.root, other_ids, 8, &other);
    for (size_t block = 0; block < keys.size(); ++block) {
      EXPECT_EQ(other[block] == keys[block], block < changed / 8) << changed << " " << block;
    }
  }
  std::vector<KvKey> of_other_scope;
  ExtendKeys(KvScope::Make(KvNamespace::Make("{}", 1, 2), "exact", "x").root, ids, 8, &of_other_scope);
  EXPECT_NE(of_other_scope[0], keys[0]);
}

TEST(KvKey, KeysExtendPieceByPiece) {
  const KvScope scope = KvScope::Make(KvNamespace::Make("{}", 1, 2), "exact", "");
  const std::vector<int32_t> ids = Ids(64);
  std::vector<KvKey> whole;
  ExtendKeys(scope.root, ids, 8, &whole);
  std::vector<KvKey> grown;
  for (size_t count = 0; count <= ids.size(); count += 5)
    ExtendKeys(scope.root, std::span(ids).first(count), 8, &grown);
  ExtendKeys(scope.root, ids, 8, &grown);
  EXPECT_EQ(grown, whole);
}

}  // namespace
}  // namespace deepinfer
