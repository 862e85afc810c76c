#include "text/pretokenizer_deepseek.h"

#include <unicode/uchar.h>

#include <array>
#include <cstdint>
#include <memory>

#include "text/utf8.h"

namespace deepinfer {
namespace {

// What the third pattern distinguishes. kEnd stands for the end of the segment.
enum Class : uint8_t { kOther, kLetter, kMark, kPunctuation, kBlank, kNewline, kEnd };

// The first two patterns cut the text into segments of one kind each (numbers further into threes).
enum Segment : uint8_t { kPlain = 0x00, kCjk = 0x10, kNumber = 0x20 };

constexpr uint8_t kClassMask = 0x0F;
constexpr uint8_t kSegmentMask = 0xF0;
constexpr UChar32 kCodePoints = 0x110000;

// One byte, Class | Segment, for every code point: 1.1 MB of which a text touches a few lines.
struct CodePointTable {
  std::unique_ptr<uint8_t[]> info = std::make_unique<uint8_t[]>(kCodePoints);

  void Set(UChar32 first, UChar32 last, uint8_t value) {
    for (UChar32 point = first; point <= last; ++point) info[point] = value;
  }

  static UBool SetRange(const void* context, UChar32 start, UChar32 limit, UCharCategory category) {
    const uint32_t mask = U_MASK(category);
    uint8_t value = kOther;
    if ((mask & U_GC_L_MASK) != 0) value = kLetter;
    if ((mask & U_GC_M_MASK) != 0) value = kMark;
    if ((mask & U_GC_N_MASK) != 0) value = kNumber;
    if ((mask & (U_GC_P_MASK | U_GC_S_MASK)) != 0) value = kPunctuation;
    if (value != kOther) {
      static_cast<CodePointTable*>(const_cast<void*>(context))->Set(start, limit - 1, value);
    }
    return true;
  }

  CodePointTable() {
    u_enumCharTypes(&SetRange, this);
    // White_Space, fixed by Unicode's stability in practice; the test compares it with ICU.
    for (const auto& [first, last] : {std::pair{0x09, 0x0D},
                                      {0x20, 0x20},
                                      {0x85, 0x85},
                                      {0xA0, 0xA0},
                                      {0x1680, 0x1680},
                                      {0x2000, 0x200A},
                                      {0x2028, 0x2029},
                                      {0x202F, 0x202F},
                                      {0x205F, 0x205F},
                                      {0x3000, 0x3000}}) {
      Set(first, last, kBlank);
    }
    info['\r'] = info['\n'] = kNewline;
    for (const auto& [first, last] : {std::pair{0x4E00, 0x9FA5}, {0x3040, 0x309F}, {0x30A0, 0x30FF}}) {
      for (UChar32 point = first; point <= last; ++point) info[point] |= kCjk;
    }
  }
};

const uint8_t* CodePointInfo() {
  static const CodePointTable table;
  return table.info.get();
}

constexpr std::array<bool, 256> kAsciiLetter = [] {
  std::array<bool, 256> table{};
  for (int c = 'A'; c <= 'Z'; ++c) table[c] = table[c - 'A' + 'a'] = true;
  return table;
}();

// The third pattern inside one segment.
template <Segment kSegment>
class SegmentScanner {
 public:
  SegmentScanner(std::string_view text, const uint8_t* info) : text_(text.data()), size_(text.size()), info_(info) {}

  // The character at `at` and where the next one starts; kEnd when it belongs to another segment.
  struct Character {
    uint8_t character_class;
    size_t next;
  };

  Character Look(size_t at) const {
    if (at == size_) return {kEnd, at};
    size_t next = at;
    const uint8_t info = info_[NextCodePoint(text_, &next)];
    if ((info & kSegmentMask) != kSegment) return {kEnd, at};
    return {static_cast<uint8_t>(info & kClassMask), next};
  }

  size_t PieceEnd(size_t begin) const {
    const Character first = Look(begin);
    const Character second = Look(first.next);
    const bool second_is_word = second.character_class == kLetter || second.character_class == kMark;
    switch (first.character_class) {
      case kLetter:
      case kMark:
        return AfterWord(first.next);
      case kPunctuation:
        // Only ASCII punctuation takes ASCII letters along.
        if (first.next == begin + 1 && kAsciiLetter[Byte(first.next)]) {
          size_t at = first.next + 1;
          while (kAsciiLetter[Byte(at)]) ++at;
          return at;
        }
        return AfterPunctuation(first.next);
      case kBlank:
        if (second_is_word) return AfterWord(second.next);
        if (second.character_class == kPunctuation && text_[begin] == ' ') return AfterPunctuation(second.next);
        return AfterBlanks(begin);
      case kNewline:
        return AfterBlanks(begin);
      default:
        return second_is_word ? AfterWord(second.next) : AfterGap(first.next);
    }
  }

 private:
  // The byte at `at`, 0 at the end of the text.
  unsigned char Byte(size_t at) const { return at < size_ ? static_cast<unsigned char>(text_[at]) : 0; }

  // [\p{L}\p{M}]*
  size_t AfterWord(size_t at) const {
    while (true) {
      if (kSegment == kPlain) {
        while (kAsciiLetter[Byte(at)]) ++at;
      }
      const Character c = Look(at);
      if (c.character_class != kLetter && c.character_class != kMark) return at;
      at = c.next;
    }
  }

  // [\p{P}\p{S}]*[\r\n]*
  size_t AfterPunctuation(size_t at) const {
    Character c = Look(at);
    for (; c.character_class == kPunctuation; c = Look(at)) at = c.next;
    for (; c.character_class == kNewline; c = Look(at)) at = c.next;
    return at;
  }

  // \s*[\r\n]+ | \s+(?!\S) | \s+  at a character of \s.
  size_t AfterBlanks(size_t begin) const {
    size_t after_newline = begin;
    size_t last = begin;  // start of the last character of the run
    size_t at = begin;
    Character c = Look(at);
    for (; c.character_class == kBlank || c.character_class == kNewline; c = Look(at)) {
      last = at;
      at = c.next;
      if (c.character_class == kNewline) after_newline = at;
    }
    if (after_newline != begin) return after_newline;
    // The last blank before something visible is left for it, unless it is the only one.
    return c.character_class == kEnd || last == begin ? at : last;
  }

  // What no alternative matches stays one piece up to the next match.
  size_t AfterGap(size_t at) const {
    while (true) {
      const Character c = Look(at);
      if (c.character_class != kOther) return at;
      const Character next = Look(c.next);
      if (next.character_class == kLetter || next.character_class == kMark) return at;
      at = c.next;
    }
  }

  const char* text_;
  size_t size_;
  const uint8_t* info_;
};

}  // namespace

size_t NextDeepSeekPiece(std::string_view text, size_t begin) {
  const uint8_t* info = CodePointInfo();
  size_t at = begin;
  const uint8_t segment = info[NextCodePoint(text.data(), &at)] & kSegmentMask;
  if (segment == kPlain) return SegmentScanner<kPlain>(text, info).PieceEnd(begin);
  if (segment == kCjk) return SegmentScanner<kCjk>(text, info).PieceEnd(begin);
  for (int digits = 1; digits < 3 && at < text.size(); ++digits) {
    size_t next = at;
    if ((info[NextCodePoint(text.data(), &next)] & kSegmentMask) != kNumber) break;
    at = next;
  }
  return at;
}

}  // namespace deepinfer
