// The pieces of DeepSeek's three split patterns (V3 to V4.1), found in one pass without a regular-expression engine.
//
// The patterns, in order: `\p{N}{1,3}`; `[一-龥぀-ゟ゠-ヿ]+`; and, inside the gaps and the matches of those,
// ``[!-/:-@\[-`{-~][A-Za-z]+ | [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+ |  ?[\p{P}\p{S}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) |
// \s+``. Character classes come from ICU 72, Unicode 15; `\s` is White_Space. Thread-safety: pure functions over a
// table that is built once, on first use. Source: spec prompt-format.md section 10.
#ifndef DEEPINFER_TEXT_PRETOKENIZER_DEEPSEEK_H_
#define DEEPINFER_TEXT_PRETOKENIZER_DEEPSEEK_H_

#include <cstddef>
#include <string_view>

namespace deepinfer {

/// End of the piece that starts at `begin` < text.size(), itself a piece start; `text` is well-formed UTF-8.
size_t NextDeepSeekPiece(std::string_view text, size_t begin);

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_PRETOKENIZER_DEEPSEEK_H_
