#include "api/custom_tool_input.h"

#include <charconv>
#include <optional>

#include "text/json_text.h"
#include "text/utf8.h"

namespace deepinfer {
namespace {

bool IsJsonBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// The four hexadecimal digits of a \u escape.
std::optional<uint32_t> HexUnit(std::string_view digits) {
  uint32_t unit = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
  if (error != std::errc() || rest != digits.data() + digits.size()) return std::nullopt;
  return unit;
}

}  // namespace

void CustomToolInput::ReadOpening() {
  size_t at = 0;
  for (const std::string_view part : {R"({)", R"("input")", R"(:)", R"(")"}) {
    while (at < arguments_.size() && IsJsonBlank(arguments_[at])) ++at;
    const std::string_view here = std::string_view(arguments_).substr(at, part.size());
    if (!part.starts_with(here)) {
      stage_ = Stage::kOther;
      return;
    }
    if (here.size() < part.size()) return;
    at += part.size();
  }
  position_ = at;
  stage_ = Stage::kString;
}

bool CustomToolInput::ReadUnit(std::string* input) {
  const std::string_view rest = std::string_view(arguments_).substr(position_);
  if (rest.empty()) return false;
  if (rest[0] == '"') {
    stage_ = Stage::kDone;
    return false;
  }
  if (rest[0] != '\\') {
    const std::string_view plain = rest.substr(0, rest.find_first_of("\"\\"));
    *input += plain;
    position_ += plain.size();
    return true;
  }
  if (rest.size() < 2) return false;
  if (rest[1] != 'u') {
    constexpr std::string_view kNames = "bfnrt";
    constexpr std::string_view kCharacters = "\b\f\n\r\t";
    const size_t name = kNames.find(rest[1]);
    input->push_back(name != std::string_view::npos ? kCharacters[name] : rest[1]);
    position_ += 2;
    return true;
  }
  if (rest.size() < 6) return false;
  const std::optional<uint32_t> first = HexUnit(rest.substr(2, 4));
  const bool is_high = first.has_value() && *first >= 0xD800 && *first < 0xDC00;
  const bool is_low = first.has_value() && *first >= 0xDC00 && *first < 0xE000;
  if (is_high && rest.size() < 12 && std::string_view("\\u").starts_with(rest.substr(6, 2))) return false;
  const std::optional<uint32_t> second =
      is_high && rest.substr(6, 2) == "\\u" ? HexUnit(rest.substr(8, 4)) : std::nullopt;
  if (second.has_value() && *second >= 0xDC00 && *second < 0xE000) {
    AppendUtf8(0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00), input);
    position_ += 12;
    return true;
  }
  if (!first.has_value() || is_high || is_low) {
    *input += kReplacementCharacter;
  } else {
    AppendUtf8(*first, input);
  }
  position_ += 6;
  return true;
}

void CustomToolInput::Feed(std::string_view arguments, std::string* input) {
  arguments_ += arguments;
  if (stage_ == Stage::kOpening) ReadOpening();
  while (stage_ == Stage::kString && ReadUnit(input)) {
  }
}

void CustomToolInput::Finish(std::string* input) {
  if (stage_ == Stage::kString || stage_ == Stage::kDone) return;
  const Result<JsonValue> parsed = ParseJson(arguments_);
  const JsonValue* given = parsed.ok() ? parsed->Find("input") : nullptr;
  if (given != nullptr && given->AsString() != nullptr) {
    *input += *given->AsString();
  } else if (!parsed.ok() || parsed->AsObject() == nullptr || !parsed->AsObject()->empty()) {
    *input += arguments_;
  }
}

}  // namespace deepinfer
