// Decimal numbers as JSON spells them, exactly, and the languages of their plain spellings.
//
// A plain spelling has no exponent: -?(0|[1-9][0-9]*)(\.[0-9]+)?. Every language here holds all plain spellings of the
// values it is about ("1", "1.0", "1.00"; "0" and "-0"), so that union, intersection and complement within
// PlainNumber are those of sets of values.
// Thread-safety: values and pure functions on a pool. Ownership: values. Errors: nullopt where said.
#ifndef DEEPINFER_GRAMMAR_JSON_DECIMAL_H_
#define DEEPINFER_GRAMMAR_JSON_DECIMAL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/regex_pool.h"

namespace deepinfer {

struct Decimal {
  bool negative = false;  ///< false for zero
  std::string whole;      ///< without leading zeros; "0" below one
  std::string fraction;   ///< without trailing zeros; may be empty

  bool IsZero() const { return whole == "0" && fraction.empty(); }
  /// One spelling for each value.
  std::string Spelling() const;
};

/// The value of a JSON number; nullopt when its plain spelling is longer than 400 digits.
std::optional<Decimal> ParseDecimal(std::string_view spelling);

/// The least decimal with this many fraction digits for which `value` x 10^scale is whole, as that whole number;
/// nullopt for zero, negatives and what does not fit 31 bits.
struct ScaledInteger {
  int32_t value;
  int scale;
};
std::optional<ScaledInteger> ScaleToInteger(const Decimal& value);

RegexId PlainNumber(RegexPool* pool);
RegexId AnyNumber(RegexPool* pool);  ///< exponents too
RegexId WholeNumber(RegexPool* pool);
/// Whole numbers, with exponents too where these are not below zero.
RegexId AnyWholeNumber(RegexPool* pool);
/// -?(0|[1-9][0-9]*)
RegexId PlainInteger(RegexPool* pool);
/// Numbers equal to one of `values`.
RegexId NumberOneOf(const std::vector<Decimal>& values, RegexPool* pool);
/// Whole numbers without a fraction and without "-0".
RegexId PythonInteger(RegexPool* pool);
RegexId NumberEqual(const Decimal& value, RegexPool* pool);
/// Numbers of at least `bound`, or above it when `strict`.
RegexId NumberFrom(const Decimal& bound, bool strict, RegexPool* pool);
/// Numbers of at most `bound`, or below it when `strict`.
RegexId NumberUpTo(const Decimal& bound, bool strict, RegexPool* pool);
RegexId NumberMultipleOf(const ScaledInteger& divisor, RegexPool* pool);

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_JSON_DECIMAL_H_
