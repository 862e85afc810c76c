#include "deepinfer/sampling_params.h"

#include <fmt/format.h>

namespace deepinfer {
namespace {

// Also refuses NaN: every comparison with it is false.
Status CheckRange(const char* field, double value, double low, double high, bool open_low = false) {
  if ((open_low ? value > low : value >= low) && value <= high) return Status::Ok();
  return Status::InvalidArgument(fmt::format("{}: expected a number {} {} and at most {}, found {}", field,
                                             open_low ? "above" : "of at least", low, high, value));
}

}  // namespace

Status SamplingParams::Validate() const {
  DEEPINFER_RETURN_IF_ERROR(CheckRange("temperature", temperature, 0, 2));
  DEEPINFER_RETURN_IF_ERROR(CheckRange("top_p", top_p, 0, 1, true));
  DEEPINFER_RETURN_IF_ERROR(CheckRange("min_p", min_p, 0, 1));
  if (top_k < -1) {
    return Status::InvalidArgument(fmt::format("top_k: expected 1 or more, or 0 for all tokens, found {}", top_k));
  }
  if (seed > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Status::InvalidArgument(fmt::format("seed: expected 0 to 9223372036854775807, found {}", seed));
  }
  if (max_tokens < 1) {
    return Status::InvalidArgument(fmt::format("max_tokens: expected 1 or more, found {}", max_tokens));
  }
  if (stops.size() > kMaxStops) {
    return Status::InvalidArgument(fmt::format("stop: expected at most {} texts, found {}", kMaxStops, stops.size()));
  }
  if (logprobs < -1 || logprobs > kMaxLogprobs) {
    return Status::InvalidArgument(
        fmt::format("logprobs: expected 0 to {}, or -1 for none, found {}", kMaxLogprobs, logprobs));
  }
  return Status::Ok();
}

}  // namespace deepinfer
