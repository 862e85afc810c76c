// The two tokenizers that the tests of this room share, and texts to try them on. Loaded once per process.
#ifndef DEEPINFER_TESTS_TEXT_TOKENIZER_FIXTURE_H_
#define DEEPINFER_TESTS_TEXT_TOKENIZER_FIXTURE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace deepinfer::testing {

/// tokenizer.json of the release, unpacked from tests/data/text.
const std::string& ReleasedTokenizerJson();

const Tokenizer& ReleasedTokenizer();

/// The tokenizer of models/nano.
const Tokenizer& NanoTokenizer();

/// A tokenizer.json in the accepted layout, with DeepSeek's patterns: all bytes as ids 0..255 in order, then the tokens
/// of `merges` ("l r" in the byte alphabet), then <bos> (special) and <|tool|>.
nlohmann::ordered_json SmallTokenizerJson(const std::vector<std::string>& merges);

/// A text of about `length` characters of every kind that the split patterns tell apart, short runs of each.
std::string RandomText(std::mt19937* random, size_t length);

}  // namespace deepinfer::testing

#endif  // DEEPINFER_TESTS_TEXT_TOKENIZER_FIXTURE_H_
