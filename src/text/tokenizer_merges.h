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
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank << 32 | position of the left symbol
  };

  /// Errors: a merge of unknown tokens, to an unknown token, listed twice; a byte without a token.
  static Result<TokenizerMerges> Build(const TokenizerDefinition& definition, const TokenizerVocabulary& vocabulary,
                                       const std::string& name);

  /// Appends the ids of `piece`, which has fewer than 2^32 bytes.
  void Apply(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const;

  /// Apply with the heap whatever the length: what the scan is tested against.
  void ApplyWithHeap(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const;

 private:
  static constexpr uint32_t kNoRule = UINT32_MAX;
  static constexpr size_t kLongestScan = 64;  // bytes

  struct Slot {
    int32_t left = -1;  // -1: empty
    int32_t right = -1;
    uint32_t rank = kNoRule;
  };

  static size_t Hash(int32_t left, int32_t right) {
    const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    return static_cast<size_t>((pair * 0x9E3779B97F4A7C15u) >> 20);
  }

  uint32_t Rank(int32_t left, int32_t right) const {
    for (size_t at = Hash(left, right) & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.left == left && slot.right == right) return slot.rank;
      if (slot.left < 0) return kNoRule;
    }
  }

  void ApplyWithScan(std::string_view piece, std::vector<int32_t>* out) const;

  std::array<int32_t, 256> byte_id_{};    // token of every single byte
  std::vector<uint32_t> byte_pair_rank_;  // [256 * 256], so that a piece starts without hashing
  std::vector<int32_t> result_;           // [rank] token that the rule makes
  std::vector<Slot> slots_;               // open addressing, a power of two, at most half full
  size_t mask_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_TOKENIZER_MERGES_H_
