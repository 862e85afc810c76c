#include "base/counter_rng.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace deepinfer {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{0xD2511F53} * counter[0];
    const uint64_t right = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(right >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(right),
               static_cast<uint32_t>(left >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(left)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

uint64_t CounterBits(uint64_t seed, uint64_t position, uint32_t lane, RandomPurpose purpose) {
  // One block serves two neighbouring lanes.
  const std::array<uint32_t, 4> block =
      Philox4x32({lane / 2, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                  static_cast<uint32_t>(purpose)},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const size_t half = (lane & 1) * 2;
  return uint64_t{block[half + 1]} << 32 | block[half];
}

double OpenUnit(uint64_t bits) {
  // 52 bits and a half: one more bit and the largest value would round to 1.
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

double Gumbel(uint64_t bits) { return -std::log(-std::log(OpenUnit(bits))); }

double GumbelBound(uint64_t bits) {
  // -log u >= 1 - u, so the noise is at most -log(1 - u); and 1 - u >= 2^-(k+1) when the top k bits are ones.
  constexpr double kLog2 = 0.6931471805599454;  // a little above ln 2
  const int ones = std::min(std::countl_one(bits | 0xfff), 52);
  return (ones + 1) * kLog2;
}

}  // namespace deepinfer
