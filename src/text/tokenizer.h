// Tokenizer: byte-level BPE from a Hugging Face tokenizer.json, text -> ids and ids -> bytes.
//
// Exact for the layout of DeepSeek-V3 to V4.1: no normaliser, a sequence of isolating regular-expression splits, the
// byte alphabet, rank-ordered merges. A tokenizer.json that asks for anything else is refused, never approximated.
// No token is ever added on its own account (no BOS, no EOS).
//
// Input that is not well-formed UTF-8 is encoded as if every maximal ill-formed subpart were U+FFFD (utf8.h).
// Control tokens: Encode never matches added tokens, so what a user types cannot become one. EncodeWithSpecial does and
// is for tools, tests and raw prompts whose author asks for it.
// Thread-safety: immutable after Load; every method may be called from any thread at once.
// Ownership: returned views point into the tokenizer. Cost: linear in the text up to a logarithm, for any text.
// Sources: spec prompt-format.md section 10; docs/tokenizer.md.
#ifndef DEEPINFER_TEXT_TOKENIZER_H_
#define DEEPINFER_TEXT_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"

namespace deepinfer {

class Tokenizer {
 public:
  /// Longest text of one call, in bytes.
  static constexpr size_t kMaxTextBytes = size_t{1} << 30;

  /// Reads `path`. Errors name the file, the key, what was expected and what was found.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::string& path);

  /// The same from memory; `name` stands for the file in errors.
  static Result<std::unique_ptr<Tokenizer>> FromJson(std::string_view json, const std::string& name = "tokenizer.json");

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Ids are 0 .. vocab_size()-1, without gaps; added tokens included.
  int32_t vocab_size() const;

  /// Appends the ids of `text` as plain text. Fails only on a text over kMaxTextBytes, or when a split pattern other
  /// than DeepSeek's exhausts the limits of the regular-expression engine; `out` is then as before.
  Status Encode(std::string_view text, std::vector<int32_t>* out) const;

  /// Appends the ids of `text` in which every occurrence (leftmost, then longest) of an added token is that token.
  Status EncodeWithSpecial(std::string_view text, std::vector<int32_t>* out) const;

  /// The bytes a token stands for: of an added token its text in UTF-8, of any other possibly a part of a character.
  /// Empty for an id out of range.
  std::string_view TokenBytes(int32_t id) const;

  /// The token as tokenizer.json spells it: in the byte alphabet, added tokens verbatim. Empty for an id out of range.
  std::string TokenText(int32_t id) const;

  /// The id of the added token with exactly this text.
  std::optional<int32_t> IdOfAddedToken(std::string_view text) const;

  /// Whether `id` is listed under added_tokens; false for an id out of range.
  bool IsAdded(int32_t id) const;

  /// Whether `id` is an added token flagged special, which Decode can skip.
  bool IsSpecial(int32_t id) const;

  /// The text of `ids`, repaired to well-formed UTF-8. Ids out of range stand for nothing, as in the Hugging Face
  /// decoder.
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const;

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);

  std::unique_ptr<const State> state_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_TOKENIZER_H_
