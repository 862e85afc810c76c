// EngramHash: the table layout and hash constants of one Engram layer, derived from config.json (spec c.8).
//
// Row of an n-gram that ends at position p, column (order - 2) * heads + head:
//   mixed[order] = xor over u < order of id(p - u) * multipliers[u]   (compressed ids)
//   row          = mixed[order] mod primes[column] + offsets[column]
//
// Thread-safety: values and pure functions. Sources: spec c.8; the multipliers are what
// numpy.random.default_rng(10007 * layer).integers(0, bound, orders, int64) returns (numpy >= 1.17: SeedSequence,
// PCG64 XSL-RR, Lemire's bounded integers), reproduced exactly.
#ifndef DEEPINFER_CHECKPOINT_ENGRAM_HASH_H_
#define DEEPINFER_CHECKPOINT_ENGRAM_HASH_H_

#include <cstdint>
#include <vector>

namespace deepinfer {

struct EngramHash {
  int32_t layer = 0;                 ///< backbone layer whose input it changes
  std::vector<int64_t> multipliers;  ///< [engram_max_ngram_size], odd; a product with a compressed id is below 2^63
  std::vector<int64_t> primes;       ///< [hash columns], rows of each column's part of the table
  std::vector<int64_t> offsets;      ///< [hash columns], first row of each part
  int64_t rows = 0;                  ///< sum of the primes: rows of the table
};

struct EngramHashSettings {
  std::vector<int32_t> layers;        ///< engram_layer_ids
  int64_t max_ngram_size = 0;         ///< engram_max_ngram_size, >= 2
  int64_t heads = 0;                  ///< engram_n_heads
  int64_t vocab_size = 0;             ///< engram_vocab_size, <= 2^31: the smallest admissible prime
  int64_t compressed_vocab_size = 0;  ///< engram_compressed_vocab_size, <= 2^30
};

/// One entry per layer, in order. The primes are consecutive over all layers, none is used twice.
std::vector<EngramHash> DeriveEngramHashes(const EngramHashSettings& settings);

/// The first `count` values of numpy.random.default_rng(seed).integers(0, bound, dtype=int64), seed < 2^32 and
/// bound > 2^32.
std::vector<int64_t> NumpyIntegers(uint32_t seed, int64_t bound, int64_t count);

/// Whether a value below 2^32 is prime.
bool IsPrime(uint64_t value);

}  // namespace deepinfer

#endif  // DEEPINFER_CHECKPOINT_ENGRAM_HASH_H_
