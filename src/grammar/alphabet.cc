#include "grammar/alphabet.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

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

/// Byte ranges of one to four bytes: a product of them.
struct Sequence {
  size_t length = 0;
  std::array<uint8_t, 4> first{};
  std::array<uint8_t, 4> last{};
};

/// The characters first..last, all of the same UTF-8 length, cut into products of byte ranges.
void AddRanges(uint32_t first, uint32_t last, std::vector<Sequence>* out) {
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
      AddRanges(first, first | span, out);
      AddRanges((first | span) + 1, last, out);
      return;
    }
    if ((last & span) != span) {
      AddRanges(first, (last & ~span) - 1, out);
      AddRanges(last & ~span, last, out);
      return;
    }
  }
  Sequence sequence;
  sequence.length = length;
  for (size_t i = 0; i < length; ++i) {
    sequence.first[i] = static_cast<uint8_t>(low[i]);
    sequence.last[i] = static_cast<uint8_t>(high[i]);
  }
  out->push_back(sequence);
}

/// The sequences from byte `depth` on as a tree: bytes with the same continuation are one set.
RegexId TreeOf(const std::vector<Sequence>& sequences, size_t depth, RegexPool* pool) {
  std::vector<RegexId> ways;
  std::map<std::vector<size_t>, ByteSet> by_members;  // the sequences that a byte leads into
  std::vector<int> borders = {256};
  for (const Sequence& one : sequences) {
    borders.push_back(one.first[depth]);
    borders.push_back(one.last[depth] + 1);
  }
  std::ranges::sort(borders);
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  for (size_t border = 0; border + 1 < borders.size(); ++border) {
    const int first = borders[border];
    std::vector<size_t> members;
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (sequences[i].first[depth] <= first && first <= sequences[i].last[depth]) members.push_back(i);
    }
    if (members.empty()) continue;
    ByteSet& bytes = by_members[std::move(members)];
    bytes = bytes | ByteSet::Range(first, borders[border + 1] - 1);
  }
  std::map<RegexId, ByteSet> by_rest;
  for (const auto& [members, bytes] : by_members) {
    std::vector<Sequence> inner;
    bool ends = false;
    for (const size_t i : members) {
      if (sequences[i].length == depth + 1) {
        ends = true;
      } else {
        inner.push_back(sequences[i]);
      }
    }
    const RegexId rest = ends ? RegexPool::kEmptyText : TreeOf(inner, depth + 1, pool);
    by_rest[rest] = by_rest[rest] | bytes;
  }
  for (const auto& [rest, bytes] : by_rest) ways.push_back(pool->Concat(pool->Bytes(bytes), rest));
  return pool->Or(std::move(ways));
}

}  // namespace

RegexId Alphabet::Utf8(const CodePointSet& set) {
  static constexpr std::array<CodePointRange, 4> kLengths = {
      {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, 0x10FFFF}}};
  std::vector<Sequence> sequences;
  for (const CodePointRange& range : set.ranges()) {
    for (const CodePointRange& length : kLengths) {
      const uint32_t first = std::max(range.first, length.first);
      const uint32_t last = std::min(range.last, length.last);
      if (first <= last) AddRanges(first, last, &sequences);
    }
  }
  return TreeOf(sequences, 0, pool_);
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
