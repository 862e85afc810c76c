// ParseRegex: a pattern in the syntax of ECMAScript and PCRE, as far as it is regular, into a RegexPool.
//
// docs/grammar.md lists the syntax. Anchors may stand anywhere and mean what they mean in a single-line match. Lazy
// quantifiers match the same texts as greedy ones. Back references, look-around, word borders, atomic groups and inline
// flags are refused.
// Thread-safety: pure, on its pool. Ownership: none. Errors: kInvalidArgument for malformed, kUnsupported for refused
// syntax, each with the position as "character 17: ..."; kResourceExhausted for patterns too deep or too long.
#ifndef DEEPINFER_GRAMMAR_REGEX_PARSER_H_
#define DEEPINFER_GRAMMAR_REGEX_PARSER_H_

#include <string_view>

#include "deepinfer/status.h"
#include "grammar/alphabet.h"

namespace deepinfer {

enum class RegexMatch {
  kWhole,   ///< the pattern matches the whole text
  kSearch,  ///< the pattern matches somewhere in the text, as JSON Schema's `pattern`
};

Result<RegexId> ParseRegex(std::string_view pattern, RegexMatch match, Alphabet* alphabet);

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_REGEX_PARSER_H_
