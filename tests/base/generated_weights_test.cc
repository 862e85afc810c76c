#include "base/generated_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"

namespace deepinfer {
namespace {

WeightRecipe Floats(WeightRecipe::Kind kind, float mean, float deviation) {
  WeightRecipe recipe;
  recipe.kind = kind;
  recipe.seed = 5;
  recipe.mean = mean;
  recipe.deviation = deviation;
  return recipe;
}

TEST(GeneratedWeights, AddressesAreFoundWhileTheObjectLives) {
  int ordinary = 0;
  EXPECT_FALSE(GeneratedWeights::Find(&ordinary).has_value());
  EXPECT_FALSE(GeneratedWeights::Find(nullptr).has_value());
  const uint8_t* second = nullptr;
  {
    const auto other = GeneratedWeights::Reserve(1 << 20).value();
    const auto weights = GeneratedWeights::Reserve(int64_t{1} << 40).value();  // no memory is taken
    weights->Add(Floats(WeightRecipe::Kind::kF32, 1, 0), 1000);
    second = weights->Add(Floats(WeightRecipe::Kind::kF32, 2, 0), int64_t{1} << 39);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % GeneratedWeights::kAlignment, 0u);
    const auto place = GeneratedWeights::Find(second + 77);
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(place->recipe.mean, 2);
    EXPECT_EQ(place->offset, 77);
    EXPECT_EQ(GeneratedWeights::Find(second - 1)->recipe.mean, 1);
    EXPECT_FALSE(GeneratedWeights::Find(second + (int64_t{1} << 39)).has_value());
  }
  EXPECT_FALSE(GeneratedWeights::Find(second).has_value());
}

TEST(GeneratedWeights, BytesAreAFunctionOfTheirIndex) {
  WeightRecipe recipe = Floats(WeightRecipe::Kind::kTable, 0, 0);
  for (size_t i = 0; i < 256; ++i) recipe.table[i] = static_cast<uint8_t>(i);
  std::vector<uint8_t> whole(1000);
  FillGenerated(recipe, 0, 1000, whole.data());
  for (const auto& [offset, bytes] : {std::pair{0, 3}, {3, 5}, {7, 20}, {40, 8}, {993, 7}, {11, 0}}) {
    std::vector<uint8_t> part(static_cast<size_t>(bytes) + 1, 0xee);
    FillGenerated(recipe, offset, bytes, part.data());
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + offset, static_cast<size_t>(bytes)), 0) << offset;
    EXPECT_EQ(part.back(), 0xee);
  }
  const auto weights = GeneratedWeights::Reserve(1 << 16).value();
  weights->Add(recipe, 100);
  const uint8_t* readable = weights->AddReadable(recipe, 1000).value();
  EXPECT_EQ(std::memcmp(readable, whole.data(), 1000), 0);
}

TEST(GeneratedWeights, ValuesHaveTheAskedMeanAndDeviation) {
  constexpr int kCount = 1 << 16;
  std::vector<float> f32(kCount);
  FillGenerated(Floats(WeightRecipe::Kind::kF32, 1, 0.25f), 0, kCount * 4, reinterpret_cast<uint8_t*>(f32.data()));
  std::vector<uint16_t> bf16(kCount);
  FillGenerated(Floats(WeightRecipe::Kind::kBF16, 1, 0.25f), 0, kCount * 2, reinterpret_cast<uint8_t*>(bf16.data()));
  std::vector<float> widened;
  for (const uint16_t bits : bf16) widened.push_back(Bf16ToFloat(bits));
  for (const std::vector<float>& values : {f32, widened}) {
    double sum = 0, squares = 0;
    for (const float value : values) {
      sum += value;
      squares += (value - 1.0) * (value - 1.0);
      EXPECT_LT(std::abs(value - 1), 0.25 * 3.3);
    }
    EXPECT_NEAR(sum / kCount, 1, 0.005);
    EXPECT_NEAR(std::sqrt(squares / kCount), 0.25, 0.005);
  }

  WeightRecipe scales = Floats(WeightRecipe::Kind::kScales, 0, 0);
  scales.scale = 120;
  std::vector<uint8_t> bytes(kCount);
  FillGenerated(scales, 0, kCount, bytes.data());
  EXPECT_NEAR(static_cast<double>(std::count(bytes.begin(), bytes.end(), 120)), kCount / 2, 600);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 120) + std::count(bytes.begin(), bytes.end(), 119), kCount);
}

TEST(GeneratedWeights, HyperConnectionOffsets) {
  WeightRecipe recipe = Floats(WeightRecipe::Kind::kF32, 0, 0);
  recipe.streams = 3;
  recipe.read_offset = -1;
  std::vector<float> values(15);
  FillGenerated(recipe, 0, 60, reinterpret_cast<uint8_t*>(values.data()));
  EXPECT_EQ(values, (std::vector<float>{-1, -1, -1, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 3}));
}

}  // namespace
}  // namespace deepinfer
