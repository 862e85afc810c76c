#include "grammar/code_points.h"

#include <unicode/uset.h>

#include <algorithm>

namespace deepinfer {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800;
constexpr uint32_t kLastSurrogate = 0xDFFF;
constexpr uint32_t kLastPoint = 0x10FFFF;

}  // namespace

CodePointSet::CodePointSet(std::initializer_list<CodePointRange> ranges) {
  for (const CodePointRange& range : ranges) Add(range.first, range.last);
}

std::optional<CodePointSet> CodePointSet::Property(std::string_view name) {
  std::u16string pattern = u"[\\p{";
  for (const char c : name) {
    const bool word =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '=';
    if (!word) return std::nullopt;
    pattern.push_back(static_cast<char16_t>(c));
  }
  pattern += u"}]";
  UErrorCode error = U_ZERO_ERROR;
  USet* set = uset_openPattern(pattern.data(), static_cast<int32_t>(pattern.size()), &error);
  if (U_FAILURE(error)) return std::nullopt;
  CodePointSet result;
  const int32_t items = uset_getItemCount(set);
  for (int32_t i = 0; i < items; ++i) {
    UChar32 first = 0;
    UChar32 last = 0;
    if (uset_getItem(set, i, &first, &last, nullptr, 0, &error) != 0) continue;
    result.ranges_.push_back({static_cast<uint32_t>(first), static_cast<uint32_t>(last)});
  }
  uset_close(set);
  CodePointSet scalars;
  for (const CodePointRange& range : result.ranges_) scalars.Add(range.first, range.last);
  return scalars;
}

void CodePointSet::Add(uint32_t first, uint32_t last) {
  last = std::min(last, kLastPoint);
  if (first < kFirstSurrogate) {
    if (first <= std::min(last, kFirstSurrogate - 1)) ranges_.push_back({first, std::min(last, kFirstSurrogate - 1)});
    first = kFirstSurrogate;
  }
  if (last > kLastSurrogate) ranges_.push_back({std::max(first, kLastSurrogate + 1), last});
  Normalise();
}

void CodePointSet::Add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  Normalise();
}

void CodePointSet::Normalise() {
  std::ranges::sort(ranges_);
  std::vector<CodePointRange> merged;
  for (const CodePointRange& range : ranges_) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  ranges_ = std::move(merged);
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet result;
  uint32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) result.Add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLastPoint) result.Add(next, kLastPoint);
  return result;
}

CodePointSet CodePointSet::Without(const CodePointSet& other) const {
  // a \ b = ~(~a | b)
  CodePointSet result = Complement();
  result.Add(other);
  return result.Complement();
}

bool CodePointSet::Has(uint32_t point) const {
  return std::ranges::any_of(
      ranges_, [point](const CodePointRange& range) { return range.first <= point && point <= range.last; });
}

}  // namespace deepinfer
