#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace deepinfer {
namespace {

constexpr uint32_t kFirstStandIn = 0x100;
constexpr uint32_t kAlphabetEnd = kFirstStandIn + 68;

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

struct Alphabet {
  std::array<uint16_t, 256> character_of_byte{};
  std::array<int16_t, kAlphabetEnd> byte_of_character{};  // -1: not in the alphabet

  constexpr Alphabet() {
    for (auto& byte : byte_of_character) byte = -1;
    uint32_t next = kFirstStandIn;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t character = StandsForItself(byte) ? byte : next++;
      character_of_byte[byte] = static_cast<uint16_t>(character);
      byte_of_character[character] = static_cast<int16_t>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

std::optional<std::string> BytesOfSpelling(std::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  for (size_t at = 0; at < spelling.size();) {
    const uint32_t character = NextCodePoint(spelling.data(), &at);
    if (character >= kAlphabetEnd || kAlphabet.byte_of_character[character] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of_character[character]));
  }
  return bytes;
}

std::string SpellingOfBytes(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(2 * bytes.size());
  for (const char byte : bytes) AppendUtf8(kAlphabet.character_of_byte[static_cast<unsigned char>(byte)], &spelling);
  return spelling;
}

}  // namespace deepinfer
