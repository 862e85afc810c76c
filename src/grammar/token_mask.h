// TokenMask and MaskBuilder: which tokens a grammar admits at a state of its recogniser.
//
// The mask of a state is made by walking the token trie with the recogniser; parts of plain text that the state admits
// or refuses as a whole are not walked. Masks are kept per state, short ones as lists.
// Invariant: a token is in the mask exactly when the state after its bytes is not dead, that is, when some text of the
// grammar begins with the text so far and the token.
// Thread-safety: one thread. Ownership: refers to the recogniser; shares the trie. Errors: an exhausted recogniser
// (recogniser.h); the mask then means nothing.
#ifndef DEEPINFER_GRAMMAR_TOKEN_MASK_H_
#define DEEPINFER_GRAMMAR_TOKEN_MASK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/recogniser.h"
#include "grammar/token_trie.h"

namespace deepinfer {

struct TokenMask {
  std::vector<int32_t> tokens;  ///< the tokens admitted, sorted, when `bits` is empty
  std::vector<uint32_t> bits;   ///< else a bit per token

  void CopyTo(std::span<uint32_t> words) const;
};

class MaskBuilder {
 public:
  MaskBuilder(std::shared_ptr<const TokenTrie> trie, Recogniser* recogniser, size_t max_bytes);

  /// Valid until the next call.
  const TokenMask& MaskOf(int32_t state);
  /// Of the masks that are kept.
  size_t memory_bytes() const { return bytes_; }
  /// Forgets all masks; with Recogniser::Clear.
  void Clear();

 private:
  /// The states after one more plain character, from any of a set of states.
  struct CharacterStep {
    std::vector<int32_t> next;  // sorted
    bool all_live = true;       // no character is refused
  };
  enum class Verdict { kAll, kNone, kSome };

  TokenMask Compute(int32_t state);
  void WalkPart(const TokenTrie::Part& part, int32_t state);
  const CharacterStep& StepOf(int32_t state);
  /// For each part, whether the state admits all, none or some of its tokens.
  std::vector<Verdict> Judge(int32_t state);

  std::shared_ptr<const TokenTrie> trie_;
  Recogniser* recogniser_;
  size_t max_bytes_;
  size_t bytes_ = 0;
  std::unordered_map<int32_t, TokenMask> masks_;
  std::unordered_map<int32_t, CharacterStep> steps_;
  std::vector<int32_t> path_;
  std::vector<int32_t> found_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_TOKEN_MASK_H_
