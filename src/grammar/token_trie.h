// TokenTrie: the vocabulary as prefix trees of bytes, cut into parts that a mask can often take or leave as a whole.
//
// A part holds the tokens that are so many whole characters of plain text (no quote, no backslash, no control
// character, no U+FF5C, of which marks are made), or all others. A grammar state in which every such character may
// follow so many times admits the whole part without a walk (mask_builder.h). Within a part the nodes lie in
// depth-first order, each with the index behind its subtree. Control tokens that a grammar may name have bytes that no
// text has: 0xFF and their number. All other added tokens are in no part, nor are tokens without bytes, tokens with a
// byte 0xFE or 0xFF (no text has one) and ids past the vocabulary: no grammar ever admits them. Thread-safety:
// immutable after Build. Ownership: holds copies. Errors: kInvalidArgument for a width below the vocabulary or too many
// control tokens. Source: spec serving.md section 10.5 (token trie, slices).
#ifndef DEEPINFER_GRAMMAR_TOKEN_TRIE_H_
#define DEEPINFER_GRAMMAR_TOKEN_TRIE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"
#include "text/tokenizer.h"

namespace deepinfer {

class TokenTrie {
 public:
  struct Node {
    uint32_t skip;   ///< index of the next node outside this subtree
    int32_t token;   ///< -1 when no token ends here
    uint16_t depth;  ///< 0 for a first byte
    uint8_t byte;
  };
  struct Part {
    int least_characters = 0;  ///< of plain text; 0 for the part of all other tokens
    int most_characters = 0;
    std::vector<uint32_t> bits;  ///< [words()]
    std::vector<Node> nodes;
  };

  /// The byte that begins the spelling of a control token.
  static constexpr char kControlByte = '\xFF';
  /// What stands in a grammar for the control token with this number.
  static std::string ControlSpelling(int number) { return {kControlByte, static_cast<char>(number)}; }

  /// `width` is that of the logits, at least the vocabulary's. `control_tokens`, by number, are added tokens that
  /// grammars may name; at most 128.
  static Result<std::shared_ptr<const TokenTrie>> Build(const Tokenizer& tokenizer, int32_t width,
                                                        const std::vector<int32_t>& control_tokens = {});

  /// The same for tokens given by their bytes; an empty one is never admitted.
  static Result<std::shared_ptr<const TokenTrie>> FromTokens(std::vector<std::string> tokens, int32_t width,
                                                             const std::vector<int32_t>& control_tokens = {});

  int32_t width() const { return width_; }
  /// 32-bit words of a mask.
  size_t words() const { return (static_cast<size_t>(width_) + 31) / 32; }
  const std::vector<Part>& parts() const { return parts_; }
  /// The bytes of a token that a grammar may admit; empty for all others.
  std::string_view BytesOf(int32_t token) const;
  size_t longest_token() const { return longest_token_; }
  /// The control token with this number; -1 for none.
  int32_t ControlToken(int number) const {
    return number >= 0 && static_cast<size_t>(number) < control_tokens_.size()
               ? control_tokens_[static_cast<size_t>(number)]
               : -1;
  }

 private:
  TokenTrie() = default;
  void AddPart(int least, int most, std::vector<int32_t> tokens);

  int32_t width_ = 0;
  size_t longest_token_ = 0;
  std::vector<uint32_t> offsets_;  // [width + 1] into bytes_
  std::string bytes_;
  std::vector<Part> parts_;
  std::vector<int32_t> control_tokens_;
};

/// Whether `text` is whole characters that JSON strings hold without escapes, none of them U+FF5C; their number in
/// `count`.
bool IsPlainText(std::string_view text, int* count);

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_TOKEN_TRIE_H_
