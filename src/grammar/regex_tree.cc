#include "grammar/regex_tree.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr int kMaxAnchoredCopies = 100;

}  // namespace

int RegexTree::Add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<int>(nodes_.size()) - 1;
}

int RegexTree::Leaf(RegexId regex) {
  Node node;
  node.regex = regex;
  return Add(std::move(node));
}

int RegexTree::TextStart() {
  Node node;
  node.kind = Kind::kTextStart;
  return Add(std::move(node));
}

int RegexTree::TextEnd() {
  Node node;
  node.kind = Kind::kTextEnd;
  return Add(std::move(node));
}

int RegexTree::Concat(std::vector<int> parts, RegexPool* pool) {
  if (parts.size() == 1) return parts[0];
  if (std::ranges::all_of(parts, [this](int part) { return IsLeaf(part); })) {
    RegexId regex = RegexPool::kEmptyText;
    for (size_t i = parts.size(); i > 0; --i)
      regex = pool->Concat(nodes_[static_cast<size_t>(parts[i - 1])].regex, regex);
    return Leaf(regex);
  }
  Node node;
  node.kind = Kind::kConcat;
  node.parts = std::move(parts);
  return Add(std::move(node));
}

int RegexTree::Either(std::vector<int> parts, RegexPool* pool) {
  if (parts.size() == 1) return parts[0];
  if (std::ranges::all_of(parts, [this](int part) { return IsLeaf(part); })) {
    std::vector<RegexId> regexes;
    for (const int part : parts) regexes.push_back(nodes_[static_cast<size_t>(part)].regex);
    return Leaf(pool->Either(std::move(regexes)));
  }
  Node node;
  node.kind = Kind::kEither;
  node.parts = std::move(parts);
  return Add(std::move(node));
}

int RegexTree::Repeat(int part, int least, int most, RegexPool* pool) {
  if (IsLeaf(part)) return Leaf(pool->Repeat(nodes_[static_cast<size_t>(part)].regex, least, most));
  Node node;
  node.kind = Kind::kRepeat;
  node.parts = {part};
  node.least = least;
  node.most = most;
  return Add(std::move(node));
}

int RegexTree::Ahead(int ahead, bool negated, int rest, RegexId any, RegexPool* pool) {
  Node node;
  node.kind = Kind::kAhead;
  node.parts = {Concat({ahead, Leaf(any)}, pool), rest};
  node.negated = negated;
  return Add(std::move(node));
}

RegexTree::Forms RegexTree::Join(const Forms& first, const Forms& second, RegexPool* pool) {
  Forms joined;
  for (int start = 0; start < 2; ++start) {
    for (int end = 0; end < 2; ++end) {
      joined.empty[start][end] = first.empty[start][end] && second.empty[start][end];
      // Both have text: the border between them is neither start nor end. Or one is empty, beside the other's border.
      std::vector<RegexId> ways = {pool->Concat(first.texts[start][0], second.texts[0][end])};
      if (first.empty[start][0]) ways.push_back(second.texts[start][end]);
      if (second.empty[0][end]) ways.push_back(first.texts[start][end]);
      joined.texts[start][end] = pool->Or(std::move(ways));
    }
  }
  return joined;
}

RegexTree::Forms RegexTree::FormsOf(int index, RegexPool* pool, Status* status) const {
  const Node& node = nodes_[static_cast<size_t>(index)];
  Forms forms;
  switch (node.kind) {
    case Kind::kLeaf:
      for (int start = 0; start < 2; ++start) {
        for (int end = 0; end < 2; ++end) {
          forms.empty[start][end] = pool->Nullable(node.regex);
          forms.texts[start][end] = node.regex;
        }
      }
      return forms;
    case Kind::kTextStart:
      forms.empty[1][0] = forms.empty[1][1] = true;
      return forms;
    case Kind::kTextEnd:
      forms.empty[0][1] = forms.empty[1][1] = true;
      return forms;
    case Kind::kConcat:
      forms = FormsOf(node.parts[0], pool, status);
      for (size_t i = 1; i < node.parts.size(); ++i) forms = Join(forms, FormsOf(node.parts[i], pool, status), pool);
      return forms;
    case Kind::kEither: {
      forms = FormsOf(node.parts[0], pool, status);
      for (size_t i = 1; i < node.parts.size(); ++i) {
        const Forms other = FormsOf(node.parts[i], pool, status);
        for (int start = 0; start < 2; ++start) {
          for (int end = 0; end < 2; ++end) {
            forms.empty[start][end] = forms.empty[start][end] || other.empty[start][end];
            forms.texts[start][end] = pool->Or({forms.texts[start][end], other.texts[start][end]});
          }
        }
      }
      return forms;
    }
    case Kind::kAhead: {
      const Forms ahead = FormsOf(node.parts[0], pool, status);
      const Forms rest = FormsOf(node.parts[1], pool, status);
      for (int start = 0; start < 2; ++start) {  // what does not end the text is never asked for
        forms.empty[start][1] = rest.empty[start][1] && ahead.empty[start][1] != node.negated;
        const RegexId texts = ahead.texts[start][1];
        forms.texts[start][1] = pool->And(
            {rest.texts[start][1], node.negated ? pool->Not(texts) : texts, pool->Not(RegexPool::kEmptyText)});
      }
      return forms;
    }
    case Kind::kRepeat: {
      const Forms part = FormsOf(node.parts[0], pool, status);
      Forms any;  // any number of times
      const RegexId middle = pool->Star(part.texts[0][0]);
      for (int start = 0; start < 2; ++start) {
        for (int end = 0; end < 2; ++end) {
          any.empty[start][end] = true;
          any.texts[start][end] =
              pool->Or({part.texts[start][end], pool->Sequence({part.texts[start][0], middle, part.texts[0][end]})});
        }
      }
      Forms none;  // not at all
      for (auto& row : none.empty) row[0] = row[1] = true;
      const int copies = node.most == RegexPool::kUnbounded ? node.least : node.most;
      if (copies > kMaxAnchoredCopies) {
        *status = Status::ResourceExhausted("a repetition of anchors is at most 100 times");
        return none;
      }
      forms = none;
      Forms optional = part;
      for (int start = 0; start < 2; ++start) {
        for (int end = 0; end < 2; ++end) optional.empty[start][end] = true;
      }
      for (int i = 0; i < copies; ++i) forms = Join(forms, i < node.least ? part : optional, pool);
      return node.most == RegexPool::kUnbounded ? Join(forms, any, pool) : forms;
    }
  }
  return forms;
}

Result<RegexId> RegexTree::WholeText(int root, RegexPool* pool) const {
  if (IsLeaf(root)) return nodes_[static_cast<size_t>(root)].regex;
  Status status;
  const Forms forms = FormsOf(root, pool, &status);
  if (!status.ok()) return status;
  return forms.empty[1][1] ? pool->Or({RegexPool::kEmptyText, forms.texts[1][1]}) : forms.texts[1][1];
}

}  // namespace deepinfer
