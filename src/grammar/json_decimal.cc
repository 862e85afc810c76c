#include "grammar/json_decimal.h"

#include <algorithm>
#include <charconv>

namespace deepinfer {
namespace {

constexpr int kMaxDigits = 400;

RegexId Digit(RegexPool* pool, int first, int last) {
  return first > last ? RegexPool::kNothing : pool->Bytes(ByteSet::Range('0' + first, '0' + last));
}

RegexId Digits(RegexPool* pool, int least, int most) { return pool->Repeat(Digit(pool, 0, 9), least, most); }

RegexId AnyFraction(RegexPool* pool) {
  return pool->Optional(pool->Concat(pool->Text("."), Digits(pool, 1, RegexPool::kUnbounded)));
}

RegexId Unsigned(RegexPool* pool) {
  const RegexId whole =
      pool->Or({pool->Text("0"), pool->Concat(Digit(pool, 1, 9), Digits(pool, 0, RegexPool::kUnbounded))});
  return pool->Concat(whole, AnyFraction(pool));
}

RegexId Zeros(RegexPool* pool) { return pool->Star(pool->Text("0")); }

/// Unsigned numbers equal to |value|.
RegexId UnsignedEqual(const Decimal& value, RegexPool* pool) {
  if (value.fraction.empty()) {
    return pool->Concat(pool->Text(value.whole), pool->Optional(pool->Concat(pool->Text(".0"), Zeros(pool))));
  }
  return pool->Concat(pool->Text(value.whole + "." + value.fraction), Zeros(pool));
}

/// Unsigned numbers above |value|.
RegexId UnsignedAbove(const Decimal& value, RegexPool* pool) {
  const std::string& whole = value.whole;
  std::vector<RegexId> wholes;  // whole parts above value's
  const auto length = static_cast<int>(whole.size());
  wholes.push_back(pool->Concat(Digit(pool, 1, 9), Digits(pool, length, RegexPool::kUnbounded)));
  for (int i = 0; i < length; ++i) {
    wholes.push_back(pool->Sequence({pool->Text(whole.substr(0, static_cast<size_t>(i))),
                                     Digit(pool, whole[static_cast<size_t>(i)] - '0' + 1, 9),
                                     Digits(pool, length - 1 - i, length - 1 - i)}));
  }
  std::vector<RegexId> fractions;  // fractions above value's
  const std::string& fraction = value.fraction;
  for (size_t i = 0; i < fraction.size(); ++i) {
    fractions.push_back(pool->Sequence({pool->Text(fraction.substr(0, i)), Digit(pool, fraction[i] - '0' + 1, 9),
                                        Digits(pool, 0, RegexPool::kUnbounded)}));
  }
  fractions.push_back(
      pool->Sequence({pool->Text(fraction), Zeros(pool), Digit(pool, 1, 9), Digits(pool, 0, RegexPool::kUnbounded)}));
  return pool->Or({pool->Concat(pool->Or(std::move(wholes)), AnyFraction(pool)),
                   pool->Sequence({pool->Text(whole), pool->Text("."), pool->Or(std::move(fractions))})});
}

RegexId Negative(RegexId regex, RegexPool* pool) { return pool->Concat(pool->Text("-"), regex); }

}  // namespace

std::string Decimal::Spelling() const {
  std::string text(negative ? 1 : 0, '-');
  text.append(whole);
  if (!fraction.empty()) text.append(1, '.').append(fraction);
  return text;
}

std::optional<Decimal> ParseDecimal(std::string_view spelling) {
  Decimal value;
  if (spelling.starts_with('-')) {
    value.negative = true;
    spelling.remove_prefix(1);
  }
  int64_t exponent = 0;
  const size_t mark = spelling.find_first_of("eE");
  if (mark != std::string_view::npos) {
    std::string_view text = spelling.substr(mark + 1);
    if (text.starts_with('+')) text.remove_prefix(1);
    if (text.size() > 9) return std::nullopt;
    std::from_chars(text.data(), text.data() + text.size(), exponent);
    spelling = spelling.substr(0, mark);
  }
  const size_t point = std::min(spelling.find('.'), spelling.size());
  std::string digits(spelling.substr(0, point));
  auto whole_digits = static_cast<int64_t>(digits.size()) + exponent;
  if (point < spelling.size()) digits += spelling.substr(point + 1);
  const size_t first = digits.find_first_not_of('0');
  if (first == std::string::npos) {
    Decimal zero;
    zero.whole.push_back('0');
    return zero;
  }
  digits.erase(0, first);
  whole_digits -= static_cast<int64_t>(first);
  digits.erase(digits.find_last_not_of('0') + 1);
  if (whole_digits > kMaxDigits || whole_digits < -kMaxDigits || digits.size() > kMaxDigits) return std::nullopt;
  if (whole_digits <= 0) {
    value.whole.assign(1, '0');
    value.fraction.assign(static_cast<size_t>(-whole_digits), '0');
    value.fraction.append(digits);
  } else {
    const auto split = static_cast<size_t>(whole_digits);
    if (digits.size() < split) digits.append(split - digits.size(), '0');
    value.whole = digits.substr(0, split);
    value.fraction = digits.substr(split);
  }
  return value;
}

std::optional<ScaledInteger> ScaleToInteger(const Decimal& value) {
  const std::string digits = value.whole + value.fraction;
  ScaledInteger scaled{0, static_cast<int>(value.fraction.size())};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), scaled.value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (value.negative || scaled.value == 0) return std::nullopt;
  return scaled;
}

RegexId PlainNumber(RegexPool* pool) { return pool->Concat(pool->Optional(pool->Text("-")), Unsigned(pool)); }

RegexId AnyNumber(RegexPool* pool) {
  ByteSet mark = ByteSet::Range('e', 'e');
  mark.Add('E');
  ByteSet sign = ByteSet::Range('+', '+');
  sign.Add('-');
  const RegexId exponent =
      pool->Sequence({pool->Bytes(mark), pool->Optional(pool->Bytes(sign)), Digits(pool, 1, RegexPool::kUnbounded)});
  return pool->Concat(PlainNumber(pool), pool->Optional(exponent));
}

RegexId PlainInteger(RegexPool* pool) {
  const RegexId whole =
      pool->Or({pool->Text("0"), pool->Concat(Digit(pool, 1, 9), Digits(pool, 0, RegexPool::kUnbounded))});
  return pool->Concat(pool->Optional(pool->Text("-")), whole);
}

RegexId WholeNumber(RegexPool* pool) {
  return pool->Concat(PlainInteger(pool), pool->Optional(pool->Concat(pool->Text(".0"), Zeros(pool))));
}

RegexId AnyWholeNumber(RegexPool* pool) {
  ByteSet mark = ByteSet::Range('e', 'e');
  mark.Add('E');
  const RegexId power = pool->Or({pool->Concat(pool->Optional(pool->Text("+")), Digits(pool, 1, RegexPool::kUnbounded)),
                                  pool->Concat(pool->Text("-0"), Zeros(pool))});
  return pool->Concat(WholeNumber(pool), pool->Optional(pool->Concat(pool->Bytes(mark), power)));
}

RegexId PythonInteger(RegexPool* pool) {
  const RegexId above_zero = pool->Concat(Digit(pool, 1, 9), Digits(pool, 0, RegexPool::kUnbounded));
  return pool->Or({pool->Text("0"), pool->Concat(pool->Optional(pool->Text("-")), above_zero)});
}

RegexId NumberEqual(const Decimal& value, RegexPool* pool) {
  const RegexId size = UnsignedEqual(value, pool);
  if (value.IsZero()) return pool->Concat(pool->Optional(pool->Text("-")), size);
  return value.negative ? Negative(size, pool) : size;
}

RegexId NumberOneOf(const std::vector<Decimal>& values, RegexPool* pool) {
  std::vector<std::string> whole;
  std::vector<std::string> fractional;
  for (const Decimal& value : values) {
    std::vector<std::string>& list = value.fraction.empty() ? whole : fractional;
    list.push_back(value.Spelling());
    if (value.IsZero()) whole.push_back("-0");
  }
  return pool->Or(
      {pool->Concat(pool->AnyOfTexts(std::move(whole)), pool->Optional(pool->Concat(pool->Text(".0"), Zeros(pool)))),
       pool->Concat(pool->AnyOfTexts(std::move(fractional)), Zeros(pool))});
}

RegexId NumberFrom(const Decimal& bound, bool strict, RegexPool* pool) {
  const RegexId equal = UnsignedEqual(bound, pool);
  const RegexId above = UnsignedAbove(bound, pool);
  if (bound.negative) {  // everything unsigned, and what is below in size
    const RegexId excluded = strict ? pool->Or({above, equal}) : above;
    const RegexId below = pool->And({Unsigned(pool), pool->Not(excluded)});
    return pool->Or({Unsigned(pool), Negative(below, pool)});
  }
  if (strict) return above;
  return bound.IsZero() ? pool->Or({above, equal, Negative(equal, pool)}) : pool->Or({above, equal});
}

RegexId NumberUpTo(const Decimal& bound, bool strict, RegexPool* pool) {
  return pool->And({PlainNumber(pool), pool->Not(NumberFrom(bound, !strict, pool))});
}

RegexId NumberMultipleOf(const ScaledInteger& divisor, RegexPool* pool) {
  const RegexId multiple = pool->And({Unsigned(pool), pool->Multiple(divisor.value, divisor.scale)});
  return pool->Or({multiple, Negative(multiple, pool)});
}

}  // namespace deepinfer
