#include "model/engram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "model_fixture.h"

namespace deepinfer {
namespace {

ModelConfig ConfigOf(const std::string& model) {
  Result<Checkpoint> checkpoint = Checkpoint::Open(test::ModelFolder(model));
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  return checkpoint->config();
}

std::vector<int64_t> Rows(const Engram& engram, const ModelConfig& config, int slot, std::vector<int32_t> history) {
  std::vector<int64_t> rows(static_cast<size_t>(config.HashColumns()));
  engram.HashRows(slot, history, rows);
  return rows;
}

// Recorded from the reference's NgramHash on the ids 5, 300, 8000, 17, 2.
TEST(EngramHash, EqualsReferenceWithThreeGrams) {
  const ModelConfig config = ConfigOf("tiny2");
  Result<Engram> engram = Engram::Create(config, test::TestTokenMap());
  ASSERT_TRUE(engram.ok()) << engram.status().message();
  using Expected = std::vector<int64_t>;
  EXPECT_EQ(Rows(*engram, config, 0, {5}), (Expected{73, 399, 901, 1083, 1562, 1725}));
  EXPECT_EQ(Rows(*engram, config, 1, {5}), (Expected{67, 603, 970, 1107, 1425, 2140}));
  EXPECT_EQ(Rows(*engram, config, 0, {5, 300}), (Expected{20, 552, 872, 1021, 1432, 1745}));
  EXPECT_EQ(Rows(*engram, config, 0, {300, 8000, 17}), (Expected{243, 372, 838, 1140, 1576, 1809}));
  EXPECT_EQ(Rows(*engram, config, 1, {8000, 17, 2}), (Expected{21, 374, 862, 1309, 1419, 1963}));
}

TEST(EngramHash, EqualsReferenceWithFourGrams) {
  const ModelConfig config = ConfigOf("nano");
  Result<Engram> engram = Engram::Create(config, test::TestTokenMap());
  ASSERT_TRUE(engram.ok()) << engram.status().message();
  using Expected = std::vector<int64_t>;
  EXPECT_EQ(Rows(*engram, config, 0, {5}), (Expected{3705, 22054, 46191, 53994, 78470, 94871}));
  EXPECT_EQ(Rows(*engram, config, 1, {5, 300, 8000}), (Expected{10706, 30874, 39838, 50911, 77489, 83473}));
  EXPECT_EQ(Rows(*engram, config, 0, {300, 8000, 17, 2}), (Expected{14858, 21194, 33546, 53742, 68463, 88518}));
}

TEST(EngramHash, LooksAtCompressedIdsAndAtNothingBeyondTheLongestGram) {
  const ModelConfig config = ConfigOf("nano");
  const std::vector<int32_t> map = test::TestTokenMap();
  Result<Engram> engram = Engram::Create(config, map);
  ASSERT_TRUE(engram.ok());
  EXPECT_EQ(Rows(*engram, config, 0, {9, 300, 8000, 17, 2}), Rows(*engram, config, 0, {300, 8000, 17, 2}));
  // Two tokens that fold to the same text.
  int32_t second = 0;
  while (second == map[static_cast<size_t>(second)]) ++second;
  const auto first =
      static_cast<int32_t>(std::find(map.begin(), map.end(), map[static_cast<size_t>(second)]) - map.begin());
  ASSERT_LT(first, second);
  EXPECT_EQ(Rows(*engram, config, 0, {first, 4}), Rows(*engram, config, 0, {second, 4}));
}

TEST(EngramCreate, RefusesTokenMapsOfAnotherTokenizer) {
  const ModelConfig config = ConfigOf("tiny2");
  std::vector<int32_t> map = test::TestTokenMap();

  map.pop_back();
  Status status = Engram::Create(config, map).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("has 8191 ids, but vocab_size is 8192"), std::string::npos) << status.message();

  map.push_back(6661);
  status = Engram::Create(config, map).status();
  EXPECT_NE(status.message().find("holds id 6661, expected 0 to engram_compressed_vocab_size - 1 = 6660"),
            std::string::npos)
      << status.message();

  for (int32_t& id : map) id = id >= 6660 ? 0 : id;
  status = Engram::Create(config, map).status();
  EXPECT_NE(status.message().find("6660 distinct ids, but engram_compressed_vocab_size is 6661"), std::string::npos)
      << status.message();
}

TEST(EngramCreate, NeedsNoTokenMapWithoutEngramLayers) {
  ModelConfig config = ConfigOf("tiny2");
  config.engram_layer_ids.clear();
  EXPECT_TRUE(Engram::Create(config, {}).ok());
}

}  // namespace
}  // namespace deepinfer
