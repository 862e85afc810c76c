#include "text/utf8.h"

#include <cstring>

namespace deepinfer {
namespace {

// How many bytes the lead byte asks for, and the range that the second byte must lie in (Unicode table 3-7); 0: no lead
// byte.
struct LeadByte {
  size_t length;
  unsigned char second_low;
  unsigned char second_high;
};

LeadByte Lead(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit FirstUtf8Unit(std::string_view bytes) {
  const LeadByte lead = Lead(static_cast<unsigned char>(bytes[0]));
  if (lead.length == 0) return {Utf8Unit::Kind::kInvalid, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8Unit::Kind::kIncomplete, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const bool continues = i == 1 ? byte >= lead.second_low && byte <= lead.second_high : (byte & 0xC0) == 0x80;
    if (!continues) return {Utf8Unit::Kind::kInvalid, i};
  }
  return {Utf8Unit::Kind::kCharacter, lead.length};
}

size_t ValidUtf8Prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t eight;
    while (at + sizeof(eight) <= bytes.size()) {
      std::memcpy(&eight, bytes.data() + at, sizeof(eight));
      if ((eight & 0x8080808080808080u) != 0) break;
      at += sizeof(eight);
    }
    if (at == bytes.size()) break;
    const Utf8Unit unit = FirstUtf8Unit(bytes.substr(at));
    if (unit.kind != Utf8Unit::Kind::kCharacter) return at;
    at += unit.length;
  }
  return at;
}

bool IsValidUtf8(std::string_view bytes) { return ValidUtf8Prefix(bytes) == bytes.size(); }

std::string RepairUtf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (true) {
    const size_t valid = ValidUtf8Prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) return out;
    out.append(kReplacementCharacter);
    bytes.remove_prefix(FirstUtf8Unit(bytes).length);
  }
}

std::string QuotedExcerpt(std::string_view text) {
  constexpr size_t kMaxShown = 60;
  std::string shown = RepairUtf8(text.substr(0, 2 * kMaxShown));
  const bool cut = shown.size() > kMaxShown || text.size() > 2 * kMaxShown;
  shown.resize(ValidUtf8Prefix(std::string_view(shown).substr(0, kMaxShown)));
  for (char& byte : shown) {
    if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F) byte = ' ';
  }
  return "\"" + shown + (cut ? "...\"" : "\"");
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out->append({static_cast<char>(0xC0 | code_point >> 6), tail(0)});
  } else if (code_point < 0x10000) {
    out->append({static_cast<char>(0xE0 | code_point >> 12), tail(6), tail(0)});
  } else {
    out->append({static_cast<char>(0xF0 | code_point >> 18), tail(12), tail(6), tail(0)});
  }
}

}  // namespace deepinfer
