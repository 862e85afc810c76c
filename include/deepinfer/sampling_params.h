// SamplingParams: how the next tokens of one request are chosen and when to stop (docs/sampling.md).
//
// Thread-safety: a value. Ranges are OpenAI's where OpenAI has the field, vLLM's otherwise. Errors of Validate() begin
// with the name of the field.
#ifndef DEEPINFER_SAMPLING_PARAMS_H_
#define DEEPINFER_SAMPLING_PARAMS_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "deepinfer/status.h"

namespace deepinfer {

struct SamplingParams {
  static constexpr int kMaxStops = 16;
  static constexpr int kMaxLogprobs = 20;
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  double temperature = 1.0;       ///< 0..2; 0 takes the most likely token and ignores the three filters
  int64_t top_k = 0;              ///< keep the k most likely tokens; 0 or -1: all
  double top_p = 1.0;             ///< (0, 1]: keep the smallest most-likely set with at least this probability
  double min_p = 0.0;             ///< 0..1: drop tokens less likely than this share of the most likely one
  uint64_t seed = 0;              ///< 0..2^63-1: the same seed, prompt and parameters give the same tokens
  int64_t max_tokens = kNoLimit;  ///< >= 1; the context may end the answer earlier
  std::vector<std::string>
      stops;                ///< up to 16 texts that end the answer and are not part of it; empty ones are ignored
  bool ignore_eos = false;  ///< the end-of-sentence token does not end the answer
  int logprobs = -1;        ///< -1: none; 0..20: that of the chosen token and of this many most likely ones

  Status Validate() const;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SAMPLING_PARAMS_H_
