#include "grammar/regex_parser.h"

#include <fmt/format.h>

#include <optional>

#include "grammar/regex_tree.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

constexpr int kMaxNesting = 200;
constexpr int kMaxRepetition = 100'000;
constexpr size_t kMaxPatternBytes = 200'000;

const CodePointSet kDigits = {{'0', '9'}};
const CodePointSet kWords = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePointSet kSpaces = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                              {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePointSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

/// Recursive descent over the pattern's characters; nodes go into a tree that knows anchors.
class Parser {
 public:
  Parser(std::string_view pattern, Alphabet* alphabet) : pattern_(pattern), alphabet_(alphabet) {}

  Result<RegexId> Parse(RegexMatch match) {
    if (pattern_.size() > kMaxPatternBytes) {
      return Status::ResourceExhausted(fmt::format("a pattern has at most {} bytes", kMaxPatternBytes));
    }
    if (!IsValidUtf8(pattern_)) return Status::InvalidArgument("the pattern is not valid UTF-8");
    search_ = match == RegexMatch::kSearch;
    DEEPINFER_ASSIGN_OR_RETURN(const int root, ParseEither(0));
    if (at_ < pattern_.size()) return Malformed("')' without '('");
    RegexPool& pool = alphabet_->pool();
    DEEPINFER_ASSIGN_OR_RETURN(const RegexId regex, tree_.WholeText(root, &pool));
    if (pool.exhausted()) return Status::ResourceExhausted("the pattern is too large");
    return regex;
  }

 private:
  Status At(Status (*make)(std::string), const std::string& what) const {
    size_t characters = 1;
    for (size_t i = 0; i < at_ && i < pattern_.size(); ++i) {
      if ((static_cast<unsigned char>(pattern_[i]) & 0xC0) != 0x80) ++characters;
    }
    return make(fmt::format("character {}: {}", characters, what));
  }
  Status Malformed(const std::string& what) const { return At(&Status::InvalidArgument, what); }
  Status Refused(const std::string& what) const { return At(&Status::Unsupported, what); }

  bool AtEnd() const { return at_ >= pattern_.size(); }
  bool Sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool Take(std::string_view text) {
    if (!Sees(text)) return false;
    at_ += text.size();
    return true;
  }
  uint32_t NextPoint() { return NextCodePoint(pattern_.data(), &at_); }
  int OneOf(const CodePointSet& set) { return tree_.Leaf(alphabet_->OneOf(set)); }

  Result<int> ParseEither(int depth) {
    if (depth > kMaxNesting) return Malformed("groups are nested too deep");
    std::vector<int> ways;
    std::vector<int> ways_to_the_end;  // those with look-ahead, as they match the whole text
    do {
      std::vector<Ahead> aheads;
      DEEPINFER_ASSIGN_OR_RETURN(std::vector<int> parts, ParseConcat(depth, &aheads));
      if (aheads.empty()) {
        ways.push_back(ConcatOf(std::move(parts)));
      } else {
        ways_to_the_end.push_back(WayToTheEnd(std::move(parts), aheads));
      }
    } while (Take("|"));
    if (!ways.empty()) {
      int way = tree_.Either(std::move(ways), &alphabet_->pool());
      if (depth == 0 && search_) way = ConcatOf({AnyText(), way, AnyText()});
      ways_to_the_end.push_back(way);
    }
    return tree_.Either(std::move(ways_to_the_end), &alphabet_->pool());
  }

  /// Look-ahead in front of the part with this index.
  struct Ahead {
    size_t index;
    int node;
    bool negated;
  };

  Result<std::vector<int>> ParseConcat(int depth, std::vector<Ahead>* aheads) {
    std::vector<int> parts;
    while (!AtEnd() && !Sees("|") && !Sees(")")) {
      if (Sees("(?=") || Sees("(?!")) {
        // Its text is the rest of the whole text, which only there is the rest of the pattern.
        if (depth > 0) return Refused("look-ahead inside of a group is not supported");
        Ahead ahead = {parts.size(), 0, Sees("(?!")};
        at_ += 3;
        DEEPINFER_ASSIGN_OR_RETURN(ahead.node, ParseEither(depth + 1));
        if (!Take(")")) return Malformed("'(' without ')'");
        if (Sees("*") || Sees("+") || Sees("?") || Sees("{")) return Refused("a quantifier behind look-ahead");
        aheads->push_back(ahead);
        continue;
      }
      DEEPINFER_ASSIGN_OR_RETURN(int part, ParseAtom(depth));
      DEEPINFER_RETURN_IF_ERROR(ParseQuantifiers(&part));
      parts.push_back(part);
    }
    return parts;
  }

  int AnyText() { return tree_.Leaf(alphabet_->AnyText()); }
  int ConcatOf(std::vector<int> parts) {
    if (parts.empty()) return tree_.Leaf(RegexPool::kEmptyText);
    return tree_.Concat(std::move(parts), &alphabet_->pool());
  }

  /// `parts` with look-ahead, from the back: each one is a demand on all the rest of the text.
  int WayToTheEnd(std::vector<int> parts, const std::vector<Ahead>& aheads) {
    if (search_) parts.push_back(AnyText());
    size_t end = parts.size();
    std::vector<int> rest;
    for (size_t i = aheads.size(); i > 0; --i) {
      const Ahead& ahead = aheads[i - 1];
      rest.insert(rest.begin(), parts.begin() + static_cast<ptrdiff_t>(ahead.index),
                  parts.begin() + static_cast<ptrdiff_t>(end));
      rest = {
          tree_.Ahead(ahead.node, ahead.negated, ConcatOf(std::move(rest)), alphabet_->AnyText(), &alphabet_->pool())};
      end = ahead.index;
    }
    rest.insert(rest.begin(), parts.begin(), parts.begin() + static_cast<ptrdiff_t>(end));
    if (search_) rest.insert(rest.begin(), AnyText());
    return ConcatOf(std::move(rest));
  }

  /// "{2}", "{2,}", "{2,5}"; nullopt, and nothing taken, when the brace is a character.
  std::optional<std::pair<int, int>> TakeBounds() {
    const size_t begin = at_;
    const auto number = [this]() -> std::optional<int> {
      int value = 0;
      const size_t first = at_;
      while (!AtEnd() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
        value = std::min(value * 10 + (pattern_[at_++] - '0'), kMaxRepetition + 1);
      }
      if (at_ == first) return std::nullopt;
      return value;
    };
    ++at_;
    const std::optional<int> least = number();
    if (least) {
      if (Take("}")) return std::pair(*least, *least);
      if (Take(",")) {
        if (Take("}")) return std::pair(*least, RegexPool::kUnbounded);
        const std::optional<int> most = number();
        if (most && Take("}")) return std::pair(*least, *most);
      }
    }
    at_ = begin;
    return std::nullopt;
  }

  Status ParseQuantifiers(int* part) {
    bool quantified = false;
    while (!AtEnd()) {
      int least = 0;
      int most = RegexPool::kUnbounded;
      const size_t begin = at_;
      if (Take("*")) {
      } else if (Take("+")) {
        least = 1;
      } else if (Take("?")) {
        most = 1;
      } else if (Sees("{")) {
        const auto bounds = TakeBounds();
        if (!bounds) return Status::Ok();
        std::tie(least, most) = *bounds;
      } else {
        return Status::Ok();
      }
      if (quantified) {
        at_ = begin;
        return Malformed("a quantifier without an atom before it");
      }
      quantified = true;
      if (least > kMaxRepetition || most > kMaxRepetition) {
        return Refused(fmt::format("a repetition is at most {} times", kMaxRepetition));
      }
      if (most != RegexPool::kUnbounded && most < least) return Malformed("a repetition's bounds are out of order");
      if (Sees("+")) return Refused("possessive quantifiers are not regular");
      (void)Take("?");  // lazy: which match is found first does not matter here
      *part = tree_.Repeat(*part, least, most, &alphabet_->pool());
    }
    return Status::Ok();
  }

  Result<int> ParseAtom(int depth) {
    if (Take("(")) return ParseGroup(depth);
    if (Take("[")) {
      DEEPINFER_ASSIGN_OR_RETURN(const CodePointSet set, ParseClass());
      return OneOf(set);
    }
    if (Take(".")) return OneOf(kLineEnds.Complement());
    if (Take("^")) return tree_.TextStart();
    if (Take("$")) return tree_.TextEnd();
    if (Sees("*") || Sees("+") || Sees("?")) return Malformed("a quantifier without an atom before it");
    if (Take("\\")) {
      if (Take("A")) return tree_.TextStart();
      if (Take("z") || Take("Z")) return tree_.TextEnd();
      if (Sees("b") || Sees("B")) return Refused("word borders are not supported");
      if (Sees("k") || (!AtEnd() && pattern_[at_] >= '1' && pattern_[at_] <= '9')) {
        return Refused("back references are not regular");
      }
      DEEPINFER_ASSIGN_OR_RETURN(const CodePointSet set, ParseEscape());
      return OneOf(set);
    }
    return OneOf(CodePointSet::One(NextPoint()));
  }

  Result<int> ParseGroup(int depth) {
    if (Take("?")) {
      if (Sees("<=") || Sees("<!")) return Refused("look-behind is not supported");
      if (Sees(">")) return Refused("atomic groups are not regular");
      if (Take("P<") || Take("<") || Take("'")) {
        const size_t close = pattern_.find_first_of(">'", at_);
        if (close == std::string_view::npos) return Malformed("a group's name has no end");
        at_ = close + 1;
      } else if (!Take(":")) {
        return Refused("inline flags and special groups are not supported");
      }
    }
    DEEPINFER_ASSIGN_OR_RETURN(const int inner, ParseEither(depth + 1));
    if (!Take(")")) return Malformed("'(' without ')'");
    return inner;
  }

  Result<uint32_t> ParseHex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      if (AtEnd()) return Malformed("expected hexadecimal digits");
      const char c = pattern_[at_];
      int digit = -1;
      if (c >= '0' && c <= '9') digit = c - '0';
      if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
      if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
      if (digit < 0) return Malformed("expected hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
      ++at_;
    }
    return value;
  }

  /// What follows a backslash, as a set; one character for most.
  Result<CodePointSet> ParseEscape() {
    if (AtEnd()) return Malformed("a backslash at the end");
    const uint32_t point = NextPoint();
    switch (point) {
      case 'd':
        return kDigits;
      case 'D':
        return kDigits.Complement();
      case 'w':
        return kWords;
      case 'W':
        return kWords.Complement();
      case 's':
        return kSpaces;
      case 'S':
        return kSpaces.Complement();
      case 't':
        return CodePointSet::One('\t');
      case 'n':
        return CodePointSet::One('\n');
      case 'r':
        return CodePointSet::One('\r');
      case 'f':
        return CodePointSet::One('\f');
      case 'v':
        return CodePointSet::One('\v');
      case '0':
        return CodePointSet::One(0);
      case 'a':
        return Malformed("unknown escape \\a");
      case 'p':
      case 'P':
        return ParseProperty(point == 'P');
      case 'x': {
        DEEPINFER_ASSIGN_OR_RETURN(const uint32_t value, ParseHex(2));
        return CodePointSet::One(value);
      }
      case 'c': {
        if (AtEnd()) return Malformed("\\c without a letter");
        const uint32_t letter = NextPoint();
        if ((letter | 0x20) < 'a' || (letter | 0x20) > 'z') return Malformed("\\c without a letter");
        return CodePointSet::One(letter & 31);
      }
      case 'u':
        return ParseUnicodeEscape();
      default:
        break;
    }
    const bool letter = (point | 0x20) >= 'a' && (point | 0x20) <= 'z';
    if (letter) return Malformed(fmt::format("unknown escape \\{}", static_cast<char>(point)));
    return CodePointSet::One(point);
  }

  Result<CodePointSet> ParseUnicodeEscape() {
    if (Take("{")) {
      const size_t close = pattern_.find('}', at_);
      if (close == std::string_view::npos || close == at_ || close - at_ > 6) return Malformed("malformed \\u{...}");
      DEEPINFER_ASSIGN_OR_RETURN(const uint32_t value, ParseHex(close - at_));
      ++at_;
      if (value > 0x10FFFF) return Malformed("\\u{...} beyond the last character");
      return CodePointSet::One(value);
    }
    DEEPINFER_ASSIGN_OR_RETURN(uint32_t value, ParseHex(4));
    if (value >= 0xD800 && value < 0xDC00 && Take("\\u")) {
      DEEPINFER_ASSIGN_OR_RETURN(const uint32_t low, ParseHex(4));
      if (low < 0xDC00 || low > 0xDFFF) return Malformed("half of a surrogate pair");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    return CodePointSet::One(value);
  }

  Result<CodePointSet> ParseProperty(bool negated) {
    std::string_view name;
    if (Take("{")) {
      const size_t close = pattern_.find('}', at_);
      if (close == std::string_view::npos) return Malformed("\\p{ without }");
      name = pattern_.substr(at_, close - at_);
      at_ = close + 1;
    } else if (!AtEnd()) {
      name = pattern_.substr(at_, 1);
      ++at_;
    }
    const auto set = CodePointSet::Property(name);
    if (!set) return Malformed("unknown Unicode property in \\p");
    return negated ? set->Complement() : *set;
  }

  /// The inside of [...], after the bracket.
  Result<CodePointSet> ParseClass() {
    const bool negated = Take("^");
    CodePointSet set;
    while (!Sees("]")) {
      if (AtEnd()) return Malformed("'[' without ']'");
      if (Sees("[:")) return Refused("POSIX classes are not supported");
      DEEPINFER_ASSIGN_OR_RETURN(const CodePointSet first, ParseClassAtom());
      const bool single = first.ranges().size() == 1 && first.ranges()[0].first == first.ranges()[0].last;
      if (single && Sees("-") && !Sees("-]") && at_ + 1 < pattern_.size()) {
        const size_t dash = at_;
        ++at_;
        DEEPINFER_ASSIGN_OR_RETURN(const CodePointSet last, ParseClassAtom());
        const bool single_last = last.ranges().size() == 1 && last.ranges()[0].first == last.ranges()[0].last;
        if (single_last) {
          if (last.ranges()[0].first < first.ranges()[0].first) {
            at_ = dash;
            return Malformed("a range out of order");
          }
          set.Add(first.ranges()[0].first, last.ranges()[0].first);
          continue;
        }
        set.Add('-', '-');
        set.Add(last);
      }
      set.Add(first);
    }
    ++at_;
    return negated ? set.Complement() : set;
  }

  Result<CodePointSet> ParseClassAtom() {
    if (AtEnd()) return Malformed("'[' without ']'");
    if (!Take("\\")) return CodePointSet::One(NextPoint());
    if (Take("b")) return CodePointSet::One('\b');
    if (!AtEnd() && pattern_[at_] >= '1' && pattern_[at_] <= '9') return Malformed("a digit escape in a class");
    return ParseEscape();
  }

  std::string_view pattern_;
  Alphabet* alphabet_;
  RegexTree tree_;
  size_t at_ = 0;
  bool search_ = false;
};

}  // namespace

Result<RegexId> ParseRegex(std::string_view pattern, RegexMatch match, Alphabet* alphabet) {
  return Parser(pattern, alphabet).Parse(match);
}

}  // namespace deepinfer
