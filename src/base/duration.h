// Spans of time as people write them: "90s", "30m", "12h", "3d".
//
// Thread-safety: pure functions. Ownership: none.
#ifndef DEEPINFER_BASE_DURATION_H_
#define DEEPINFER_BASE_DURATION_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace deepinfer {

/// A whole number and its unit, s, m, h or d, without blanks -> seconds; nothing for any other text, and for spans that
/// do not fit.
std::optional<int64_t> ParseDuration(std::string_view text);

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_DURATION_H_
