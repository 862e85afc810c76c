// SamplingParams: how the next tokens of one request are chosen and when to stop (docs/sampling.md).
//
// Thread-safety: a value. Names are vLLM's; ranges are OpenAI's where OpenAI has the field, vLLM's otherwise. Errors of
// Validate() begin with the name of the field. Whether ids are in the vocabulary is for the engine to check.
#ifndef DEEPINFER_SAMPLING_PARAMS_H_
#define DEEPINFER_SAMPLING_PARAMS_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "deepinfer/status.h"
#include "deepinfer/structured_output.h"

namespace deepinfer {

struct LogitBias {
  int32_t id = 0;
  float bias = 0;
};

struct SamplingParams {
  static constexpr int kMaxStops = 16;
  static constexpr int kMaxLogprobs = 20;
  static constexpr int kMaxLogitBias = 1024;
  static constexpr int kMaxBadWords = 1024;     ///< texts, and as many id sequences
  static constexpr int kMaxBadWordTokens = 64;  ///< ids of one sequence
  static constexpr int kMaxStopTokenIds = 1024;
  static constexpr int kMaxChoices = 128;
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  // How a token is chosen, in the order in which it applies (ops/sampling.h).
  std::vector<std::string> bad_words;                     ///< barred as tokenised alone and behind a space
  std::vector<std::vector<int32_t>> bad_token_sequences;  ///< the same as ids: the last id is barred after the others
  std::vector<LogitBias> logit_bias;  ///< up to 1024, -100..100 each, added to the logit; no value bars a token
  double repetition_penalty = 1.0;  ///< > 0; tokens of prompt and output: a logit > 0 is divided by it, else multiplied
  double frequency_penalty = 0.0;   ///< -2..2; subtracted for every time that the output has the token
  double presence_penalty = 0.0;    ///< -2..2; subtracted once when the output has the token
  double temperature = 1.0;         ///< 0..2; 0 takes the most likely token and ignores the three filters
  int64_t top_k = 0;                ///< keep the k most likely tokens; 0 or -1: all
  double top_p = 1.0;               ///< (0, 1]: keep the smallest most-likely set with at least this probability
  double min_p = 0.0;               ///< 0..1: drop tokens less likely than this share of the most likely one
  StructuredOutput structured_output;  ///< the text that may come; behind the reasoning, where there is one
  uint64_t seed = 0;                   ///< 0..2^63-1: the same seed, prompt and parameters give the same tokens
  int n = 1;                           ///< 1..128 answers; answer i has the seed SeedOfChoice(seed, i)

  // When the answer ends.
  int64_t max_tokens = kNoLimit;   ///< >= 1; the context may end the answer earlier
  int64_t min_tokens = 0;          ///< 0..max_tokens: fewer do not end the answer; stop texts are looked for behind
  std::vector<std::string> stops;  ///< up to 16 texts that end the answer; empty ones are ignored
  bool include_stop_str_in_output = false;  ///< the stop text is part of the answer
  std::vector<int32_t> stop_token_ids;      ///< up to 1024 tokens that end the answer
  bool ignore_eos = false;                  ///< the end-of-sentence token does not end the answer

  // What is told about it.
  int logprobs = -1;         ///< -1: none; 0..20: that of the chosen token and of this many most likely ones
  int prompt_logprobs = -1;  ///< the same for the tokens of the prompt

  Status Validate() const;

  /// The seed of answer `index` of n: `seed` itself for 0, else 63 bits derived from both.
  static uint64_t SeedOfChoice(uint64_t seed, int index);
};

}  // namespace deepinfer

#endif  // DEEPINFER_SAMPLING_PARAMS_H_
