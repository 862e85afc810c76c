#include "grammar/ebnf_parser.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>

#include "text/utf8.h"

namespace deepinfer {
namespace {

constexpr int kMaxNesting = 200;
constexpr int kMaxRepetition = 100'000;
constexpr std::string_view kDefines = "::=";

class Parser {
 public:
  Parser(std::string_view text, Alphabet* alphabet) : text_(text), alphabet_(alphabet) {}

  Result<EbnfGrammar> Parse() {
    if (!IsValidUtf8(text_)) return Status::InvalidArgument("the grammar is not valid UTF-8");
    SkipSpace();
    while (at_ < text_.size()) DEEPINFER_RETURN_IF_ERROR(ParseRule());
    const auto root = rules_.find("root");
    for (size_t rule = 0; rule < grammar_.bodies.size(); ++rule) {
      if (grammar_.bodies[rule] >= 0) continue;
      at_ = first_use_[rule];
      return Malformed("a rule that is not defined");
    }
    if (root == rules_.end()) return Status::InvalidArgument("there is no rule named root");
    grammar_.root = root->second;
    if (alphabet_->pool().exhausted()) return Status::ResourceExhausted("the grammar is too large");
    return std::move(grammar_);
  }

 private:
  using Node = EbnfGrammar::Node;

  Status At(Status (*make)(std::string), const std::string& what) const {
    size_t line = 1;
    size_t column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      } else if ((static_cast<unsigned char>(text_[i]) & 0xC0) != 0x80) {
        ++column;
      }
    }
    return make(fmt::format("line {}, column {}: {}", line, column, what));
  }
  Status Malformed(const std::string& what) const { return At(&Status::InvalidArgument, what); }
  Status Refused(const std::string& what) const { return At(&Status::Unsupported, what); }

  bool Sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool Take(std::string_view what) {
    if (!Sees(what)) return false;
    at_ += what.size();
    return true;
  }
  void SkipSpace() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        break;
      }
    }
  }
  static bool IsNameByte(char c, bool first) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    return letter || (!first && ((c >= '0' && c <= '9') || c == '-' || c == '.'));
  }
  /// The name at the position; empty when there is none.
  std::string_view SeeName() const {
    size_t end = at_;
    while (end < text_.size() && IsNameByte(text_[end], end == at_)) ++end;
    return text_.substr(at_, end - at_);
  }
  /// Whether a rule's definition begins here.
  bool SeesDefinition() {
    const std::string_view name = SeeName();
    if (name.empty()) return false;
    const size_t begin = at_;
    at_ += name.size();
    SkipSpace();
    const bool defines = Sees(kDefines);
    at_ = begin;
    return defines;
  }

  int Add(Node node) {
    grammar_.nodes.push_back(std::move(node));
    return static_cast<int>(grammar_.nodes.size()) - 1;
  }
  int AddText(RegexId text) {
    Node node;
    node.text = text;
    return Add(std::move(node));
  }
  int RuleNamed(std::string_view name) {
    const auto [rule, added] = rules_.emplace(std::string(name), static_cast<int>(grammar_.bodies.size()));
    if (added) {
      grammar_.bodies.push_back(-1);
      first_use_.push_back(at_);
    }
    return rule->second;
  }

  Status ParseRule() {
    const std::string_view name = SeeName();
    if (name.empty()) return Malformed("expected the name of a rule");
    const auto rule = static_cast<size_t>(RuleNamed(name));
    if (grammar_.bodies[rule] >= 0) return Malformed("a rule that is defined already");
    at_ += name.size();
    SkipSpace();
    if (!Take(kDefines)) return Malformed("expected ::=");
    SkipSpace();
    DEEPINFER_ASSIGN_OR_RETURN(grammar_.bodies[rule], ParseEither(0));
    if (at_ < text_.size() && !SeesDefinition()) return Malformed("expected a rule, a text, a class or a group");
    return Status::Ok();
  }

  Result<int> ParseEither(int depth) {
    if (depth > kMaxNesting) return Malformed("groups are nested too deep");
    Node either;
    either.kind = Node::Kind::kEither;
    do {
      SkipSpace();
      DEEPINFER_ASSIGN_OR_RETURN(const int way, ParseConcat(depth));
      either.parts.push_back(way);
    } while (Take("|"));
    return either.parts.size() == 1 ? either.parts[0] : Add(std::move(either));
  }

  Result<int> ParseConcat(int depth) {
    Node concat;
    concat.kind = Node::Kind::kConcat;
    while (at_ < text_.size() && !Sees("|") && !Sees(")") && !SeesDefinition()) {
      const size_t begin = at_;
      DEEPINFER_ASSIGN_OR_RETURN(int part, ParseAtom(depth));
      SkipSpace();
      DEEPINFER_RETURN_IF_ERROR(ParseQuantifiers(&part));
      if (at_ == begin) break;
      concat.parts.push_back(part);
    }
    return concat.parts.size() == 1 ? concat.parts[0] : Add(std::move(concat));
  }

  Result<int> ParseAtom(int depth) {
    if (Take("(")) {
      if (Sees("=")) return Refused("look-ahead is not supported");
      DEEPINFER_ASSIGN_OR_RETURN(const int inner, ParseEither(depth + 1));
      if (!Take(")")) return Malformed("'(' without ')'");
      return inner;
    }
    if (Sees("\"") || Sees("'")) return ParseText();
    if (Take("[")) return ParseClass();
    if (Take(".")) return AddText(alphabet_->OneOf(CodePointSet::All()));
    const std::string_view name = SeeName();
    if (name.empty()) return Malformed("expected a rule, a text, a class or a group");
    if (name == "TagDispatch" || name == "Token" || name == "TokenTagDispatch") {
      return Refused("macros of XGrammar are not supported");
    }
    Node node;
    node.kind = Node::Kind::kRule;
    node.rule = RuleNamed(name);
    at_ += name.size();
    return Add(std::move(node));
  }

  Result<uint32_t> ParseHex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      const std::string_view kDigits = "0123456789abcdef";
      const size_t digit = kDigits.find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
      if (digit == std::string_view::npos) return Malformed("expected hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
      ++at_;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return Malformed("not a character");
    return value;
  }

  /// One character of a text or a class, escapes resolved.
  Result<uint32_t> ParseCharacter() {
    if (at_ >= text_.size() || Sees("\n")) return Malformed("a text or class without its end");
    if (!Take("\\")) return NextCodePoint(text_.data(), &at_);
    if (at_ >= text_.size()) return Malformed("a backslash at the end");
    const uint32_t point = NextCodePoint(text_.data(), &at_);
    switch (point) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'b':
        return '\b';
      case 'a':
        return '\a';
      case '0':
        return 0;
      case 'x':
        return ParseHex(2);
      case 'u':
        return ParseHex(4);
      case 'U':
        return ParseHex(8);
      default:
        break;
    }
    if ((point | 0x20) >= 'a' && (point | 0x20) <= 'z') return Malformed("unknown escape");
    return point;
  }

  Result<int> ParseText() {
    const std::string quote(1, text_[at_++]);
    std::string text;
    while (!Take(quote)) {
      DEEPINFER_ASSIGN_OR_RETURN(const uint32_t point, ParseCharacter());
      AppendUtf8(point, &text);
    }
    return AddText(alphabet_->Literal(text));
  }

  Result<int> ParseClass() {
    const bool negated = Take("^");
    CodePointSet set;
    while (!Take("]")) {
      DEEPINFER_ASSIGN_OR_RETURN(const uint32_t first, ParseCharacter());
      uint32_t last = first;
      if (Sees("-") && !Sees("-]")) {
        ++at_;
        DEEPINFER_ASSIGN_OR_RETURN(last, ParseCharacter());
        if (last < first) return Malformed("a range out of order");
      }
      set.Add(first, last);
    }
    return AddText(alphabet_->OneOf(negated ? set.Complement() : set));
  }

  Result<int> ParseNumber() {
    int value = 0;
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = std::min(value * 10 + (text_[at_++] - '0'), kMaxRepetition + 1);
    }
    if (at_ == begin) return Malformed("expected a number");
    if (value > kMaxRepetition) return Refused(fmt::format("a repetition is at most {} times", kMaxRepetition));
    return value;
  }

  Status ParseQuantifiers(int* part) {
    while (at_ < text_.size()) {
      Node repeat;
      repeat.kind = Node::Kind::kRepeat;
      repeat.parts = {*part};
      repeat.most = RegexPool::kUnbounded;
      if (Take("*")) {
      } else if (Take("+")) {
        repeat.least = 1;
      } else if (Take("?")) {
        repeat.most = 1;
      } else if (Take("{")) {
        SkipSpace();
        if (!Sees(",")) {
          DEEPINFER_ASSIGN_OR_RETURN(repeat.least, ParseNumber());
        }
        SkipSpace();
        if (!Take(",")) {
          repeat.most = repeat.least;
        } else {
          SkipSpace();
          if (!Sees("}")) {
            DEEPINFER_ASSIGN_OR_RETURN(repeat.most, ParseNumber());
          }
        }
        SkipSpace();
        if (!Take("}")) return Malformed("'{' without '}'");
        if (repeat.most != RegexPool::kUnbounded && repeat.most < repeat.least) {
          return Malformed("a repetition's bounds are out of order");
        }
      } else {
        return Status::Ok();
      }
      *part = Add(std::move(repeat));
      SkipSpace();
    }
    return Status::Ok();
  }

  std::string_view text_;
  Alphabet* alphabet_;
  size_t at_ = 0;
  EbnfGrammar grammar_;
  std::unordered_map<std::string, int> rules_;
  std::vector<size_t> first_use_;
};

}  // namespace

Result<EbnfGrammar> ParseEbnf(std::string_view text, Alphabet* alphabet) { return Parser(text, alphabet).Parse(); }

}  // namespace deepinfer
