// Durations as people write them.
//
// Thread-safety: pure function.
#ifndef DEEPINFER_BASE_DURATION_H_
#define DEEPINFER_BASE_DURATION_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace deepinfer {

inline constexpr std::string_view kDurationForms = "seconds, or a number with s, m, h or d, such as 90s or 3d";

/// "90", "90s", "30m", "12h", "3d" -> seconds; nothing: something else, or more than fits.
std::optional<int64_t> ParseSeconds(std::string_view text);

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_DURATION_H_
