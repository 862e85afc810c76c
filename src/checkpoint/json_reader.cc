#include "checkpoint/json_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

namespace deepinfer {
namespace {

constexpr int kMaxDepth = 64;

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
    return;
  }
  const int extra = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static constexpr uint8_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
  out->push_back(static_cast<char>(kLead[extra] | (code >> (6 * extra))));
  for (int i = extra - 1; i >= 0; --i) out->push_back(static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3f)));
}

}  // namespace

void JsonReader::SkipSpace() {
  while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
}

bool JsonReader::Consume(char c) {
  SkipSpace();
  if (at_ == text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

Status JsonReader::Expect(char c) { return Consume(c) ? Status::Ok() : Error(fmt::format("'{}'", c)); }

Status JsonReader::Error(std::string_view expected) const {
  std::string found = "the end";
  if (at_ < text_.size()) {
    const uint8_t byte = static_cast<uint8_t>(text_[at_]);
    found = byte > ' ' && byte < 0x7f ? fmt::format("'{}'", text_[at_]) : fmt::format("byte 0x{:02x}", byte);
  }
  return Status::Corruption(fmt::format("byte {}: expected {}, found {}", at_, expected, found));
}

Status JsonReader::ReadString(std::string* out) {
  out->clear();
  DEEPINFER_RETURN_IF_ERROR(Expect('"'));
  while (true) {
    size_t plain = at_;
    while (plain < text_.size() && text_[plain] != '"' && text_[plain] != '\\' &&
           static_cast<uint8_t>(text_[plain]) >= ' ') {
      ++plain;
    }
    out->append(text_, at_, plain - at_);
    at_ = plain;
    if (at_ == text_.size()) return Error("the closing '\"' of a string");
    if (text_[at_] == '"') {
      ++at_;
      return Status::Ok();
    }
    if (text_[at_] != '\\') return Error("no control character inside a string");
    ++at_;
    DEEPINFER_RETURN_IF_ERROR(ReadEscape(out));
  }
}

Status JsonReader::ReadEscape(std::string* out) {
  static constexpr std::string_view kNames = "\"\\/bfnrt";
  static constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  if (at_ == text_.size()) return Error("an escape");
  const char kind = text_[at_];
  if (const size_t index = kNames.find(kind); index != std::string_view::npos) {
    ++at_;
    out->push_back(kValues[index]);
    return Status::Ok();
  }
  if (kind != 'u') return Error("an escape");
  ++at_;
  uint32_t code = 0;
  DEEPINFER_RETURN_IF_ERROR(ReadHex(&code));
  if (code >= 0xd800 && code < 0xe000) {
    uint32_t low = 0;
    if (code >= 0xdc00 || text_.substr(at_, 2) != "\\u") return Error("the second half of a surrogate pair");
    at_ += 2;
    DEEPINFER_RETURN_IF_ERROR(ReadHex(&low));
    if (low < 0xdc00 || low >= 0xe000) return Error("the second half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  AppendUtf8(code, out);
  return Status::Ok();
}

Status JsonReader::ReadHex(uint32_t* out) {
  const std::string_view digits = text_.substr(at_, 4);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *out, 16);
  if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4) return Error("four hexadecimal digits");
  at_ += 4;
  return Status::Ok();
}

Status JsonReader::ReadInteger(int64_t* out) {
  SkipSpace();
  const size_t digits = at_ < text_.size() && text_[at_] == '-' ? at_ + 1 : at_;
  if (digits >= text_.size() || !IsDigit(text_[digits])) return Error("an integer");
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), *out);
  if (error != std::errc()) return Error("an integer that fits 64 bits");
  const size_t after = static_cast<size_t>(end - text_.data());
  const bool leading_zero = text_[digits] == '0' && after > digits + 1;
  const bool real = after < text_.size() && (text_[after] == '.' || text_[after] == 'e' || text_[after] == 'E');
  if (leading_zero || real) return Error("an integer");
  at_ = after;
  return Status::Ok();
}

Status JsonReader::SkipValue() { return SkipValue(0); }

Status JsonReader::SkipValue(int depth) {
  if (depth > kMaxDepth) return Error("values nested less deeply");
  SkipSpace();
  if (at_ == text_.size()) return Error("a value");
  const char first = text_[at_];
  std::string scratch;
  if (first == '"') return ReadString(&scratch);
  if (first == '{' || first == '[') {
    const char close = first == '{' ? '}' : ']';
    ++at_;
    if (Consume(close)) return Status::Ok();
    do {
      if (first == '{') {
        DEEPINFER_RETURN_IF_ERROR(ReadString(&scratch));
        DEEPINFER_RETURN_IF_ERROR(Expect(':'));
      }
      DEEPINFER_RETURN_IF_ERROR(SkipValue(depth + 1));
    } while (Consume(','));
    return Expect(close);
  }
  for (const std::string_view word : {"true", "false", "null"}) {
    if (text_.substr(at_, word.size()) != word) continue;
    at_ += word.size();
    return Status::Ok();
  }
  if (first != '-' && !IsDigit(first)) return Error("a value");
  // A skipped number is not used, so its exact grammar does not matter.
  while (at_ < text_.size() && (IsDigit(text_[at_]) || std::strchr("+-.eE", text_[at_]) != nullptr)) ++at_;
  return Status::Ok();
}

Status JsonReader::ExpectEnd() {
  while (at_ < text_.size() && (IsSpace(text_[at_]) || text_[at_] == '\0')) ++at_;
  return at_ == text_.size() ? Status::Ok() : Error("nothing but padding after the closing '}'");
}

bool IsUtf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word = 0;
    if (at + sizeof word <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const uint8_t lead = static_cast<uint8_t>(text[at]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || at + length > text.size()) return false;
    for (size_t i = 1; i < length; ++i) {
      if ((static_cast<uint8_t>(text[at + i]) & 0xc0) != 0x80) return false;
    }
    // Overlong forms, surrogates and values past U+10FFFF show in the second byte.
    const uint8_t second = length > 1 ? static_cast<uint8_t>(text[at + 1]) : 0;
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0) || (lead == 0xf0 && second < 0x90) ||
        (lead == 0xf4 && second >= 0x90)) {
      return false;
    }
    at += length;
  }
  return true;
}

}  // namespace deepinfer
