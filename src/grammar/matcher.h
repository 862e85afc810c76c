// Matcher: one request's position in a grammar: accepts tokens, says which may follow, takes tokens back.
//
// The position after every accepted token is kept, so Rollback costs nothing. When the memory of a matcher is full it
// is emptied and the accepted tokens are matched again; when even that does not fit, the methods fail with
// kResourceExhausted and the request must end: there is no unconstrained fallback.
// Answers are pure functions of the grammar and the accepted tokens.
// Thread-safety: one thread at a time. Ownership: shares the compiled grammar. Errors: as said.
#ifndef DEEPINFER_GRAMMAR_MATCHER_H_
#define DEEPINFER_GRAMMAR_MATCHER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"
#include "grammar/compiled_grammar.h"
#include "text/tokenizer.h"

namespace deepinfer {

class Matcher {
 public:
  /// `end_tokens` are the ids that end a text; they are admitted exactly where the grammar accepts.
  Matcher(std::shared_ptr<const CompiledGrammar> grammar, std::vector<int32_t> end_tokens);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  /// Takes `token`; false, and nothing changes, when the grammar does not admit it.
  Result<bool> Accept(int32_t token);
  /// Fills `words` (TokenTrie::words()) with a bit for every token that may come next.
  Status FillMask(std::span<uint32_t> words);
  /// After an error: begins anew with the accepted tokens, however much work that is. Errors: only memory.
  Status Restart();
  /// Takes back the last `count` accepted tokens, end tokens included; count <= accepted().
  void Rollback(size_t count);

  /// Tokens accepted and not taken back.
  size_t accepted() const { return tokens_.size(); }
  /// Whether an end token was accepted: nothing may follow.
  bool ended() const { return ended_; }
  /// Whether the text may end here.
  bool MayEnd() const { return ended_ || memory_->recogniser.Accepts(states_.back()); }
  /// Whether the text must end here: no token but an end token is admitted.
  Result<bool> MustEnd();
  /// The bytes that every text of the grammar continues with, at most `max_bytes`. May end inside a character. Control
  /// tokens have the bytes of TokenTrie::ControlSpelling.
  Result<std::string> ForcedBytes(size_t max_bytes);
  /// The same as tokens: control tokens, and text as `tokenizer` spells it. The last token of text is left out unless a
  /// control token follows, since what follows could change it.
  Result<std::vector<int32_t>> ForcedTokens(const Tokenizer& tokenizer, size_t max_bytes);
  /// Whether text of the grammar begins with the accepted tokens and `bytes`.
  Result<bool> Admits(std::string_view bytes);

 private:
  /// Empties the memory and matches the accepted tokens again.
  Status Replay(bool limit_work);
  /// After work on the recogniser: clears and replays an exhausted one. `retry` says that the work must be repeated.
  Status Recover(bool* retry);

  std::shared_ptr<const CompiledGrammar> grammar_;
  std::vector<int32_t> end_tokens_;
  std::unique_ptr<CompiledGrammar::Memory> memory_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> states_;  // before any token, then after each but an end token
  bool ended_ = false;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GRAMMAR_MATCHER_H_
