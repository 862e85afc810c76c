// Isolated regular-expression splits on PCRE2: the general engine of the pre-tokeniser.
//
// Hugging Face runs the patterns on Oniguruma. Accepted is the part of its syntax that PCRE2 reads alike: literals,
// alternation, groups (?:...), look-ahead, classes without nesting, \s \S \p{..} \P{..} with general categories, \r \n
// \t, escaped punctuation, and the quantifiers ? * + {n,m} with ? for lazy. `\s` is spelled out as White_Space, because
// PCRE2's own class differs from it. Categories are those of PCRE2 10.42, Unicode 14.
// Thread-safety: immutable after Compile. Ownership: compiled patterns are shared by copies.
#ifndef DEEPINFER_TEXT_PRETOKENIZER_REGEX_H_
#define DEEPINFER_TEXT_PRETOKENIZER_REGEX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"

namespace deepinfer {

class RegexSplits {
 public:
  RegexSplits() = default;

  /// Errors: kUnsupported for syntax outside the above and for patterns that match the empty string.
  static Result<RegexSplits> Compile(const std::vector<std::string>& patterns);

  /// Appends the end of every piece of `text` (well-formed UTF-8). Fails when PCRE2 gives up: match or memory limit.
  Status Split(std::string_view text, std::vector<uint32_t>* ends) const;

 private:
  std::vector<std::shared_ptr<const void>> codes_;  // pcre2_code, with its destructor
};

/// The PCRE2 spelling of an Oniguruma pattern of the accepted syntax.
Result<std::string> TranslateSplitPattern(std::string_view pattern);

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_PRETOKENIZER_REGEX_H_
