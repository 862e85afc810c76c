// Pair order of FP4 codes (ops/cuda/fp4_pairs.h), checked without a GPU: what the kernels' masks take out of a word are
// the values of E2M1, and no bit is lost.
#include "ops/cuda/fp4_pairs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace deepinfer::cuda {
namespace {

/// Code i of a word in pair order, as the products decode it: BF16 bits times 2^126.
float Decoded(uint32_t word, int i) {
  uint32_t pairs[4] = {};
  SplitFp4(word, TurnFp4(word), pairs);
  const uint32_t bits = i < 4 ? pairs[i] << 16 : pairs[i - 4] & 0xffff0000u;
  return std::bit_cast<float>(bits) * 0x1p126f;
}

void ExpectValues(uint32_t released) {
  const uint32_t word = ToPairOrder(released);
  for (int i = 0; i < 8; ++i) {
    const float expected = E2m1ToFloat(static_cast<uint8_t>(released >> (4 * i) & 15));
    const float actual = Decoded(word, i);
    // Zeros have signs.
    ASSERT_EQ(std::bit_cast<uint32_t>(actual), std::bit_cast<uint32_t>(expected))
        << "code " << i << " of " << std::hex << released << ", in pair order " << word;
  }
  ASSERT_EQ(FromPairOrder(word), released) << std::hex << released;
}

TEST(Fp4Pairs, EveryCodeAtEveryPlaceHasItsValue) {
  for (int i = 0; i < 8; ++i) {
    for (uint32_t code = 0; code < 16; ++code) {
      // Beside zeros, beside ones.
      ExpectValues(code << (4 * i));
      ExpectValues(~(15u << (4 * i)) | code << (4 * i));
    }
  }
}

TEST(Fp4Pairs, EveryTwoCodesOfAWord) {
  // What pair 3 takes comes from a product: no two bits of a word may add up.
  for (int first = 0; first < 8; ++first) {
    for (int second = 0; second < first; ++second) {
      for (uint32_t codes = 0; codes < 256; ++codes) {
        ExpectValues((codes & 15) << (4 * first) | codes >> 4 << (4 * second));
      }
    }
  }
  uint32_t word = 1;
  for (int n = 0; n < 100'000; ++n) {
    word = word * 1664525u + 1013904223u;
    ExpectValues(word ^ word >> 15);
  }
}

TEST(Fp4Pairs, EveryBitHasAPlaceOfItsOwn) {
  uint32_t taken = 0;
  for (int bit = 0; bit < 32; ++bit) {
    const uint32_t place = ToPairOrder(1u << bit);
    EXPECT_TRUE(std::has_single_bit(place)) << bit;
    EXPECT_EQ(taken & place, 0u) << bit;
    EXPECT_EQ(FromPairOrder(place), 1u << bit);
    taken |= place;
  }
  EXPECT_EQ(taken, ~0u);
}

static_assert(ToPairOrder(0) == 0 && FromPairOrder(ToPairOrder(0x76543210u)) == 0x76543210u);

}  // namespace
}  // namespace deepinfer::cuda
