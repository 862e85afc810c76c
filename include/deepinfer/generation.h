// What is asked of the engine for one prompt, and what comes back.
//
// Thread-safety: values. Ownership: they own their bytes. Positions and counts are tokens.
#ifndef DEEPINFER_GENERATION_H_
#define DEEPINFER_GENERATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/sampling_params.h"
#include "deepinfer/status.h"

namespace deepinfer {

class CompiledGrammar;

/// How much of a prompt passes the decoder, and what a prefix hit recomputes (docs/kv-cache.md).
enum class ReplayMode : uint8_t {
  kBounded,  ///< the model's served mode: the last `replay_keep` prompt tokens pass the decoder
  kExact,    ///< every token passes every layer; a hit equals a cold run of the whole model bit for bit
};

/// bounded, exact.
std::string_view ReplayModeName(ReplayMode mode);

enum class FinishReason : uint8_t {
  kStop,          ///< the end-of-sentence token, or one of SamplingParams::stop_token_ids
  kStopSequence,  ///< a text of SamplingParams::stops
  kLength,        ///< max_tokens, or the context is full
  kCancelled,
  kError,  ///< Choice::status says what went wrong
};

/// stop, stop_sequence, length, cancelled, error.
std::string_view FinishReasonName(FinishReason reason);

struct TokenLogprob {
  int32_t id = 0;
  double logprob = 0;
};

/// What OpenAI calls logprobs: natural logarithms of softmax(logits), before anything of SamplingParams applies.
struct PositionLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // [n], most likely first, equal ones by ascending id

  friend bool operator==(const PositionLogprobs& a, const PositionLogprobs& b) {
    const auto same = [](const TokenLogprob& x, const TokenLogprob& y) {
      return x.id == y.id && x.logprob == y.logprob;
    };
    if (!same(a.chosen, b.chosen) || a.top.size() != b.top.size()) return false;
    for (size_t i = 0; i < a.top.size(); ++i) {
      if (!same(a.top[i], b.top[i])) return false;
    }
    return true;
  }
};

struct GenerationRequest {
  std::vector<int32_t> prompt;  ///< at least one id of the vocabulary
  SamplingParams sampling;

  /// Prefixes are shared only between requests of equal salt.
  std::string cache_salt;
  /// Life of what is kept of it in the tiers behind the KV pool, seconds; nothing: EngineOptions::kv_ttl_seconds.
  std::optional<int64_t> cache_ttl_seconds;
  /// Nothing of it is kept outside the KV pool.
  bool no_store = false;
  /// Lower ones are served first; among equals the earlier one.
  int priority = 0;
  /// Nothing: the engine's.
  std::optional<ReplayMode> replay;

  /// The token that separates reasoning from the answer and is itself no text; nothing: all output is content.
  std::optional<int32_t> end_of_reasoning;
  bool starts_in_reasoning = false;  ///< the prompt ends inside the reasoning

  /// A grammar that was compiled before (src/grammar/), instead of sampling.structured_output; null: none.
  std::shared_ptr<const CompiledGrammar> grammar;
  /// The last tokens of the prompt are the beginning of the constrained text: so many.
  int64_t constrained_prompt_tokens = 0;
  /// With a grammar: tokens that may not come inside the reasoning, besides those that end the answer.
  std::vector<int32_t> barred_in_reasoning;

  /// Called by the engine's threads whenever the stream has news, so that nobody need wait in Next. Must not block,
  /// throw or call the engine; may still be called while the stream is being destroyed. Empty: nobody is told.
  std::function<void()> on_news;
};

/// One of SamplingParams::n answers.
struct Choice {
  std::vector<int32_t> ids;                ///< every sampled token, the one that ended the answer included
  std::vector<PositionLogprobs> logprobs;  ///< one per id when asked for, else empty
  std::string reasoning;                   ///< well-formed UTF-8, as content
  std::string content;                     ///< without the stop text, unless it was asked for
  bool finished = false;
  FinishReason finish_reason = FinishReason::kStop;
  std::string stop_sequence;   ///< the text that ended the answer, with kStopSequence
  int32_t stop_token_id = -1;  ///< the token of stop_token_ids that ended it
  Status status;               ///< with kError
};

/// What DSpark did for a request.
struct DraftCounts {
  int64_t steps = 0;     ///< decode steps
  int64_t drafted = 0;   ///< drafts proposed
  int64_t verified = 0;  ///< drafts that the backbone checked
  int64_t accepted = 0;
};

/// Tokens of a prompt that were taken from one tier of the KV cache: "device", "host", "disk", "shared" or "redis".
struct CachedTokens {
  std::string tier;
  int64_t tokens = 0;

  friend bool operator==(const CachedTokens&, const CachedTokens&) = default;
};

struct Generation {
  std::vector<Choice> choices;  // [n]
  /// Of token i + 1 given those before it, when asked for; the first token has none.
  std::vector<PositionLogprobs> prompt_logprobs;
  ReplayMode replay = ReplayMode::kBounded;  ///< the mode that was used
  int64_t prompt_tokens = 0;
  // Of the first choice, when it first ran.
  int64_t cached_tokens = 0;                        ///< of the prompt: global rows taken from the prefix cache
  std::vector<CachedTokens> cached_tokens_by_tier;  ///< their sum is cached_tokens
  int64_t replayed_tokens = 0;                      ///< of those: rows computed again to rebuild windows
  int64_t preemptions = 0;
  DraftCounts drafts;
  double queue_ms = 0;        ///< submission to the first step
  double first_token_ms = 0;  ///< submission to the first token
  double total_ms = 0;        ///< submission to the end

  int64_t completion_tokens() const {
    int64_t count = 0;
    for (const Choice& choice : choices) count += static_cast<int64_t>(choice.ids.size());
    return count;
  }
};

/// What is new of one choice since the stream was last read.
struct GenerationDelta {
  int index = 0;  ///< of the choice
  std::string reasoning;
  std::string content;
  std::vector<int32_t> ids;
  std::vector<PositionLogprobs> logprobs;
  int64_t cached_tokens = 0;  ///< as in Generation
  std::vector<CachedTokens> cached_tokens_by_tier;
  bool finished = false;
  // As in Choice, once it has finished.
  FinishReason finish_reason = FinishReason::kStop;
  std::string stop_sequence;
  int32_t stop_token_id = -1;
  Status status;
};

}  // namespace deepinfer

#endif  // DEEPINFER_GENERATION_H_
