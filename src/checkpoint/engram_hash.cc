#include "checkpoint/engram_hash.h"

#include <array>
#include <cassert>
#include <cstddef>
#include <limits>

namespace deepinfer {
namespace {

using uint128_t = unsigned __int128;

// numpy's SeedSequence (O'Neill's seed_seq) for one 32-bit word of entropy.
class SeedSequence {
 public:
  explicit SeedSequence(uint32_t entropy) {
    uint32_t constant = 0x43b0d7e5;
    const auto hash = [&constant](uint32_t value) {
      value ^= constant;
      constant *= 0x931e8875;
      value *= constant;
      return value ^ (value >> 16);
    };
    for (size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(i == 0 ? entropy : 0);
    for (size_t source = 0; source < pool_.size(); ++source) {
      for (size_t target = 0; target < pool_.size(); ++target) {
        if (source == target) continue;
        const uint32_t mixed = 0xca01f9ddu * pool_[target] - 0x4973f715u * hash(pool_[source]);
        pool_[target] = mixed ^ (mixed >> 16);
      }
    }
  }

  // generate_state(4, uint64)
  std::array<uint64_t, 4> State() const {
    std::array<uint64_t, 4> state{};
    uint32_t constant = 0x8b51f9dd;
    for (size_t word = 0; word < 2 * state.size(); ++word) {
      uint32_t value = pool_[word % pool_.size()] ^ constant;
      constant *= 0x58f38ded;
      value *= constant;
      value ^= value >> 16;
      state[word / 2] |= static_cast<uint64_t>(value) << (32 * (word % 2));
    }
    return state;
  }

 private:
  std::array<uint32_t, 4> pool_;
};

// PCG64 (XSL-RR 128/64) as numpy seeds it.
class Pcg64 {
 public:
  explicit Pcg64(uint32_t seed) {
    const std::array<uint64_t, 4> words = SeedSequence(seed).State();
    increment_ = (((static_cast<uint128_t>(words[2]) << 64) | words[3]) << 1) | 1;
    Step();
    state_ += (static_cast<uint128_t>(words[0]) << 64) | words[1];
    Step();
  }

  uint64_t Next() {
    Step();
    const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    const int turn = static_cast<int>(state_ >> 122);
    return (folded >> turn) | (folded << ((64 - turn) & 63));
  }

 private:
  void Step() {
    constexpr uint128_t kMultiplier = (static_cast<uint128_t>(0x2360ed051fc65da4) << 64) | 0x4385df649fccf645;
    state_ = state_ * kMultiplier + increment_;
  }

  uint128_t state_ = 0;
  uint128_t increment_ = 0;
};

// base^exponent mod modulus, all below 2^32.
uint64_t PowerMod(uint64_t base, uint64_t exponent, uint64_t modulus) {
  uint64_t result = 1;
  for (base %= modulus; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result = result * base % modulus;
    base = base * base % modulus;
  }
  return result;
}

}  // namespace

std::vector<int64_t> NumpyIntegers(uint32_t seed, int64_t bound, int64_t count) {
  assert(bound > int64_t{1} << 32);  // smaller ranges take numpy's 32-bit path
  Pcg64 generator(seed);
  const uint64_t range = static_cast<uint64_t>(bound);
  const uint64_t threshold = (std::numeric_limits<uint64_t>::max() - range + 1) % range;
  std::vector<int64_t> values;
  while (static_cast<int64_t>(values.size()) < count) {
    const uint128_t product = static_cast<uint128_t>(generator.Next()) * range;
    if (static_cast<uint64_t>(product) >= threshold) values.push_back(static_cast<int64_t>(product >> 64));
  }
  return values;
}

bool IsPrime(uint64_t value) {
  for (const uint64_t divisor : {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}) {
    if (value % divisor == 0) return value == divisor;
  }
  if (value < 2) return false;
  // Miller-Rabin; bases 2, 7 and 61 decide every value below 4 759 123 141.
  const int shift = __builtin_ctzll(value - 1);
  for (const uint64_t base : {2, 7, 61}) {
    if (base % value == 0) continue;
    uint64_t power = PowerMod(base, (value - 1) >> shift, value);
    bool witness = power != 1 && power != value - 1;
    for (int i = 1; i < shift && witness; ++i) {
      power = power * power % value;
      witness = power != value - 1;
    }
    if (witness) return false;
  }
  return true;
}

std::vector<EngramHash> DeriveEngramHashes(const EngramHashSettings& settings) {
  const int64_t columns = (settings.max_ngram_size - 1) * settings.heads;
  const int64_t bound = std::numeric_limits<int64_t>::max() / settings.compressed_vocab_size / 2;
  std::vector<EngramHash> hashes;
  int64_t candidate = settings.vocab_size;
  for (const int32_t layer : settings.layers) {
    EngramHash hash;
    hash.layer = layer;
    for (const int64_t value : NumpyIntegers(10007u * static_cast<uint32_t>(layer), bound, settings.max_ngram_size)) {
      hash.multipliers.push_back(2 * value + 1);
    }
    for (; static_cast<int64_t>(hash.primes.size()) < columns; ++candidate) {
      if (!IsPrime(static_cast<uint64_t>(candidate))) continue;
      hash.offsets.push_back(hash.rows);
      hash.primes.push_back(candidate);
      hash.rows += candidate;
    }
    hashes.push_back(std::move(hash));
  }
  return hashes;
}

}  // namespace deepinfer
