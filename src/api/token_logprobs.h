// Log probabilities of tokens as the protocols write them.
//
// A token may be a part of a character: its text then shows U+FFFD in Chat Completions and Responses, where `bytes`
// tells it exactly, and `bytes:\xe2\x9c` in Completions, which has no such field. Thread-safety: values and pure
// functions. Source: docs/http-api.md, "Log probabilities".
#ifndef DEEPINFER_API_TOKEN_LOGPROBS_H_
#define DEEPINFER_API_TOKEN_LOGPROBS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace deepinfer {

/// One token and how likely it was.
struct TokenProbability {
  std::string bytes;   ///< what it stands for, possibly a part of a character
  double logprob = 0;  ///< NaN: not known, which is so for the first token of a prompt
};

/// A sampled token with the most likely ones at its place.
struct TokenProbabilities {
  TokenProbability chosen;
  std::vector<TokenProbability> top;
};

/// Appends `{token, logprob, bytes, top_logprobs}` objects, separated by commas also from what `items` holds.
void AppendLogprobItems(std::span<const TokenProbabilities> tokens, std::string* items);

/// The `logprobs` object of Completions, whose four arrays grow together.
class CompletionLogprobs {
 public:
  /// `offset` of the first token in the choice's text, in characters, is where the tokens before it ended.
  void Add(std::span<const TokenProbabilities> tokens);
  bool empty() const { return tokens_.empty(); }
  /// Appends the object; what was added so far is then told, and only the offset goes on.
  void Take(std::string* out);

 private:
  int64_t offset_ = 0;  // characters of the choice's text so far
  std::string offsets_;
  std::string logprobs_;
  std::string tokens_;
  std::string top_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_API_TOKEN_LOGPROBS_H_
