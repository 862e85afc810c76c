#include "base/duration.h"

#include <charconv>
#include <limits>

namespace deepinfer {
namespace {

// 0: no unit.
int64_t SecondsOfUnit(char unit) {
  switch (unit) {
    case 's':
      return 1;
    case 'm':
      return 60;
    case 'h':
      return 3'600;
    case 'd':
      return 86'400;
    default:
      return 0;
  }
}

}  // namespace

std::optional<int64_t> ParseDuration(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const int64_t unit = SecondsOfUnit(text.back());
  const char* const end = text.data() + text.size() - 1;
  int64_t count = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  if (unit == 0 || error != std::errc() || stop != end || count < 0) return std::nullopt;
  if (count > std::numeric_limits<int64_t>::max() / unit) return std::nullopt;
  return count * unit;
}

}  // namespace deepinfer
