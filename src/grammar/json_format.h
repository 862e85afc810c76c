// The formats of JSON Schema as regular expressions.
//
// Thread-safety: pure. Ownership: static text. Errors: nullopt for an unknown format.
// Sources: RFC 3339 (date, time, duration), 5321 (email), 1123 (host names), 2673 and 4291 (addresses), 4122 (uuid),
// 3986 (uri), 6901 (JSON pointers); OpenAPI (formats of numbers). docs/grammar.md says where an expression accepts less
// than its source.
#ifndef DEEPINFER_GRAMMAR_JSON_FORMAT_H_
#define DEEPINFER_GRAMMAR_JSON_FORMAT_H_

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

/// Whether the format says something about strings or numbers that can be enforced.
bool IsKnownFormat(std::string_view format);

/// The least and the greatest integer of a format of numbers (int32, int64, uint32, uint64), as decimals.
struct IntegerRange {
  std::string least;
  std::string greatest;
};
std::optional<IntegerRange> RangeOfFormat(std::string_view format);

/// The pattern that the whole string matches.
std::optional<std::string> PatternOfFormat(std::string_view format);

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_JSON_FORMAT_H_
