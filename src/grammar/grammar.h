// Grammar: rules over terminals, the form into which every front end compiles.
//
// A terminal is a regular expression over bytes; a rule (nonterminal) is a small nondeterministic automaton whose edges
// carry terminals, rules or nothing. A text belongs to the grammar when it can be cut into terminals that spell the
// root; terminals may be ambiguous and overlap in any way, all cuts count. Repetition is a loop in an automaton.
// Invariants of a built grammar: from every state a final state is reachable over edges whose symbols have texts, so
// whatever the recogniser keeps alive can be completed.
// Thread-safety: immutable once built, but for the pool, which readers extend (regex_pool.h). Ownership: a value.
// Errors: kInvalidArgument when the root has no text, kResourceExhausted past the limits.
#ifndef DEEPINFER_GRAMMAR_GRAMMAR_H_
#define DEEPINFER_GRAMMAR_GRAMMAR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepinfer/status.h"
#include "grammar/regex_pool.h"

namespace deepinfer {

/// What an edge carries: kNone, a terminal or a rule.
class Symbol {
 public:
  Symbol() = default;
  static Symbol Terminal(int32_t index) { return Symbol(index + 1); }
  static Symbol Rule(int32_t index) { return Symbol(-index - 1); }
  bool IsNone() const { return code_ == 0; }
  bool IsTerminal() const { return code_ > 0; }
  bool IsRule() const { return code_ < 0; }
  int32_t index() const { return code_ > 0 ? code_ - 1 : -code_ - 1; }

 private:
  explicit Symbol(int32_t code) : code_(code) {}
  int32_t code_ = 0;
};

struct Grammar {
  struct Edge {
    Symbol symbol;
    int32_t target = 0;
  };
  struct State {
    int32_t first_edge = 0;
    int32_t edge_count = 0;
    bool final = false;
  };
  struct Rule {
    int32_t start = 0;
    bool nullable = false;
  };

  std::span<const Edge> EdgesOf(int32_t state) const {
    const State& at = states[static_cast<size_t>(state)];
    return {edges.data() + at.first_edge, static_cast<size_t>(at.edge_count)};
  }
  size_t memory_bytes() const;

  std::unique_ptr<RegexPool> pool;
  std::vector<RegexId> terminals;
  std::vector<Rule> rules;
  std::vector<State> states;
  std::vector<Edge> edges;
  int32_t root = 0;
};

/// How large a grammar may be; past a limit it is refused with kResourceExhausted.
struct GrammarLimits {
  size_t max_source_bytes = size_t{4} << 20;
  size_t max_regex_nodes = 2'000'000;
  size_t max_states = 500'000;
  size_t max_edges = 2'000'000;
  uint64_t max_work = 40'000'000;  ///< in units of RegexPool::work
};

class GrammarBuilder {
 public:
  explicit GrammarBuilder(const GrammarLimits& limits);

  RegexPool& pool() { return *pool_; }
  const GrammarLimits& limits() const { return limits_; }
  Symbol AddTerminal(RegexId regex);
  /// A rule with a start state and nothing else.
  int32_t AddRule();
  int32_t StartOf(int32_t rule) const { return starts_[static_cast<size_t>(rule)]; }
  int32_t AddState();
  void AddEdge(int32_t from, Symbol symbol, int32_t to);
  void AddJump(int32_t from, int32_t to) { AddEdge(from, Symbol(), to); }
  void SetFinal(int32_t state) { final_[static_cast<size_t>(state)] = true; }
  /// kResourceExhausted when a limit is passed already; for front ends that build much.
  Status CheckLimits() const;

  /// By rule, whether it has a text.
  Result<std::vector<bool>> RulesWithText();

  /// Leaves the builder empty. Removes what has no text; `empty_message` is the error when the root has none.
  Result<Grammar> Build(int32_t root, const std::string& empty_message);

 private:
  struct BuilderEdge {
    int32_t from;
    Symbol symbol;
    int32_t to;
  };
  /// Marks the states from which a final one is reachable over rules and usable terminals.
  std::vector<bool> Reaching(const std::vector<bool>& usable_terminals) const;

  GrammarLimits limits_;
  std::unique_ptr<RegexPool> pool_;
  std::vector<RegexId> terminals_;
  std::unordered_map<RegexId, int32_t> terminal_of_;
  std::vector<int32_t> starts_;
  std::vector<bool> final_;
  std::vector<BuilderEdge> edges_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_GRAMMAR_H_
