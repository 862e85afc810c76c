#include "engine/generator.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/stop_matcher.h"
#include "text/utf8_stream.h"

namespace deepinfer {

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kStopSequence:
      return "stop_sequence";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

namespace {

bool IsCancelled(const std::atomic<bool>* cancel) {
  return cancel != nullptr && cancel->load(std::memory_order_relaxed);
}

}  // namespace

/// Tokens -> text of the two parts, stop texts cut off.
class Generator::Output {
 public:
  Output(const GenerationRequest& request, const Tokenizer& tokenizer, const TextSink& sink, Generation* result)
      : request_(request),
        tokenizer_(tokenizer),
        sink_(sink),
        result_(result),
        in_reasoning_(request.starts_in_reasoning),
        stops_(request.sampling.stops) {}

  /// False when a stop text has completed.
  bool Add(int32_t token) {
    if (request_.end_of_reasoning == token) {
      if (in_reasoning_) Emit(characters_.Flush());
      in_reasoning_ = false;
      return true;
    }
    if (tokenizer_.IsSpecial(token)) return true;
    const std::string_view bytes = tokenizer_.TokenBytes(token);
    Emit(characters_.Feed(in_reasoning_ ? std::string(bytes) : stops_.Feed(bytes)));
    if (stops_.matched() == nullptr) return true;
    result_->stop_sequence = *stops_.matched();
    return false;
  }

  void Finish() {
    Emit(characters_.Feed(stops_.Flush()));
    Emit(characters_.Flush());
  }

 private:
  void Emit(const std::string& text) {
    if (text.empty()) return;
    (in_reasoning_ ? result_->reasoning : result_->content) += text;
    if (sink_) sink_(in_reasoning_ ? OutputPart::kReasoning : OutputPart::kContent, text);
  }

  const GenerationRequest& request_;
  const Tokenizer& tokenizer_;
  const TextSink& sink_;
  Generation* result_;
  bool in_reasoning_;
  StopMatcher stops_;
  Utf8Stream characters_;
};

Result<int64_t> Generator::ReuseSequence(std::span<const int32_t> prompt) {
  if (sequence_ != nullptr) {
    // The last token is always fed: its logits are needed.
    const std::span<const int32_t> held = sequence_->ids();
    const std::span<const int32_t> usable = prompt.first(prompt.size() - 1);
    const int64_t common = std::mismatch(held.begin(), held.end(), usable.begin(), usable.end()).first - held.begin();
    if (common == sequence_->length()) return common;
    if (common >= sequence_->rollback_floor()) {
      DEEPINFER_RETURN_IF_ERROR(model_.Truncate(*sequence_, common));
      return common;
    }
    sequence_.reset();
  }
  DEEPINFER_ASSIGN_OR_RETURN(sequence_, model_.NewSequence(model_.options().max_context));
  return 0;
}

Result<bool> Generator::Feed(std::span<const int32_t> ids, const std::atomic<bool>* cancel) {
  while (!ids.empty()) {
    if (IsCancelled(cancel)) return false;
    const size_t count = std::min<size_t>(ids.size(), model_.options().max_rows_per_step);
    const BatchItem item{sequence_.get(), ids.first(count),
                         count == ids.size() ? LogitsRows::kLast : LogitsRows::kNone};
    DEEPINFER_ASSIGN_OR_RETURN(const ForwardResult result, model_.Forward({std::span(&item, 1)}));
    if (count == ids.size()) logits_ = {result.logits.row(0), static_cast<size_t>(result.logits.columns)};
    ids = ids.subspan(count);
  }
  return true;
}

Result<Generation> Generator::Run(const GenerationRequest& request, const TextSink& sink) {
  Result<Generation> result = RunOnSequence(request, sink);
  if (!result.ok()) sequence_.reset();
  return result;
}

Result<Generation> Generator::RunOnSequence(const GenerationRequest& request, const TextSink& sink) {
  const SamplingParams& sampling = request.sampling;
  DEEPINFER_RETURN_IF_ERROR(sampling.Validate());
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const int64_t context = model_.options().max_context;
  if (prompt_tokens == 0) return Status::InvalidArgument("prompt: expected at least one token, found none");
  if (prompt_tokens >= context) {
    return Status::ResourceExhausted(
        fmt::format("prompt: {} tokens leave no room in the context of {} tokens; shorten it or enlarge the context",
                    prompt_tokens, context));
  }
  for (int32_t id : request.prompt) {
    if (id < 0 || id >= model_.config().vocab_size) {
      return Status::InvalidArgument(
          fmt::format("prompt: expected token ids of 0 to {}, found {}", model_.config().vocab_size - 1, id));
    }
  }
  const int64_t token_limit = std::min(sampling.max_tokens, context - prompt_tokens);
  const std::vector<int64_t>& end_tokens = model_.config().eos_token_ids;

  Generation result;
  result.prompt_tokens = prompt_tokens;
  Output output(request, tokenizer_, sink, &result);
  DEEPINFER_ASSIGN_OR_RETURN(result.reused_tokens, ReuseSequence(request.prompt));
  DEEPINFER_ASSIGN_OR_RETURN(bool fed, Feed(std::span(request.prompt).subspan(result.reused_tokens), request.cancel));
  while (true) {
    if (!fed) {
      result.finish_reason = FinishReason::kCancelled;
      break;
    }
    const int64_t position = prompt_tokens + static_cast<int64_t>(result.ids.size());
    DEEPINFER_ASSIGN_OR_RETURN(const int32_t token, sampler_.Sample(logits_, sampling, position));
    result.ids.push_back(token);
    if (sampling.logprobs >= 0) result.logprobs.push_back(ComputeLogprobs(logits_, token, sampling.logprobs));

    if (!sampling.ignore_eos && std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end()) {
      result.finish_reason = FinishReason::kStop;
      break;
    }
    if (!output.Add(token)) {
      result.finish_reason = FinishReason::kStopSequence;
      break;
    }
    if (static_cast<int64_t>(result.ids.size()) == token_limit) {
      result.finish_reason = FinishReason::kLength;
      break;
    }
    DEEPINFER_ASSIGN_OR_RETURN(fed, Feed({&token, 1}, request.cancel));
  }
  output.Finish();
  return result;
}

}  // namespace deepinfer
