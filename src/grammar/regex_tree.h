// RegexTree: a parsed pattern with its anchors, and its translation into expressions without.
//
// Thread-safety: values. Ownership: a tree owns its nodes, which refer to one another by index. Errors:
// kResourceExhausted when a repetition of anchors grows too large.
#ifndef DEEPINFER_GRAMMAR_REGEX_TREE_H_
#define DEEPINFER_GRAMMAR_REGEX_TREE_H_

#include <cstdint>
#include <vector>

#include "deepinfer/status.h"
#include "grammar/regex_pool.h"

namespace deepinfer {

class RegexTree {
 public:
  /// What a pattern without anchors and look-ahead matches.
  int Leaf(RegexId regex);
  int TextStart();  ///< ^
  int TextEnd();    ///< $
  int Concat(std::vector<int> parts, RegexPool* pool);
  int Either(std::vector<int> parts, RegexPool* pool);
  int Repeat(int part, int least, int most, RegexPool* pool);
  /// `rest`, behind which the text ends, where the text up to there begins (or, negated, does not begin) with what
  /// `ahead` matches; `any` is any text.
  int Ahead(int ahead, bool negated, int rest, RegexId any, RegexPool* pool);

  /// The texts that `root` matches as a whole.
  Result<RegexId> WholeText(int root, RegexPool* pool) const;

 private:
  enum class Kind { kLeaf, kTextStart, kTextEnd, kConcat, kEither, kRepeat, kAhead };
  struct Node {
    Kind kind = Kind::kLeaf;
    RegexId regex = RegexPool::kNothing;
    std::vector<int> parts;
    int least = 0;
    int most = 0;
    bool negated = false;  // kAhead, whose parts are what is ahead, with any text behind it, and the rest
  };
  /// What a node matches between two places, depending on what they are.
  struct Forms {
    /// [begins at the start of the text][ends at its end]: whether the empty text matches
    bool empty[2][2] = {};
    /// the same: texts that match when they are not empty; the empty text in here matches anywhere
    RegexId texts[2][2] = {};
  };
  bool IsLeaf(int node) const { return nodes_[static_cast<size_t>(node)].kind == Kind::kLeaf; }
  int Add(Node node);
  Forms FormsOf(int node, RegexPool* pool, Status* status) const;
  static Forms Join(const Forms& first, const Forms& second, RegexPool* pool);

  std::vector<Node> nodes_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_REGEX_TREE_H_
