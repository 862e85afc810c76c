// Recogniser: an Earley parser over lexemes whose rows and positions are interned, so that it behaves as a
// deterministic automaton over bytes that is built while it is used.
//
// A row is what the parser may do at a place where a lexeme ended: which terminals it expects, which rules are waited
// for, and whether the text may end. Items name the row where their rule began by its id, never by its position in the
// text; so a row is a value, equal situations are one row, and the row determines everything that can follow. A
// position (State) is the set of pairs (row, lexer state): all the cuts of the text so far into lexemes.
// docs/grammar.md has the proof sketch. Invariants: 1. every state but kDead is the beginning of some text of the
// grammar; 2. states are never changed, only added, until Clear. Thread-safety: one thread. Ownership: refers to the
// grammar, which outlives it. Errors: past a limit `exhausted()` turns true, answers mean nothing and the caller clears
// or gives up.
#ifndef DEEPINFER_GRAMMAR_RECOGNISER_H_
#define DEEPINFER_GRAMMAR_RECOGNISER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/lexer.h"

namespace deepinfer {

struct RecogniserLimits {
  size_t max_bytes = size_t{24} << 20;  ///< of all states, rows and derivatives
  size_t max_items_per_row = 200'000;   ///< work to make one row
  size_t max_regex_nodes = 500'000;     ///< derivatives beyond the grammar's own expressions
  uint64_t max_work = 1'200'000;        ///< of one question, in units of RegexPool::work
};

class Recogniser {
 public:
  static constexpr int32_t kDead = -1;

  Recogniser(const Grammar* grammar, const RecogniserLimits& limits);

  /// The state before any text. Stays the same after Clear.
  int32_t start() const { return start_; }
  /// The state after `byte`, or kDead.
  int32_t Step(int32_t state, uint8_t byte) {
    const int32_t next = next_[static_cast<size_t>(state) * class_count_ + class_of_[byte]];
    return next != kUnknown ? next : ComputeStep(state, class_of_[byte]);
  }
  /// The state after `text`, or kDead.
  int32_t Walk(int32_t state, std::string_view text);
  /// Whether the text so far belongs to the grammar.
  bool Accepts(int32_t state) const { return states_[static_cast<size_t>(state)].accepts; }

  /// A state in which the same byte strings of at most `length` bytes may follow; one for many that differ in counts
  /// only. Always asked with one length.
  int32_t WithoutHighCounts(int32_t state, size_t length);

  /// Begins to count work: what follows may do as much as the limit. Without it, and after Clear, there is none.
  void BeginWork() { pool_->LimitWork(limits_.max_work); }
  /// Whether that is why it is exhausted.
  bool over_work() const { return pool_->over_work(); }
  /// Work done since Clear, in units of RegexPool::work.
  uint64_t work() const { return pool_->work(); }

  bool exhausted() const { return exhausted_; }
  size_t state_count() const { return states_.size(); }
  size_t memory_bytes() const;
  /// Forgets all states but the start.
  void Clear();

 private:
  static constexpr int32_t kUnknown = -2;
  static constexpr int32_t kHere = -1;    ///< origin: the row that holds the item
  static constexpr int32_t kBottom = -2;  ///< origin: of the root, before any text

  /// A rule under way: where it is, which rule is complete when it ends, the row in which that one began.
  struct Item {
    int32_t state;
    int32_t completes;
    int32_t origin;
    auto operator<=>(const Item&) const = default;
  };
  /// An item behind a symbol: `item` is what becomes of it once `symbol` (a rule or a terminal) is there.
  struct Pending {
    int32_t symbol;
    Item item;
    auto operator<=>(const Pending&) const = default;
  };
  struct Row {
    std::vector<Pending> waits;  // for rules, sorted
    std::vector<Pending> scans;  // for terminals, sorted
    bool accepts = false;
    int32_t lexer_start = 0;
  };
  struct Thread {
    int32_t row;
    int32_t lexer;
    auto operator<=>(const Thread&) const = default;
  };
  struct State {
    std::vector<Thread> threads;  // sorted
    bool accepts = false;
  };

  int32_t ComputeStep(int32_t state, uint8_t byte_class);
  /// The row of `kernel` and all that follows from it without a byte; kDead when nothing does.
  int32_t InternRow(std::vector<Item> kernel);
  void Close(const std::vector<Item>& kernel, Row* row);
  int32_t InternState(State state);

  const Grammar* grammar_;
  RecogniserLimits limits_;
  std::unique_ptr<RegexPool> pool_;
  std::unique_ptr<Lexer> lexer_;
  std::array<uint8_t, 256> class_of_{};
  size_t class_count_ = 0;
  int32_t start_ = 0;
  bool exhausted_ = false;
  size_t row_bytes_ = 0;
  std::vector<Row> rows_;
  std::unordered_multimap<uint64_t, int32_t> row_index_;
  std::vector<State> states_;
  std::unordered_multimap<uint64_t, int32_t> state_index_;
  std::vector<int32_t> next_;  // [state][class]
  std::unordered_map<int32_t, int32_t> without_high_counts_;
  // Scratch of Close.
  std::vector<Item> items_;
  std::vector<int32_t> slots_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_RECOGNISER_H_
