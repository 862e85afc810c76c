// Usage: what a request has cost, in tokens, and how each protocol says it.
//
// Thread-safety: a value and pure functions. Source: docs/http-api.md, "Usage" (spec prompt-format.md section 7.5).
#ifndef DEEPINFER_API_USAGE_H_
#define DEEPINFER_API_USAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "deepinfer/generation.h"

namespace deepinfer {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      ///< of the prompt: taken from the prefix cache
  int64_t completion_tokens = 0;  ///< of all choices, without the end-of-sentence token
  int64_t reasoning_tokens = 0;   ///< of these: the reasoning's text, without </think>
  /// Their sum is cached_tokens. Told only when one of them is not the device, so that usage without tiers is as the
  /// protocols know it.
  std::vector<CachedTokens> cached_tokens_by_tier = {};
};

/// The `usage` object of Chat Completions and Completions; reasoning tokens are told when `thinking`.
void AppendCompletionUsage(const Usage& usage, bool thinking, std::string* out);
/// Of Responses.
void AppendResponsesUsage(const Usage& usage, std::string* out);
/// Of Messages, where input_tokens are those that the cache did not hold.
void AppendMessagesUsage(const Usage& usage, std::string* out);

}  // namespace deepinfer

#endif  // DEEPINFER_API_USAGE_H_
