#include "model/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace deepinfer {
namespace {

ModelConfig ReleasedRope() {
  ModelConfig config;  // widths and bases of the release
  config.rope_scaling = {16, 32, 1, 65536};
  return config;
}

// Recorded from the reference's rope_frequencies(). Bit for bit: an angle is position * frequency.
TEST(RopeFrequencies, PlainEqualsReference) {
  const std::vector<float> frequencies = RopeFrequencies(ReleasedRope(), false);
  ASSERT_EQ(frequencies.size(), 32u);
  EXPECT_EQ(frequencies[0], 1.0f);
  EXPECT_EQ(frequencies[1], 0x1.7ff222p-1f);
  EXPECT_EQ(frequencies[5], 0x1.e5a846p-3f);
  EXPECT_EQ(frequencies[15], 0x1.b4f7e4p-7f);
  EXPECT_EQ(frequencies[21], 0x1.36d21ap-9f);
  EXPECT_EQ(frequencies[31], 0x1.17a8e4p-13f);
}

TEST(RopeFrequencies, YarnEqualsReference) {
  const std::vector<float> frequencies = RopeFrequencies(ReleasedRope(), true);
  ASSERT_EQ(frequencies.size(), 32u);
  EXPECT_EQ(frequencies[0], 1.0f);
  EXPECT_EQ(frequencies[1], 0x1.601474p-1f);
  EXPECT_EQ(frequencies[15], 0x1.dc846ep-9f);
  EXPECT_EQ(frequencies[16], 0x1.28f5c2p-9f);
  EXPECT_EQ(frequencies[20], 0x1.37675ep-12f);
  EXPECT_EQ(frequencies[24], 0x1.47ae18p-16f);
  EXPECT_EQ(frequencies[25], 0x1.6887a0p-18f);
  EXPECT_EQ(frequencies[31], 0x1.30f89ap-21f);
}

TEST(RopeFrequencies, YarnKeepsFastPairsAndDividesSlowOnes) {
  ModelConfig config = ReleasedRope();
  const std::vector<float> scaled = RopeFrequencies(config, true);
  config.rope_scaling.original_max_position_embeddings = 0;
  const std::vector<float> plain = RopeFrequencies(config, true);
  for (size_t i = 0; i <= 15; ++i) EXPECT_EQ(scaled[i], plain[i]) << i;
  for (size_t i = 16; i < 25; ++i) {
    EXPECT_LT(scaled[i], plain[i]) << i;
    EXPECT_GT(scaled[i], plain[i] / 16) << i;
  }
  for (size_t i = 25; i < 32; ++i) EXPECT_EQ(scaled[i], plain[i] / 16) << i;
}

TEST(RopeFrequencies, OtherWidthsAndFactors) {
  ModelConfig config;  // tiny2
  config.qk_rope_head_dim = 32;
  config.rope_theta = 5000;
  config.compress_rope_theta = 40000;
  config.rope_scaling = {8, 16, 2, 256};
  const std::vector<float> plain = RopeFrequencies(config, false);
  const std::vector<float> scaled = RopeFrequencies(config, true);
  ASSERT_EQ(plain.size(), 16u);
  EXPECT_EQ(plain[7], 0x1.8a911cp-6f);
  EXPECT_EQ(plain[15], 0x1.651f02p-12f);
  EXPECT_EQ(scaled[1], 0x1.0805cep-1f);
  EXPECT_EQ(scaled[4], 0x1.8e3e18p-6f);
  EXPECT_EQ(scaled[15], 0x1.96af7ap-18f);
}

}  // namespace
}  // namespace deepinfer
