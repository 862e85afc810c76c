// CompiledGrammar: a grammar bound to a vocabulary, shared by all requests that use it.
//
// What requests learn while they match (automaton states, masks) is kept here between requests: a Matcher borrows one
// such memory for itself and gives it back, so that the second request with a grammar finds its masks ready.
// Thread-safety: every method may be called from any thread at once. Ownership: shares the trie, owns the grammar.
// Errors: none past Make.
#ifndef DEEPINFER_GRAMMAR_COMPILED_GRAMMAR_H_
#define DEEPINFER_GRAMMAR_COMPILED_GRAMMAR_H_

#include <memory>
#include <mutex>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/recogniser.h"
#include "grammar/token_mask.h"
#include "grammar/token_trie.h"

namespace deepinfer {

struct MatcherLimits {
  RecogniserLimits recogniser;
  size_t max_mask_bytes = size_t{8} << 20;  ///< of remembered masks
};

class CompiledGrammar {
 public:
  /// What a matcher learns: the automaton as far as it was needed and the masks of its states.
  struct Memory {
    Memory(const Grammar* grammar, std::shared_ptr<const TokenTrie> trie, const MatcherLimits& limits);
    Recogniser recogniser;
    MaskBuilder masks;
  };

  static std::shared_ptr<const CompiledGrammar> Make(Grammar grammar, std::shared_ptr<const TokenTrie> trie,
                                                     const MatcherLimits& limits = {});

  const Grammar& grammar() const { return grammar_; }
  const TokenTrie& trie() const { return *trie_; }
  /// Bytes of the grammar and of the memories that nobody borrows, for a cache with a budget.
  size_t memory_bytes() const;

  std::unique_ptr<Memory> Borrow() const;
  void GiveBack(std::unique_ptr<Memory> memory) const;

 private:
  CompiledGrammar(Grammar grammar, std::shared_ptr<const TokenTrie> trie, const MatcherLimits& limits);

  Grammar grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  MatcherLimits limits_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Memory>> idle_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_COMPILED_GRAMMAR_H_
