#include <algorithm>
#include <numeric>

#include "text/json_text.h"

namespace deepinfer {
namespace {

// Of members with equal keys the first keeps its place and takes the last one's value. Not quadratic for any input.
void MergeRepeatedKeys(JsonValue::Object* members) {
  std::vector<size_t> order(members->size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return (*members)[a].key < (*members)[b].key; });
  std::vector<bool> repeated(members->size(), false);
  bool any = false;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && (*members)[order[end]].key == (*members)[order[begin]].key)
      repeated[order[end++]] = true;
    if (end - begin > 1) {
      (*members)[order[begin]].value = std::move((*members)[order[end - 1]].value);
      any = true;
    }
    begin = end;
  }
  if (!any) return;
  size_t kept = 0;
  for (size_t i = 0; i < members->size(); ++i) {
    if (repeated[i]) continue;
    if (kept != i) (*members)[kept] = std::move((*members)[i]);
    ++kept;
  }
  members->resize(kept);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<JsonValue> Parse() {
    SkipSpace();
    if (AtEnd()) return Error("a JSON value");
    JsonValue value;
    DEEPINFER_RETURN_IF_ERROR(ParseValue(0, &value));
    SkipSpace();
    if (!AtEnd()) return Error("the end of the text after the JSON value");
    return value;
  }

 private:
  bool AtEnd() const { return at_ >= text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[at_]; }

  void SkipSpace() {
    while (!AtEnd() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) ++at_;
  }

  bool Consume(char expected) {
    if (AtEnd() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }

  std::string Position() const {
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t line_start = before.rfind('\n') + 1;  // npos + 1 == 0
    return "line " + std::to_string(line) + ", column " + std::to_string(before.size() - line_start + 1);
  }

  std::string Found() const {
    if (AtEnd()) return "the end of the text";
    const unsigned char byte = static_cast<unsigned char>(text_[at_]);
    if (byte > 0x20 && byte < 0x7f) return std::string("'") + text_[at_] + "'";
    static constexpr char kHex[] = "0123456789ABCDEF";
    return std::string("byte 0x") + kHex[byte >> 4] + kHex[byte & 15];
  }

  Status Error(std::string_view expected) const {
    return Status::InvalidArgument(Position() + ": expected " + std::string(expected) + ", found " + Found());
  }

  Status ParseValue(int depth, JsonValue* value) {
    switch (Peek()) {
      case '{':
        return ParseObject(depth, value);
      case '[':
        return ParseArray(depth, value);
      case '"': {
        std::string string;
        DEEPINFER_RETURN_IF_ERROR(ParseString(&string));
        *value = JsonValue(std::move(string));
        return Status::Ok();
      }
      case 't':
        *value = JsonValue(true);
        return ParseWord("true");
      case 'f':
        *value = JsonValue(false);
        return ParseWord("false");
      case 'n':
        *value = JsonValue();
        return ParseWord("null");
      default:
        return ParseNumber(value);
    }
  }

  Status ParseWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return Error("a JSON value");
    at_ += word.size();
    return Status::Ok();
  }

  Status CheckDepth(int depth) const {
    if (depth < kMaxJsonDepth) return Status::Ok();
    return Status::InvalidArgument(Position() + ": arrays and objects are nested deeper than " +
                                   std::to_string(kMaxJsonDepth) + " levels");
  }

  Status ParseArray(int depth, JsonValue* value) {
    DEEPINFER_RETURN_IF_ERROR(CheckDepth(depth));
    ++at_;
    JsonValue::Array items;
    SkipSpace();
    if (!Consume(']')) {
      do {
        SkipSpace();
        items.emplace_back();
        DEEPINFER_RETURN_IF_ERROR(ParseValue(depth + 1, &items.back()));
        SkipSpace();
      } while (Consume(','));
      if (!Consume(']')) return Error("',' or ']' after an array item");
    }
    *value = JsonValue(std::move(items));
    return Status::Ok();
  }

  Status ParseObject(int depth, JsonValue* value) {
    DEEPINFER_RETURN_IF_ERROR(CheckDepth(depth));
    ++at_;
    JsonValue::Object members;
    SkipSpace();
    if (!Consume('}')) {
      do {
        SkipSpace();
        if (Peek() != '"') return Error("a key in double quotes");
        members.emplace_back();
        DEEPINFER_RETURN_IF_ERROR(ParseString(&members.back().key));
        SkipSpace();
        if (!Consume(':')) return Error("':' after a key");
        SkipSpace();
        DEEPINFER_RETURN_IF_ERROR(ParseValue(depth + 1, &members.back().value));
        SkipSpace();
      } while (Consume(','));
      if (!Consume('}')) return Error("',' or '}' after an object member");
    }
    if (members.size() > 1) MergeRepeatedKeys(&members);
    *value = JsonValue(std::move(members));
    return Status::Ok();
  }

  bool ConsumeDigits() {
    const size_t start = at_;
    while (Peek() >= '0' && Peek() <= '9') ++at_;
    return at_ > start;
  }

  Status ParseNumber(JsonValue* value) {
    const size_t start = at_;
    const bool negative = Consume('-');
    if (!Consume('0') && !ConsumeDigits()) return Error(negative ? "a digit after '-'" : "a JSON value");
    if (Consume('.') && !ConsumeDigits()) return Error("a digit after the decimal point");
    if (Consume('e') || Consume('E')) {
      if (!Consume('+')) Consume('-');
      if (!ConsumeDigits()) return Error("a digit in the exponent");
    }
    *value = JsonValue(JsonValue::Number{std::string(text_.substr(start, at_ - start))});
    return Status::Ok();
  }

  Status ParseString(std::string* out) {
    ++at_;
    while (true) {
      size_t run = at_;
      while (run < text_.size() && IsPlainAscii(text_[run])) ++run;
      out->append(text_, at_, run - at_);
      at_ = run;
      if (AtEnd()) return Error("'\"' at the end of a string");
      const unsigned char byte = static_cast<unsigned char>(text_[at_]);
      if (byte == '"') {
        ++at_;
        return Status::Ok();
      }
      if (byte == '\\') {
        DEEPINFER_RETURN_IF_ERROR(ParseEscape(out));
      } else if (byte < 0x20) {
        return Error("a control character to be escaped inside a string");
      } else {
        const size_t length = Utf8Length();
        if (length == 0) return Error("valid UTF-8 inside a string");
        out->append(text_, at_, length);
        at_ += length;
      }
    }
  }

  static bool IsPlainAscii(char c) {
    const unsigned char byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
  }

  // Length of the well-formed multi-byte sequence here (Unicode table 3-7), or 0.
  size_t Utf8Length() const {
    const auto byte = [&](size_t i) {
      return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0u;
    };
    const auto tail = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
    const unsigned lead = byte(0);
    const unsigned second = byte(1);
    if (lead >= 0xC2 && lead <= 0xDF) return tail(1) ? 2 : 0;
    if (lead >= 0xE0 && lead <= 0xEF) {
      if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return 0;
      return tail(1) && tail(2) ? 3 : 0;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
      if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return 0;
      return tail(1) && tail(2) && tail(3) ? 4 : 0;
    }
    return 0;
  }

  Status ParseEscape(std::string* out) {
    ++at_;
    static constexpr std::string_view kNames = "\"\\/bfnrt";
    static constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    if (Consume('u')) return ParseUnicodeEscape(out);
    const size_t which = AtEnd() ? std::string_view::npos : kNames.find(text_[at_]);
    if (which == std::string_view::npos) return Error("an escape (one of \" \\ / b f n r t u) after '\\'");
    out->push_back(kValues[which]);
    ++at_;
    return Status::Ok();
  }

  Status ParseUnicodeEscape(std::string* out) {
    uint32_t code = 0;
    DEEPINFER_RETURN_IF_ERROR(ParseHex4(&code));
    if (code >= 0xDC00 && code <= 0xDFFF) return Error("a high surrogate before a low surrogate escape");
    if (code >= 0xD800 && code <= 0xDBFF) {
      uint32_t low = 0;
      if (!Consume('\\') || !Consume('u')) return Error("a low surrogate escape after a high surrogate escape");
      DEEPINFER_RETURN_IF_ERROR(ParseHex4(&low));
      if (low < 0xDC00 || low > 0xDFFF) return Error("a low surrogate escape after a high surrogate escape");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code < 0x80) {
      out->push_back(static_cast<char>(code));
    } else if (code < 0x800) {
      out->push_back(static_cast<char>(0xC0 | (code >> 6)));
      out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
    } else if (code < 0x10000) {
      out->push_back(static_cast<char>(0xE0 | (code >> 12)));
      out->push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
      out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
    } else {
      out->push_back(static_cast<char>(0xF0 | (code >> 18)));
      out->push_back(static_cast<char>(0x80 | ((code >> 12) & 0x3F)));
      out->push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3F)));
      out->push_back(static_cast<char>(0x80 | (code & 0x3F)));
    }
    return Status::Ok();
  }

  Status ParseHex4(uint32_t* code) {
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = Peek();
      uint32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<uint32_t>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<uint32_t>(c - 'A' + 10);
      } else {
        return Error("four hexadecimal digits after '\\u'");
      }
      *code = *code * 16 + digit;
    }
    return Status::Ok();
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<JsonValue> ParseJson(std::string_view text) { return Parser(text).Parse(); }

}  // namespace deepinfer
