#include "text/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace deepinfer {
namespace {

bool IsIntegerSpelling(std::string_view spelling) { return spelling.find_first_of(".eE") == std::string_view::npos; }

// Decimal exponent of the first significant digit of a valid JSON number: 0 for 5.1, 3 for 5100, -2 for 0.05.
// Saturates. Only the sign matters to the caller, who asks whether an out-of-range number was too large or too small.
int64_t LeadingExponent(std::string_view spelling) {
  constexpr int64_t kSaturated = int64_t{1} << 40;
  const size_t exponent_at = spelling.find_first_of("eE");
  int64_t exponent = 0;
  if (exponent_at != std::string_view::npos) {
    std::string_view digits = spelling.substr(exponent_at + 1);
    const bool negative = digits.front() == '-';
    if (digits.front() == '-' || digits.front() == '+') digits.remove_prefix(1);
    for (char digit : digits) exponent = std::min(exponent * 10 + (digit - '0'), kSaturated);
    if (negative) exponent = -exponent;
    spelling = spelling.substr(0, exponent_at);
  }
  const size_t first = spelling.find_first_of("123456789");
  if (first == std::string_view::npos) return -kSaturated;
  size_t point = spelling.find('.');
  if (point == std::string_view::npos) point = spelling.size();
  return exponent + static_cast<int64_t>(point) - static_cast<int64_t>(first) - (first < point ? 1 : 0);
}

}  // namespace

const JsonValue* JsonValue::Find(std::string_view key) const {
  const Object* object = AsObject();
  if (object == nullptr) return nullptr;
  for (const JsonMember& member : *object) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

std::optional<int64_t> JsonValue::AsInt64() const {
  const Number* number = AsNumber();
  if (number == nullptr || !IsIntegerSpelling(number->spelling)) return std::nullopt;
  int64_t value = 0;
  const char* end = number->spelling.data() + number->spelling.size();
  const auto [rest, error] = std::from_chars(number->spelling.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

std::optional<double> JsonValue::AsDouble() const {
  const Number* number = AsNumber();
  if (number == nullptr) return std::nullopt;
  double value = 0;
  const char* end = number->spelling.data() + number->spelling.size();
  const auto [rest, error] = std::from_chars(number->spelling.data(), end, value);
  if (error == std::errc::result_out_of_range) {
    if (LeadingExponent(number->spelling) > 0) return std::nullopt;
    return number->spelling.front() == '-' ? -0.0 : 0.0;
  }
  if (error != std::errc() || rest != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string_view JsonValue::KindName() const {
  static constexpr std::string_view kNames[] = {"null", "a boolean", "a number", "a string", "an array", "an object"};
  return kNames[state_.index()];
}

void AppendPythonString(std::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          *out += "\\u00";
          out->push_back(kHex[c >> 4]);
          out->push_back(kHex[c & 15]);
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
}

void AppendPythonFloat(double value, std::string* out) {
  if (std::signbit(value)) {
    out->push_back('-');
    value = -value;
  }
  // Shortest round-trip digits, as d.ddde[+-]xx.
  char buffer[40];
  const std::to_chars_result written =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(written.ptr - buffer));
  const size_t exponent_at = text.find('e');
  std::string digits(text.substr(0, 1));
  if (exponent_at > 2) digits += text.substr(2, exponent_at - 2);
  const int exponent = std::atoi(std::string(text.substr(exponent_at + 1)).c_str());

  // Python writes fixed notation for 1e-4 <= value < 1e16.
  if (exponent < -4 || exponent >= 16) {
    out->push_back(digits[0]);
    if (digits.size() > 1) {
      out->push_back('.');
      out->append(digits, 1);
    }
    *out += exponent < 0 ? "e-" : "e+";
    const int magnitude = std::abs(exponent);
    if (magnitude < 10) out->push_back('0');
    *out += std::to_string(magnitude);
  } else if (exponent < 0) {
    *out += "0.";
    out->append(static_cast<size_t>(-exponent - 1), '0');
    *out += digits;
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    out->append(digits, 0, whole);
    out->push_back('.');
    if (digits.size() > whole) {
      out->append(digits, whole);
    } else {
      out->push_back('0');
    }
  }
}

void AppendPythonJson(const JsonValue& value, std::string* out) {
  if (value.IsNull()) {
    *out += "null";
  } else if (const bool* boolean = value.AsBool()) {
    *out += *boolean ? "true" : "false";
  } else if (const JsonValue::Number* number = value.AsNumber()) {
    const std::optional<double> real = value.AsDouble();
    if (IsIntegerSpelling(number->spelling)) {
      *out += number->spelling == "-0" ? "0" : number->spelling;
    } else if (real.has_value()) {
      AppendPythonFloat(*real, out);
    } else {
      *out += number->spelling;
    }
  } else if (const std::string* string = value.AsString()) {
    AppendPythonString(*string, out);
  } else if (const JsonValue::Array* array = value.AsArray()) {
    out->push_back('[');
    for (size_t i = 0; i < array->size(); ++i) {
      if (i > 0) *out += ", ";
      AppendPythonJson((*array)[i], out);
    }
    out->push_back(']');
  } else if (const JsonValue::Object* object = value.AsObject()) {
    out->push_back('{');
    for (size_t i = 0; i < object->size(); ++i) {
      if (i > 0) *out += ", ";
      AppendPythonString((*object)[i].key, out);
      *out += ": ";
      AppendPythonJson((*object)[i].value, out);
    }
    out->push_back('}');
  }
}

}  // namespace deepinfer
