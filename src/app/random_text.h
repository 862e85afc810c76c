// RandomText: texts of common English words with a wanted number of tokens, for loads without a local tokenizer.
//
// Every word counts one token unless a server has said otherwise: each of them is one, with the blank in front, in the
// large vocabularies. Thread-safety: const members from any thread. Ownership: a value.
#ifndef DEEPINFER_APP_RANDOM_TEXT_H_
#define DEEPINFER_APP_RANDOM_TEXT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

class RandomText {
 public:
  RandomText();

  static std::span<const std::string_view> Words();

  /// Tokens of each of Words() with a blank in front; all at least 1.
  void SetTokenCounts(std::vector<int64_t> counts);

  /// A function of `seed`, `stream` and `tokens`. As many tokens as the words allow: fewer than the shortest word's are
  /// missing. At least one word.
  std::string Make(int64_t seed, uint64_t stream, int64_t tokens) const;

 private:
  std::vector<int64_t> counts_;
  size_t shortest_ = 0;
};

}  // namespace deepinfer

#endif  // DEEPINFER_APP_RANDOM_TEXT_H_
