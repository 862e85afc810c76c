// The nearest known word to one that is not known: for flags, commands and slash commands.
//
// Thread-safety: pure functions.
#ifndef DEEPINFER_APP_SUGGEST_H_
#define DEEPINFER_APP_SUGGEST_H_

#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b);

/// The closest of `known`, or nothing when none is close; an unfinished word counts as close to what it begins.
std::string Nearest(std::string_view word, const std::vector<std::string>& known);

/// " (did you mean 'X'?)" for the nearest word, or nothing.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& known);

}  // namespace deepinfer

#endif  // DEEPINFER_APP_SUGGEST_H_
