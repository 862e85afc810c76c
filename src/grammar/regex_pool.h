// RegexPool: regular expressions over bytes as hash-consed trees, with intersection and complement, matched by
// Brzozowski derivatives.
//
// Equal trees have equal ids, and the constructors simplify (unions and intersections are sorted sets, nothing and the
// empty text vanish), so the derivatives of an expression are finitely many in practice; a limit ends the cases where
// they are not. A pool may extend another one, which then is only read: ids of the base stay valid in the extension.
// Invariants: 1. an id never changes its meaning; 2. a plain expression (no And, Not or Multiple in it) other than
// kNothing has a word, and one other than kEmptyText has a word that is not empty.
// Thread-safety: one thread writes; a pool that is only a base may be read by any number of extensions at once.
// Ownership: the base outlives its extensions. Errors: past its limits a pool is `exhausted()`, new expressions are
// kNothing and the caller must give up with a Status.
// Source: Owens, Reppy, Turon, "Regular-expression derivatives re-examined" (2009); spec serving.md section 10.5.
#ifndef DEEPINFER_GRAMMAR_REGEX_POOL_H_
#define DEEPINFER_GRAMMAR_REGEX_POOL_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grammar/byte_set.h"

namespace deepinfer {

using RegexId = int32_t;

class RegexPool {
 public:
  static constexpr RegexId kNothing = 0;    ///< no text at all
  static constexpr RegexId kEmptyText = 1;  ///< only the empty text
  static constexpr RegexId kAnything = 2;   ///< every byte string
  static constexpr int kUnbounded = -1;

  explicit RegexPool(size_t max_nodes = 1'000'000);
  /// Extends `base`.
  RegexPool(const RegexPool* base, size_t max_nodes);

  RegexId Bytes(const ByteSet& set);
  RegexId Text(std::string_view text);
  /// Exactly these, as a tree by common beginnings.
  RegexId AnyOfTexts(std::vector<std::string> texts);
  RegexId Concat(RegexId first, RegexId second);
  RegexId Sequence(std::initializer_list<RegexId> parts);
  RegexId Or(std::vector<RegexId> parts);
  /// The same with common beginnings drawn together; for long lists of words.
  RegexId Either(std::vector<RegexId> parts) { return Either(std::move(parts), 0); }
  RegexId And(std::vector<RegexId> parts);
  RegexId Not(RegexId part);
  /// `part` at least `least` times and at most `most` times, or without bound for kUnbounded.
  RegexId Repeat(RegexId part, int least, int most);
  RegexId Optional(RegexId part) { return Repeat(part, 0, 1); }
  RegexId Star(RegexId part) { return Repeat(part, 0, kUnbounded); }
  /// Digits, perhaps with a point, whose value is a multiple of divisor / 10^scale. The form of the number is not
  /// checked: intersect with one. 1 <= divisor < 2^31.
  RegexId Multiple(int32_t divisor, int scale);

  bool Nullable(RegexId id) const { return At(id).nullable; }
  /// The texts that follow `byte` in texts of `id`.
  RegexId Derivative(RegexId id, uint8_t byte);
  /// Whether `text` belongs to `id`.
  bool Matches(RegexId id, std::string_view text);
  /// Whether `id` has no text; only an exhausted search of a non-plain expression costs more than a look-up.
  bool IsEmpty(RegexId id);
  /// Whether `id` has a text that is not empty.
  bool CanContinue(RegexId id);

  /// An expression with the same texts, and the same beginnings of texts, of at most `length` bytes, in which counts
  /// that so few bytes cannot use up are gone (docs/grammar.md, "Counts"). A pool is asked for one length only.
  RegexId WithoutHighCounts(RegexId id, int length);

  /// Bytes that no expression of the pool tells apart share a class.
  struct ByteClasses {
    std::array<uint8_t, 256> of{};
    std::vector<uint8_t> representative;
  };
  const ByteClasses& Classes();

  /// Work done: expressions made, parts of them looked at, and what users of the pool add for theirs.
  uint64_t work() const { return work_; }
  void AddWork(uint64_t work) {
    work_ += work;
    exhausted_ = exhausted_ || work_ > work_limit_;
  }
  /// The pool is exhausted after `work` more.
  void LimitWork(uint64_t work) { work_limit_ = work_ + work; }

  bool over_work() const { return work_ > work_limit_; }

  bool exhausted() const { return exhausted_; }
  size_t size() const { return base_size_ + nodes_.size(); }
  size_t memory_bytes() const;

 private:
  enum class Op : uint8_t { kNothing, kEmptyText, kBytes, kConcat, kOr, kAnd, kNot, kRepeat, kMultiple };
  struct Node {
    Op op = Op::kNothing;
    bool nullable = false;
    bool plain = true;
    bool counted = false;  ///< WithoutHighCounts may differ
    uint16_t height = 0;   ///< how deep Derivative recurses
    int32_t a = 0;         ///< first part; offset of the parts; index of the set; divisor
    int32_t b = 0;         ///< second part; number of parts; least count; remainder
    int32_t c = 0;         ///< greatest count; fraction digits seen, -1 before the point
    int32_t d = 0;         ///< scale of Multiple
  };

  const Node& At(RegexId id) const {
    return id < base_size_ ? base_->At(id) : nodes_[static_cast<size_t>(id - base_size_)];
  }
  std::span<const RegexId> Parts(RegexId id) const;
  const ByteSet& SetOf(const Node& node) const;
  RegexId Intern(Node node, std::span<const RegexId> parts);
  RegexId Find(uint64_t hash, const Node& node, std::span<const RegexId> parts) const;
  uint64_t HashOf(const Node& node, std::span<const RegexId> parts) const;
  int32_t InternSet(const ByteSet& set);
  RegexId MultipleState(int32_t divisor, int32_t remainder, int32_t seen, int32_t scale);
  RegexId ComputeDerivative(RegexId id, uint8_t byte);
  /// A byte of each class, those first that led to a text before.
  const std::vector<uint8_t>& SearchOrder();
  void Prefer(uint8_t byte);
  static constexpr size_t kFewWays = 4;
  RegexId Either(std::vector<RegexId> parts, int depth);
  RegexId HeadOf(RegexId id) const { return At(id).op == Op::kConcat ? At(id).a : id; }
  void Flatten(Op op, std::vector<RegexId>* parts) const;

  const RegexPool* base_ = nullptr;
  RegexId base_size_ = 0;
  int32_t base_sets_ = 0;
  size_t max_nodes_;
  bool exhausted_ = false;
  uint64_t work_ = 0;
  uint64_t work_limit_ = UINT64_MAX;
  std::vector<Node> nodes_;
  std::vector<RegexId> parts_;
  std::vector<ByteSet> sets_;
  std::vector<RegexId> table_;  ///< open addressing over the ids of this pool, -1 for none
  std::unordered_map<uint64_t, RegexId> derivatives_;
  std::unordered_map<RegexId, bool> live_;  ///< of non-plain expressions
  std::unordered_map<RegexId, RegexId> without_high_counts_;
  ByteClasses classes_;
  size_t classes_of_sets_ = SIZE_MAX;
  std::vector<uint8_t> search_order_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_REGEX_POOL_H_
