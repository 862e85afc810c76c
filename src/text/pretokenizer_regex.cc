#include "text/pretokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "text/utf8.h"

namespace deepinfer {
namespace {

// White_Space as the inside of a class.
constexpr std::string_view kWhiteSpace =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

constexpr size_t kMaxGroups = 50;

bool IsAsciiPunctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

bool IsGeneralCategory(std::string_view name) {
  static constexpr std::array<std::string_view, 7> kMajor = {"C", "L", "M", "N", "P", "S", "Z"};
  static constexpr std::array<std::string_view, 7> kMinor = {"cnos", "lmotu", "cen", "dlo", "cdefios", "ckmo", "lps"};
  if (name.empty() || name.size() > 2) return false;
  const auto major = std::find(kMajor.begin(), kMajor.end(), name.substr(0, 1));
  if (major == kMajor.end()) return false;
  return name.size() == 1 || kMinor[major - kMajor.begin()].find(name[1]) != std::string_view::npos;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Translate() {
    size_t open_groups = 0;
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        DEEPINFER_RETURN_IF_ERROR(Escape(/*in_class=*/false));
      } else if (c == '[') {
        DEEPINFER_RETURN_IF_ERROR(CharacterClass());
      } else if (c == '(') {
        const std::string_view rest = pattern_.substr(at_);
        const bool look_ahead = rest.starts_with("(?=") || rest.starts_with("(?!");
        if (!look_ahead && !rest.starts_with("(?:"))
          return Unsupported("a group other than (?:...), (?=...) or (?!...)");
        if (++open_groups > kMaxGroups) return Unsupported("groups nested this deeply");
        Copy(3);
      } else if (c == ')') {
        if (open_groups-- == 0) return Unsupported("a closing parenthesis without its opening one");
        Copy(1);
      } else if (c == '.' || c == '^' || c == '$') {
        return Unsupported(std::string("the unescaped character ") + c);
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        DEEPINFER_RETURN_IF_ERROR(Quantifier());
      } else {
        Copy(1);
      }
    }
    if (open_groups != 0) return Unsupported("a group that is not closed");
    return out_;
  }

 private:
  Status Unsupported(const std::string& what) const {
    return Status::Unsupported("at byte " + std::to_string(at_) + ": " + what + " is not implemented");
  }

  void Copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }

  // ? * + {n} {n,} {n,m}, lazy with ?. Possessive forms differ between the engines.
  Status Quantifier() {
    size_t length = 1;
    if (pattern_[at_] == '{') {
      const std::string_view rest = pattern_.substr(at_);
      length = rest.find('}');
      const std::string_view inside = rest.substr(1, length == std::string_view::npos ? 0 : length - 1);
      const size_t comma = std::min(inside.find(','), inside.size());
      const auto is_number = [](std::string_view digits) {
        return digits.size() <= 3 &&
               std::all_of(digits.begin(), digits.end(), [](char d) { return d >= '0' && d <= '9'; });
      };
      const std::string_view low = inside.substr(0, comma);
      const std::string_view high = comma < inside.size() ? inside.substr(comma + 1) : std::string_view();
      if (low.empty() || !is_number(low) || !is_number(high)) return Unsupported("a brace that is no {n,m} quantifier");
      ++length;
    }
    Copy(length);
    if (at_ < pattern_.size() && pattern_[at_] == '?') Copy(1);
    if (at_ < pattern_.size() && std::string_view("*+?{").find(pattern_[at_]) != std::string_view::npos) {
      return Unsupported("a possessive or repeated quantifier");
    }
    return Status::Ok();
  }

  Status Escape(bool in_class) {
    if (at_ + 1 == pattern_.size()) return Unsupported("a backslash at the end");
    const char c = pattern_[at_ + 1];
    if (c == 's' || (c == 'S' && !in_class)) {
      if (in_class) {
        out_ += kWhiteSpace;
      } else {
        out_ += (c == 's' ? "[" : "[^") + std::string(kWhiteSpace) + "]";
      }
      at_ += 2;
      return Status::Ok();
    }
    if (c == 'p' || c == 'P') {
      const std::string_view rest = pattern_.substr(at_);
      const size_t close = rest.find('}');
      if (rest.size() < 3 || rest[2] != '{' || close == std::string_view::npos ||
          !IsGeneralCategory(rest.substr(3, close - 3))) {
        return Unsupported("a property that is no general category");
      }
      Copy(close + 1);
      return Status::Ok();
    }
    if (c == 'r' || c == 'n' || c == 't' || IsAsciiPunctuation(c)) {
      Copy(2);
      return Status::Ok();
    }
    return Unsupported(std::string("the escape \\") + (static_cast<unsigned char>(c) < 0x20 ? ' ' : c));
  }

  Status CharacterClass() {
    Copy(1);
    if (at_ < pattern_.size() && pattern_[at_] == '^') Copy(1);
    const size_t first = at_;
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == ']') {
        if (at_ == first) return Unsupported("a class that starts with ]");
        Copy(1);
        return Status::Ok();
      }
      if (c == '[') return Unsupported("a class inside a class");
      if (pattern_.substr(at_, 2) == "&&") return Unsupported("an intersection of classes");
      if (c == '\\') {
        DEEPINFER_RETURN_IF_ERROR(Escape(/*in_class=*/true));
      } else {
        Copy(1);
      }
    }
    return Unsupported("a class that is not closed");
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
};

Result<std::shared_ptr<const void>> CompilePattern(std::string_view pattern) {
  if (!IsValidUtf8(pattern)) return Status::Corruption("is not valid UTF-8");
  DEEPINFER_ASSIGN_OR_RETURN(const std::string translated, TranslateSplitPattern(pattern));
  int error = 0;
  PCRE2_SIZE error_at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF,
                                   &error, &error_at, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    return Status::Corruption(reinterpret_cast<const char*>(message));
  }
  // Where no executable memory can be had the pattern is interpreted: slower, with the same matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  std::shared_ptr<const void> owner(
      code, [](const void* owned) { pcre2_code_free(const_cast<pcre2_code*>(static_cast<const pcre2_code*>(owned))); });
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) return Status::Unsupported("can match the empty string, which is not implemented");
  return owner;
}

}  // namespace

Result<std::string> TranslateSplitPattern(std::string_view pattern) { return Translator(pattern).Translate(); }

Result<RegexSplits> RegexSplits::Compile(const std::vector<std::string>& patterns) {
  RegexSplits splits;
  for (const std::string& pattern : patterns) {
    Result<std::shared_ptr<const void>> code = CompilePattern(pattern);
    if (!code.ok()) {
      return Status(code.status().code(), "split pattern " + QuotedExcerpt(pattern) + " " + code.status().message());
    }
    splits.codes_.push_back(std::move(code).value());
  }
  return splits;
}

Status RegexSplits::Split(std::string_view text, std::vector<uint32_t>* ends) const {
  std::vector<uint32_t> pieces;
  if (!text.empty()) pieces.push_back(static_cast<uint32_t>(text.size()));
  std::vector<uint32_t> next;
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(pcre2_match_data_create(1, nullptr),
                                                                             &pcre2_match_data_free);
  if (match == nullptr) return Status::ResourceExhausted("no memory for a regular-expression match");
  for (const auto& owner : codes_) {
    const auto* code = static_cast<const pcre2_code*>(owner.get());
    next.clear();
    uint32_t begin = 0;
    for (const uint32_t end : pieces) {
      // The piece alone is the subject, so that look-ahead stops at its end.
      const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data() + begin);
      const PCRE2_SIZE length = end - begin;
      PCRE2_SIZE covered = 0;
      while (covered < length) {
        int found = pcre2_match(code, subject, length, covered, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
          found = pcre2_match(code, subject, length, covered, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match.get(), nullptr);
        }
        if (found == PCRE2_ERROR_NOMATCH) break;
        if (found < 0) {
          PCRE2_UCHAR message[256];
          pcre2_get_error_message(found, message, sizeof(message));
          return Status::ResourceExhausted("splitting the text: " +
                                           std::string(reinterpret_cast<const char*>(message)));
        }
        const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match.get());
        if (span[1] <= span[0]) return Status::Unsupported("splitting the text: a pattern matched the empty string");
        if (span[0] > covered) next.push_back(begin + static_cast<uint32_t>(span[0]));
        next.push_back(begin + static_cast<uint32_t>(span[1]));
        covered = span[1];
      }
      if (covered < length) next.push_back(end);
      begin = end;
    }
    pieces.swap(next);
  }
  ends->insert(ends->end(), pieces.begin(), pieces.end());
  return Status::Ok();
}

}  // namespace deepinfer
