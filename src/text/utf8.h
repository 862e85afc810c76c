// UTF-8: validation, repair and decoding, shared by the tokenizer and the incremental detokeniser.
//
// "Maximal subpart" is the Unicode rule (chapter 3.9, U+FFFD substitution) that Python, Rust and the WHATWG decoders
// follow: the longest prefix of a well-formed sequence becomes one U+FFFD, every other stray byte one each.
// Thread-safety: pure functions. Errors: none; every byte string has a repaired form.
#ifndef DEEPINFER_TEXT_UTF8_H_
#define DEEPINFER_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

/// U+FFFD in UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// What stands at the start of a byte string.
struct Utf8Unit {
  enum class Kind {
    kCharacter,   ///< a whole well-formed character of `length` bytes
    kInvalid,     ///< a maximal subpart of `length` bytes that no continuation can complete: one U+FFFD
    kIncomplete,  ///< the bytes end inside a character that more bytes could complete; `length` is all that is left
  };
  Kind kind;
  size_t length;  // bytes, 1..4
};

/// Classifies the first unit of `bytes`, which must not be empty.
Utf8Unit FirstUtf8Unit(std::string_view bytes);

/// Length of the longest prefix of whole well-formed characters.
size_t ValidUtf8Prefix(std::string_view bytes);

/// Whether all of `bytes` is well formed (no surrogates, nothing overlong, nothing above U+10FFFF).
bool IsValidUtf8(std::string_view bytes);

/// `bytes` with every maximal subpart of ill-formed text (an incomplete end included) replaced by U+FFFD.
std::string RepairUtf8(std::string_view bytes);

/// Appends the UTF-8 of `code_point`, which must be a Unicode scalar value.
void AppendUtf8(uint32_t code_point, std::string* out);

/// `text` in double quotes for a one-line message: repaired, control characters as blanks, at most 60 bytes of it.
std::string QuotedExcerpt(std::string_view text);

/// Decodes the character at `text[position]` of well-formed UTF-8 and moves `position` past it.
inline uint32_t NextCodePoint(const char* text, size_t* position) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text) + *position;
  const uint32_t lead = bytes[0];
  if (lead < 0x80) {
    *position += 1;
    return lead;
  }
  if (lead < 0xE0) {
    *position += 2;
    return (lead & 0x1F) << 6 | (bytes[1] & 0x3F);
  }
  if (lead < 0xF0) {
    *position += 3;
    return (lead & 0x0F) << 12 | (bytes[1] & 0x3Fu) << 6 | (bytes[2] & 0x3F);
  }
  *position += 4;
  return (lead & 0x07) << 18 | (bytes[1] & 0x3Fu) << 12 | (bytes[2] & 0x3Fu) << 6 | (bytes[3] & 0x3F);
}

}  // namespace deepinfer

#endif  // DEEPINFER_TEXT_UTF8_H_
