#include "base/counter_rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace deepinfer {
namespace {

TEST(CounterRng, PhiloxKnownAnswers) {
  // From the authors' test vectors for philox4x32 with ten rounds.
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRng, EveryCoordinateMatters) {
  std::set<uint64_t> values;
  for (uint64_t seed : {0ull, 1ull, 1ull << 32, ~0ull}) {
    for (uint64_t position : {0ull, 1ull, 1ull << 32}) {
      for (uint32_t lane : {0u, 1u, 2u, 129279u}) {
        for (RandomPurpose purpose : {RandomPurpose::kToken, RandomPurpose::kSeed}) {
          values.insert(CounterBits(seed, position, lane, purpose));
        }
      }
    }
  }
  EXPECT_EQ(values.size(), 4u * 3u * 4u * 2u);
}

TEST(CounterRng, OpenUnitStaysInside) {
  EXPECT_EQ(OpenUnit(0), 0x1p-53);
  EXPECT_EQ(OpenUnit(~uint64_t{0}), 1 - 0x1p-53);
  EXPECT_LT(OpenUnit(~uint64_t{0}), 1.0);
  EXPECT_TRUE(std::isfinite(Gumbel(0)));
  EXPECT_TRUE(std::isfinite(Gumbel(~uint64_t{0})));
}

TEST(CounterRng, GumbelBoundHolds) {
  for (int ones = 0; ones <= 64; ++ones) {
    const uint64_t top = ones == 0 ? 0 : ~uint64_t{0} << (64 - ones);
    for (uint64_t lane = 0; lane < 200; ++lane) {
      const uint64_t noise = CounterBits(7, lane, 0, RandomPurpose::kSeed);
      const uint64_t bits = ones >= 63 ? top : top | (noise >> (ones + 1));
      ASSERT_LE(Gumbel(bits), GumbelBound(bits)) << ones << " " << bits;
    }
    // The largest noise with this many leading ones.
    const uint64_t largest = ones == 64 ? ~uint64_t{0} : ~(uint64_t{1} << (63 - ones));
    ASSERT_LE(Gumbel(largest), GumbelBound(largest)) << ones;
  }
}

TEST(CounterRng, GumbelMoments) {
  double sum = 0, squares = 0;
  const int count = 200000;
  for (int i = 0; i < count; ++i) {
    const double value = Gumbel(CounterBits(1, i / 1000, i % 1000, RandomPurpose::kToken));
    sum += value;
    squares += value * value;
  }
  const double mean = sum / count;
  // Euler's constant and pi^2 / 6; standard errors are 0.003 and about 0.009.
  EXPECT_NEAR(mean, 0.5772, 0.015);
  EXPECT_NEAR(squares / count - mean * mean, 1.6449, 0.05);
}

}  // namespace
}  // namespace deepinfer
