// The byte alphabet of byte-level BPE: GPT-2's printable stand-in character for each of the 256 bytes, in which
// tokenizer.json spells its vocabulary and merges. Bytes 33-126, 161-172 and 174-255 stand for themselves, the other 68
// take U+0100, U+0101, ... in ascending order.
//
// Thread-safety: pure functions.
#ifndef DEEPINFER_TEXT_BYTE_ALPHABET_H_
#define DEEPINFER_TEXT_BYTE_ALPHABET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

/// The bytes that `spelling` (UTF-8, well formed) stands for; nothing when a character is not in the alphabet.
std::optional<std::string> BytesOfSpelling(std::string_view spelling);

/// The spelling of `bytes` in the alphabet, as UTF-8.
std::string SpellingOfBytes(std::string_view bytes);

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_BYTE_ALPHABET_H_
