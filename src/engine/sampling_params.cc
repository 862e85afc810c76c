#include "deepinfer/sampling_params.h"

#include <fmt/format.h>

#include <cmath>

#include "base/counter_rng.h"

namespace deepinfer {
namespace {

// Also refuses NaN: every comparison with it is false.
Status CheckRange(const char* field, double value, double low, double high, bool open_low = false) {
  if ((open_low ? value > low : value >= low) && value <= high) return Status::Ok();
  return Status::InvalidArgument(fmt::format("{}: expected a number {} {} and at most {}, found {}", field,
                                             open_low ? "above" : "of at least", low, high, value));
}

Status CheckCount(const char* field, const char* what, size_t found, size_t most) {
  if (found <= most) return Status::Ok();
  return Status::InvalidArgument(fmt::format("{}: expected at most {} {}, found {}", field, most, what, found));
}

Status CheckId(const char* field, int32_t id) {
  if (id >= 0) return Status::Ok();
  return Status::InvalidArgument(fmt::format("{}: expected token ids of 0 or more, found {}", field, id));
}

Status CheckLogprobs(const char* field, int value) {
  if (value >= -1 && value <= SamplingParams::kMaxLogprobs) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("{}: expected 0 to {}, or -1 for none, found {}", field, SamplingParams::kMaxLogprobs, value));
}

Status CheckTokenLists(const SamplingParams& params) {
  DEEPINFER_RETURN_IF_ERROR(CheckCount("bad_words", "texts", params.bad_words.size(), SamplingParams::kMaxBadWords));
  for (const std::string& text : params.bad_words) {
    if (text.empty()) return Status::InvalidArgument("bad_words: expected texts, found an empty one");
  }
  DEEPINFER_RETURN_IF_ERROR(
      CheckCount("bad_token_sequences", "sequences", params.bad_token_sequences.size(), SamplingParams::kMaxBadWords));
  for (const std::vector<int32_t>& sequence : params.bad_token_sequences) {
    if (sequence.empty() || sequence.size() > SamplingParams::kMaxBadWordTokens) {
      return Status::InvalidArgument(fmt::format("bad_token_sequences: expected 1 to {} ids in a sequence, found {}",
                                                 SamplingParams::kMaxBadWordTokens, sequence.size()));
    }
    for (const int32_t id : sequence) DEEPINFER_RETURN_IF_ERROR(CheckId("bad_token_sequences", id));
  }
  DEEPINFER_RETURN_IF_ERROR(
      CheckCount("logit_bias", "entries", params.logit_bias.size(), SamplingParams::kMaxLogitBias));
  for (const LogitBias& bias : params.logit_bias) {
    DEEPINFER_RETURN_IF_ERROR(CheckId("logit_bias", bias.id));
    DEEPINFER_RETURN_IF_ERROR(CheckRange("logit_bias", bias.bias, -100, 100));
  }
  DEEPINFER_RETURN_IF_ERROR(
      CheckCount("stop_token_ids", "ids", params.stop_token_ids.size(), SamplingParams::kMaxStopTokenIds));
  for (const int32_t id : params.stop_token_ids) DEEPINFER_RETURN_IF_ERROR(CheckId("stop_token_ids", id));
  return CheckCount("stop", "texts", params.stops.size(), SamplingParams::kMaxStops);
}

}  // namespace

Status SamplingParams::Validate() const {
  if (!(repetition_penalty > 0) || !std::isfinite(repetition_penalty)) {
    return Status::InvalidArgument(
        fmt::format("repetition_penalty: expected a number above 0, found {}", repetition_penalty));
  }
  DEEPINFER_RETURN_IF_ERROR(CheckRange("frequency_penalty", frequency_penalty, -2, 2));
  DEEPINFER_RETURN_IF_ERROR(CheckRange("presence_penalty", presence_penalty, -2, 2));
  DEEPINFER_RETURN_IF_ERROR(CheckRange("temperature", temperature, 0, 2));
  DEEPINFER_RETURN_IF_ERROR(CheckRange("top_p", top_p, 0, 1, true));
  DEEPINFER_RETURN_IF_ERROR(CheckRange("min_p", min_p, 0, 1));
  if (top_k < -1) {
    return Status::InvalidArgument(fmt::format("top_k: expected 1 or more, or 0 for all tokens, found {}", top_k));
  }
  if (seed > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Status::InvalidArgument(fmt::format("seed: expected 0 to 9223372036854775807, found {}", seed));
  }
  if (n < 1 || n > kMaxChoices) {
    return Status::InvalidArgument(fmt::format("n: expected 1 to {}, found {}", kMaxChoices, n));
  }
  if (max_tokens < 1) {
    return Status::InvalidArgument(fmt::format("max_tokens: expected 1 or more, found {}", max_tokens));
  }
  if (min_tokens < 0 || min_tokens > max_tokens) {
    return Status::InvalidArgument(
        fmt::format("min_tokens: expected 0 to max_tokens = {}, found {}", max_tokens, min_tokens));
  }
  DEEPINFER_RETURN_IF_ERROR(CheckTokenLists(*this));
  DEEPINFER_RETURN_IF_ERROR(CheckLogprobs("logprobs", logprobs));
  return CheckLogprobs("prompt_logprobs", prompt_logprobs);
}

uint64_t SamplingParams::SeedOfChoice(uint64_t seed, int index) {
  if (index == 0) return seed;
  return CounterBits(seed, static_cast<uint64_t>(index), 0, RandomPurpose::kSeed) >> 1;
}

}  // namespace deepinfer
