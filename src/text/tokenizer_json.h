// What a tokenizer.json says, checked for being something that the tokenizer implements exactly.
//
// Accepted: normalizer null or an empty Sequence; pre_tokenizer a Sequence of Split (Regex, Isolated, not inverted)
// closed by ByteLevel without prefix space and without its own regex; model BPE without dropout, affixes or
// ignore_merges; decoder ByteLevel; post_processor null or ByteLevel; truncation and padding null; added tokens without
// single_word, lstrip and rstrip. Everything else is an error that names the key. Thread-safety: a pure function.
// Errors: kCorruption for files that contradict the layout, kUnsupported for layouts that are not implemented.
#ifndef DEEPINFER_TEXT_TOKENIZER_JSON_H_
#define DEEPINFER_TEXT_TOKENIZER_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deepinfer/status.h"

namespace deepinfer {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
};

struct TokenizerDefinition {
  std::vector<std::string> split_patterns;                  // Oniguruma syntax, applied in this order
  std::vector<std::pair<std::string, int64_t>> vocabulary;  // spelling in the byte alphabet, id as found
  std::vector<std::pair<std::string, std::string>> merges;  // spellings of left and right; the index is the rank
  std::vector<AddedToken> added_tokens;
};

/// `name` stands for the file in errors.
Result<TokenizerDefinition> ParseTokenizerJson(std::string_view json, const std::string& name);

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_TOKENIZER_JSON_H_
