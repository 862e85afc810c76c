// The token table: bytes of every id, and the id of a byte string.
//
// Invariants: (1) ids are 0 .. size()-1 without gaps; (2) Find sees only ordinary tokens, those whose spelling lies in
// the byte alphabet; a spelling outside of it (a control token listed in the vocabulary) stands for its own UTF-8.
// Thread-safety: immutable after Build. Ownership: views point into the table.
#ifndef DEEPINFER_TEXT_TOKENIZER_VOCABULARY_H_
#define DEEPINFER_TEXT_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"
#include "text/tokenizer_json.h"

namespace deepinfer {

class TokenizerVocabulary {
 public:
  static constexpr int32_t kAbsent = -1;

  /// Merges vocabulary and added tokens of `definition`. `name` stands for the file in errors: duplicate ids or
  /// spellings, gaps, an added token whose id contradicts the vocabulary.
  static Result<TokenizerVocabulary> Build(const TokenizerDefinition& definition, const std::string& name);

  int32_t size() const { return static_cast<int32_t>(flags_.size()); }
  bool Contains(int32_t id) const { return id >= 0 && id < size(); }

  /// Of an id that Contains accepts.
  std::string_view Bytes(int32_t id) const {
    return std::string_view(bytes_).substr(begin_[id], begin_[id + 1] - begin_[id]);
  }
  bool IsAdded(int32_t id) const { return (flags_[id] & kAdded) != 0; }
  bool IsSpecial(int32_t id) const { return (flags_[id] & kSpecial) != 0; }
  bool IsOrdinary(int32_t id) const { return (flags_[id] & kOrdinary) != 0; }

  /// The ordinary token with exactly these bytes, or kAbsent.
  int32_t Find(std::string_view bytes) const {
    if (bytes.size() > longest_) return kAbsent;
    const uint64_t hash = Hash(bytes);
    for (size_t at = hash & mask_;; at = (at + 1) & mask_) {
      const Slot slot = slots_[at];
      if (slot.id == kAbsent) return kAbsent;
      if (slot.tag == static_cast<uint32_t>(hash >> 32) && Bytes(slot.id) == bytes) return slot.id;
    }
  }

 private:
  static constexpr uint8_t kAdded = 1;
  static constexpr uint8_t kSpecial = 2;
  static constexpr uint8_t kOrdinary = 4;

  struct Slot {
    uint32_t tag = 0;  // upper half of the hash
    int32_t id = kAbsent;
  };

  static uint64_t Hash(std::string_view bytes);

  std::string bytes_;            // of all tokens, in the order of ids
  std::vector<uint32_t> begin_;  // [size + 1]
  std::vector<uint8_t> flags_;   // [size]
  std::vector<Slot> slots_;      // open addressing, a power of two, at most half full
  size_t mask_ = 0;
  size_t longest_ = 0;  // bytes of the longest ordinary token
};

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_TOKENIZER_VOCABULARY_H_
