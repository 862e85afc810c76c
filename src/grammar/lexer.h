// Lexer: the terminals of a grammar matched side by side, as a deterministic automaton built while it is used.
//
// A state is the set of pairs (terminal, what is left of its expression). It depends on terminals only, so that all
// rows of the parser that expect the same terminals share states.
// Thread-safety: one thread. Ownership: refers to the grammar and the pool, which outlive it. Errors: an exhausted pool
// (regex_pool.h); the caller looks at it.
#ifndef DEEPINFER_GRAMMAR_LEXER_H_
#define DEEPINFER_GRAMMAR_LEXER_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/regex_pool.h"

namespace deepinfer {

class Lexer {
 public:
  static constexpr int32_t kDead = -1;

  Lexer(std::span<const RegexId> terminals, RegexPool* pool);

  /// The state at the start of any of `terminals` (sorted, unique).
  int32_t StartOf(const std::vector<int32_t>& terminals);
  /// The state after a byte of the class, or kDead.
  int32_t Step(int32_t state, uint8_t byte_class);
  /// A state that goes on alike for `length` bytes (RegexPool::WithoutHighCounts), without what is complete now.
  int32_t WithoutHighCounts(int32_t state, int length);
  /// The terminals that the bytes so far complete, sorted. Not for a state just started.
  std::span<const int32_t> CompletedIn(int32_t state) const { return states_[static_cast<size_t>(state)].completed; }
  /// Whether some terminal can go on.
  bool CanContinue(int32_t state) const { return !states_[static_cast<size_t>(state)].live.empty(); }
  size_t memory_bytes() const { return memory_; }

 private:
  struct Live {
    int32_t terminal;
    RegexId rest;
    bool operator==(const Live&) const = default;
  };
  struct State {
    std::vector<Live> live;
    std::vector<int32_t> completed;
    std::vector<int32_t> next;  // by class; kUnknown until asked for
  };
  static constexpr int32_t kUnknown = -2;

  int32_t Intern(State state);

  std::span<const RegexId> terminals_;
  RegexPool* pool_;
  size_t classes_;
  std::vector<State> states_;
  std::unordered_multimap<uint64_t, int32_t> index_;
  size_t memory_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_LEXER_H_
