// GenerationSession: one client request on the engine, from its submission to the last byte of its answer.
//
// It knows no sockets: whoever owns it calls Pump whenever `on_news` was called and sends what comes out. Destroying it
// cancels what still runs. Thread-safety: one thread at a time. Ownership: the model outlives it.
#ifndef DEEPINFER_SERVER_GENERATION_SESSION_H_
#define DEEPINFER_SERVER_GENERATION_SESSION_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/answer_encoder.h"
#include "deepinfer/engine.h"
#include "deepinfer/status.h"
#include "server/answer_reader.h"
#include "server/served_model.h"

namespace deepinfer {

/// What a parsed request comes to: prompts for the engine and how their output is read and told.
struct GenerationPlan {
  AnswerHead head;
  std::vector<GenerationRequest> requests;  ///< one per prompt, each with the same n
  AnswerReaderOptions reader;
  /// The prompts are repeated with their log probabilities, so nothing can be told before those are known.
  bool echo_logprobs = false;
  /// The prompt ends with these ids, which are the beginning of the answer: the opening of a call that must be made.
  std::vector<int32_t> opening;
};

/// What became of a request, for metrics and the log.
struct GenerationReport {
  Usage usage;
  std::string finish_reason;  ///< of the first choice: stop, stop_sequence, length, tool_calls; empty: not finished
  FinishReason ended = FinishReason::kCancelled;  ///< the same for the engine
  int64_t choices = 1;
  int64_t replayed_tokens = 0;
  int64_t preemptions = 0;
  DraftCounts drafts;
  double queue_ms = 0;
};

class GenerationSession {
 public:
  /// Submits all prompts. Errors: the engine's, before anything was sent.
  static Result<std::unique_ptr<GenerationSession>> Start(const ServedModel& model, GenerationPlan plan,
                                                          std::function<void()> on_news);

  /// Appends what has become certain; false once the answer is complete. After some tens of KiB it stops: see unread().
  bool Pump(std::string* out);
  /// There is more to pump without waiting for news.
  bool unread() const {
    return std::any_of(sources_.begin(), sources_.end(),
                       [](const Source& source) { return source.unread.has_value(); });
  }

  /// Tells the client that the answer ends here.
  void Fail(const ApiError& error, std::string* out);

  /// Something of the answer has been appended (or, when not streaming, would have been).
  bool started() const { return started_; }
  bool failed() const { return failed_; }
  /// Why, with failed().
  const ApiError& error() const { return error_; }
  /// New tokens of all choices since the last call.
  int64_t TakeNewTokens();
  GenerationReport Report() const;
  /// Responses: what the store keeps.
  std::string StoredBody() const { return encoder_->StoredBody(); }

 private:
  // One running request of the engine.
  struct Source {
    std::unique_ptr<GenerationStream> stream;
    std::vector<int64_t> choices;  // [n of the stream] index of the choice in the answer
    int64_t cached_tokens = 0;
    std::vector<CachedTokens> cached_tokens_by_tier;
    std::optional<GenerationDelta> unread;  // taken from the stream, its tokens from `next` on not yet told
    size_t next = 0;
    bool done = false;
  };
  struct ChoiceState {
    std::unique_ptr<AnswerReader> reader;
    bool finished = false;
  };

  GenerationSession(const ServedModel& model, GenerationPlan plan, std::function<void()> on_news);
  Status Submit(GenerationRequest request, std::vector<int64_t> choices);
  void Read(Source& source, const GenerationDelta& delta, std::string* out);
  void FinishChoice(int64_t index, const AnswerEnd& end, const AnswerPiece& piece, std::string* out);
  void Begin(std::string* out);
  /// Some tokens of what source `index` has unread.
  void ReadSlice(size_t index, std::string* out);
  void ReplayHeld(std::string* out);
  void CollectReport(const Generation& generation);
  Usage CurrentUsage() const;

  const ServedModel& model_;
  GenerationPlan plan_;
  std::function<void()> on_news_;
  std::unique_ptr<AnswerEncoder> encoder_;
  std::vector<Source> sources_;
  std::vector<std::pair<size_t, GenerationDelta>> held_;        // with echo_logprobs: index of the source
  std::vector<std::vector<PositionLogprobs>> prompt_logprobs_;  // [requests], with echo_logprobs
  std::vector<ChoiceState> choices_;
  int64_t unfinished_ = 0;
  int64_t told_tokens_ = 0;
  bool started_ = false;
  bool failed_ = false;
  ApiError error_;
  GenerationReport report_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_SERVER_GENERATION_SESSION_H_
