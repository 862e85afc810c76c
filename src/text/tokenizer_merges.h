// The merge rules of byte-level BPE and their application to one piece of text.
//
// A piece starts as single bytes; the adjacent pair with the lowest rank (the leftmost of equals) is merged until no
// rule applies. Short pieces scan for that pair, long ones keep a heap, so that a piece of n bytes costs O(n log n).
// Thread-safety: immutable after Build; the scratch belongs to one caller at a time.
#ifndef DEEPINFER_TEXT_TOKENIZER_MERGES_H_
#define DEEPINFER_TEXT_TOKENIZER_MERGES_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_vocabulary.h"

namespace deepinfer {

class TokenizerMerges {
 public:
  /// Working memory of Apply, kept between calls to spare allocations.
  struct Scratch {
    struct Symbol {
      int32_t id;
      uint32_t rank;  // of the pair that this symbol and the next one form; kNoRule once merged away
      uint32_t previous;
      uint32_t next;
    };
    struct BucketEntry {
      uint32_t position;  // of the left symbol
      uint32_t next;      // index into entries
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;        // rank << 32 | position of the left symbol
    std::vector<uint32_t> bucket;      // [rules] newest entry of each rank, kNone between calls
    std::vector<BucketEntry> entries;  // of all buckets
    std::vector<uint32_t> ranks;       // heap of the ranks whose bucket is not empty
    std::vector<uint32_t> batch;       // positions of one bucket in text order
  };

  /// How to find the next pair; kFastest decides by the length of the piece.
  enum class Method { kFastest, kScan, kHeap, kBuckets };

  /// Most tokens and most rules of one tokenizer (DeepSeek: 129 280 and 127 741).
  static constexpr size_t kMaxTokens = (size_t{1} << 21) - 1;
  static constexpr size_t kMaxRules = (size_t{1} << 22) - 1;

  /// Errors: too many tokens or rules, a merge of unknown tokens, to an unknown token, listed twice, or to an added
  /// token (plain text must never become one); a byte without a token or with an added one.
  static Result<TokenizerMerges> Build(const TokenizerDefinition& definition, const TokenizerVocabulary& vocabulary,
                                       const std::string& name);

  /// Appends the ids of `piece`, which has fewer than 2^32 bytes.
  void Apply(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out,
             Method method = Method::kFastest) const;

 private:
  static constexpr uint32_t kNoRule = UINT32_MAX;
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kLongestScan = 24;    // bytes; measured on English and Chinese
  static constexpr size_t kLongestHeap = 8192;  // bytes; above, the buckets of every rank are worth setting up

  // A rule in one word, so that a probe touches one cache line: left << 43 | right << 22 | rank.
  static constexpr int kIdBits = 21;
  static constexpr int kRankBits = 22;
  static constexpr uint64_t kEmptySlot = UINT64_MAX;

  static uint64_t PairKey(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << kIdBits | static_cast<uint64_t>(right);
  }

  // Where the search for a key starts; multiplication mixes into the upper bits.
  size_t Home(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u) >> shift_; }

  uint32_t Rank(int32_t left, int32_t right) const {
    const uint64_t key = PairKey(left, right);
    for (size_t at = Home(key);; at = (at + 1) & mask_) {
      const uint64_t slot = slots_[at];
      if (slot >> kRankBits == key) return slot & ((1u << kRankBits) - 1);
      if (slot == kEmptySlot) return kNoRule;
    }
  }

  void ApplyWithScan(std::string_view piece, std::vector<int32_t>* out) const;
  void ApplyWithHeap(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const;
  void ApplyWithBuckets(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const;

  // Fills scratch->symbols with the bytes of `piece`.
  void StartSymbols(std::string_view piece, Scratch* scratch) const;

  // Merges the pair that starts at `at`; calls `push(rank, position)` for the pairs this makes.
  template <typename Push>
  void Merge(uint32_t at, std::vector<Scratch::Symbol>* symbols, Push&& push) const;

  std::array<int32_t, 256> byte_id_{};    // token of every single byte
  std::vector<uint32_t> byte_pair_rank_;  // [256 * 256], so that a piece starts without hashing
  std::vector<int32_t> result_;           // [rank] token that the rule makes
  bool ranks_ascend_ = true;              // no rule can make a pair of a rank below its own: true of trained tables
  std::vector<uint64_t> slots_;           // open addressing, a power of two, at most half full
  size_t mask_ = 0;
  int shift_ = 0;  // 64 minus the bits of an index into slots_
};

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_TOKENIZER_MERGES_H_
