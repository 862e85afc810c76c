// Usage: what a request has cost, in tokens, and how each protocol says it.
//
// Thread-safety: a value. Source: docs/http-api.md, "Usage" (spec prompt-format.md section 7.5).
#ifndef DEEPINFER_API_USAGE_H_
#define DEEPINFER_API_USAGE_H_

#include <cstdint>

namespace deepinfer {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      ///< of the prompt: taken from the prefix cache
  int64_t completion_tokens = 0;  ///< of all choices, without the end-of-sentence token
  int64_t reasoning_tokens = 0;   ///< of these: the reasoning's text, without </think>
};

}  // namespace deepinfer

#endif  // DEEPINFER_API_USAGE_H_
