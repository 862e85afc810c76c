// Generator: answers one prompt at a time on one sequence: prefill in chunks, then decode until something ends it.
//
// The sequence is kept between runs. A prompt that begins with the tokens of the last run, or departs from them within
// the model's rollback, is computed from there on; by promise 1 that changes no bit of the answer.
// Thread-safety: one thread runs it; the cancel flag may be set from anywhere, a signal handler included. Ownership:
// the model and the tokenizer outlive it; it owns its sequence.
#ifndef DEEPINFER_ENGINE_GENERATOR_H_
#define DEEPINFER_ENGINE_GENERATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/sampling_params.h"
#include "deepinfer/status.h"
#include "engine/sampler.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace deepinfer {

enum class FinishReason {
  kStop,          ///< the end-of-sentence token
  kStopSequence,  ///< a text of SamplingParams::stops
  kLength,        ///< max_tokens, or the context is full
  kCancelled,
};

/// stop, stop_sequence, length, cancelled.
std::string_view FinishReasonName(FinishReason reason);

enum class OutputPart { kReasoning, kContent };

/// Receives well-formed UTF-8 as soon as it is certain.
using TextSink = std::function<void(OutputPart part, std::string_view text)>;

struct GenerationRequest {
  std::vector<int32_t> prompt;
  SamplingParams sampling;
  /// The token that separates reasoning from the answer and is itself no text; nothing: all output is content.
  std::optional<int32_t> end_of_reasoning;
  bool starts_in_reasoning = false;  ///< the prompt ends inside the reasoning
  const std::atomic<bool>* cancel = nullptr;
};

struct Generation {
  std::vector<int32_t> ids;                ///< every sampled token, the end-of-sentence token included
  std::vector<PositionLogprobs> logprobs;  ///< one per id when asked for, else empty
  std::string reasoning;
  std::string content;  ///< without the stop text
  FinishReason finish_reason = FinishReason::kStop;
  std::string stop_sequence;  ///< the text that ended the answer, with kStopSequence
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  ///< of the prompt, taken from the last run
};

class Generator {
 public:
  Generator(Model& model, const Tokenizer& tokenizer) : model_(model), tokenizer_(tokenizer) {}

  /// kInvalidArgument: an empty prompt, an id outside the vocabulary, invalid sampling parameters; kResourceExhausted:
  /// a prompt that leaves no room in the context; kInternal: logits that are not numbers. After an error the sequence
  /// starts anew.
  Result<Generation> Run(const GenerationRequest& request, const TextSink& sink = nullptr);

 private:
  class Output;

  Result<Generation> RunOnSequence(const GenerationRequest& request, const TextSink& sink);
  /// Feeds `ids` in chunks and sets logits_ to those of the last one; false when cancelled on the way.
  Result<bool> Feed(std::span<const int32_t> ids, const std::atomic<bool>* cancel);
  /// Makes the sequence hold the longest usable beginning of `prompt` and returns its length.
  Result<int64_t> ReuseSequence(std::span<const int32_t> prompt);

  Model& model_;
  const Tokenizer& tokenizer_;
  Sampler sampler_;
  std::unique_ptr<SequenceState> sequence_;
  std::span<const float> logits_;  // [V], in the model's buffers
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_GENERATOR_H_
