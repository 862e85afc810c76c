#include "base/duration.h"

#include <charconv>
#include <limits>
#include <system_error>

namespace deepinfer {

std::optional<int64_t> ParseSeconds(std::string_view text) {
  int64_t count = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || count < 0) return std::nullopt;
  const std::string_view unit(stop, static_cast<size_t>(text.data() + text.size() - stop));
  const int64_t seconds = unit.empty() || unit == "s" ? 1
                          : unit == "m"               ? 60
                          : unit == "h"               ? 3600
                          : unit == "d"               ? 86'400
                                                      : 0;
  if (seconds == 0 || count > std::numeric_limits<int64_t>::max() / seconds) return std::nullopt;
  return count * seconds;
}

}  // namespace deepinfer
