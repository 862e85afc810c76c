#include "grammar/alphabet.h"

#include <array>

#include "text/utf8.h"

namespace deepinfer {
namespace {

std::string_view ShortEscape(uint32_t point) {
  switch (point) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return {};
  }
}

/// The characters first..last, all of the same UTF-8 length, cut into products of byte ranges.
void AddRanges(RegexPool* pool, uint32_t first, uint32_t last, std::vector<RegexId>* out) {
  std::string low;
  std::string high;
  AppendUtf8(first, &low);
  AppendUtf8(last, &high);
  const size_t length = low.size();
  for (size_t i = length - 1; i >= 1; --i) {
    // Cut where the last i bytes do not run through their whole range.
    const uint32_t span = (1u << (6 * i)) - 1;
    if ((first & ~span) == (last & ~span)) continue;
    if ((first & span) != 0) {
      AddRanges(pool, first, first | span, out);
      AddRanges(pool, (first | span) + 1, last, out);
      return;
    }
    if ((last & span) != span) {
      AddRanges(pool, first, (last & ~span) - 1, out);
      AddRanges(pool, last & ~span, last, out);
      return;
    }
  }
  RegexId sequence = RegexPool::kEmptyText;
  for (size_t i = length; i > 0; --i) {
    const ByteSet bytes = ByteSet::Range(static_cast<uint8_t>(low[i - 1]), static_cast<uint8_t>(high[i - 1]));
    sequence = pool->Concat(pool->Bytes(bytes), sequence);
  }
  out->push_back(sequence);
}

}  // namespace

RegexId Alphabet::Utf8(const CodePointSet& set) {
  static constexpr std::array<CodePointRange, 4> kLengths = {
      {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, 0x10FFFF}}};
  ByteSet ascii;
  std::vector<RegexId> parts;
  for (const CodePointRange& range : set.ranges()) {
    for (const CodePointRange& length : kLengths) {
      const uint32_t first = std::max(range.first, length.first);
      const uint32_t last = std::min(range.last, length.last);
      if (first > last) continue;
      if (last <= 0x7F) {
        ascii = ascii | ByteSet::Range(static_cast<int>(first), static_cast<int>(last));
      } else {
        AddRanges(pool_, first, last, &parts);
      }
    }
  }
  parts.push_back(pool_->Bytes(ascii));
  return pool_->Or(std::move(parts));
}

RegexId Alphabet::OneOf(const CodePointSet& set) {
  const auto known = known_.find(set);
  if (known != known_.end()) return known->second;
  RegexId result = RegexPool::kNothing;
  if (spelling_ == Spelling::kUtf8) {
    result = Utf8(set);
  } else {
    const CodePointSet escaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    std::vector<RegexId> parts = {Utf8(set.Without(escaped))};
    for (const CodePointRange& range : escaped.ranges()) {
      for (uint32_t point = range.first; point <= range.last; ++point) {
        if (!set.Has(point)) continue;
        if (!ShortEscape(point).empty()) {
          parts.push_back(pool_->Text(ShortEscape(point)));
          continue;
        }
        const uint32_t digit = point & 15;
        ByteSet last = ByteSet::Range("0123456789abcdef"[digit], "0123456789abcdef"[digit]);
        if (spelling_ == Spelling::kJson) last.Add(static_cast<uint8_t>("0123456789ABCDEF"[digit]));
        parts.push_back(pool_->Concat(pool_->Text(point < 16 ? "\\u000" : "\\u001"), pool_->Bytes(last)));
      }
    }
    result = pool_->Or(std::move(parts));
  }
  known_.emplace(set, result);
  return result;
}

std::string Alphabet::Spell(std::string_view text) const {
  if (spelling_ == Spelling::kUtf8) return std::string(text);
  std::string spelt;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (!ShortEscape(byte).empty()) {
      spelt += ShortEscape(byte);
    } else if (byte < 0x20) {
      spelt += byte < 16 ? "\\u000" : "\\u001";
      spelt.push_back("0123456789abcdef"[byte & 15]);
    } else {
      spelt.push_back(c);
    }
  }
  return spelt;
}

}  // namespace deepinfer
