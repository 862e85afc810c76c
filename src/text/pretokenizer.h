// The pre-tokeniser: cuts text into the pieces that BPE works on, by a sequence of "isolated" regular-expression
// splits.
//
// Each pattern is applied inside every piece that the one before left: its matches become pieces, and so do the gaps
// between them. Look-ahead and greed stop at piece ends. Two engines give the same pieces:
//   * DeepSeek's three patterns (V3 to V4.1) have a hand-written scanner, pretokenizer_deepseek.h;
//   * any other pattern of the accepted syntax runs on PCRE2, pretokenizer_regex.h.
// Thread-safety: immutable after Create.
#ifndef DEEPINFER_TEXT_PRETOKENIZER_H_
#define DEEPINFER_TEXT_PRETOKENIZER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/status.h"
#include "text/pretokenizer_deepseek.h"
#include "text/pretokenizer_regex.h"

namespace deepinfer {

class PreTokenizer {
 public:
  enum class Engine {
    kFastest,  ///< the scanner where the patterns are DeepSeek's
    kRegex,    ///< always PCRE2: the oracle of the scanner
  };

  /// `patterns` in Oniguruma syntax, as in tokenizer.json. Fails on syntax that is not implemented exactly.
  static Result<PreTokenizer> Create(const std::vector<std::string>& patterns, Engine engine = Engine::kFastest);

  /// Calls `piece(std::string_view)` for every piece of `text` in order. `text` is well-formed UTF-8 of less than 2^32
  /// bytes; no piece is empty and together they are the text. On an error no piece has been reported.
  template <typename Piece>
  Status ForEachPiece(std::string_view text, Piece&& piece) const {
    if (scanner_) {
      for (size_t begin = 0; begin < text.size();) {
        const size_t end = NextDeepSeekPiece(text, begin);
        piece(text.substr(begin, end - begin));
        begin = end;
      }
      return Status::Ok();
    }
    std::vector<uint32_t> ends;
    DEEPINFER_RETURN_IF_ERROR(splits_.Split(text, &ends));
    size_t begin = 0;
    for (const uint32_t end : ends) {
      piece(text.substr(begin, end - begin));
      begin = end;
    }
    return Status::Ok();
  }

 private:
  bool scanner_ = false;
  RegexSplits splits_;
};

/// The three patterns of DeepSeek-V3 to V4.1 (spec prompt-format.md section 10).
const std::vector<std::string>& DeepSeekSplitPatterns();

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_PRETOKENIZER_H_
