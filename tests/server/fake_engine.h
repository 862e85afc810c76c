// FakeEngine: an Engine that says what a script tells it to, one token after the other and at once, so that the server
// can be tested without a model.
#ifndef DEEPINFER_TESTS_SERVER_FAKE_ENGINE_H_
#define DEEPINFER_TESTS_SERVER_FAKE_ENGINE_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "deepinfer/engine.h"
#include "engine/output_writer.h"
#include "engine/stream_state.h"
#include "text/tokenizer.h"

namespace deepinfer::testing {

struct FakeAnswer {
  std::vector<int32_t> ids;  ///< the end-of-sentence token included, when it is said
  FinishReason reason = FinishReason::kStop;
  Status status;      ///< not ok: the answer ends with kError behind its ids
  bool hold = false;  ///< nothing is said behind `hold_after` ids before Release
  size_t hold_after = 0;
  int64_t cached_tokens = 0;  ///< of the prompt
  std::vector<CachedTokens> cached_tokens_by_tier;
};

class FakeEngine final : public Engine {
 public:
  using Script = std::function<FakeAnswer(const GenerationRequest& request)>;

  /// `tokenizer` outlives it.
  FakeEngine(const Tokenizer* tokenizer, Script script, int64_t max_model_len = 4096);
  ~FakeEngine() override;

  /// Special tokens spelt out in `text` are tokens; the end-of-sentence token is added.
  std::vector<int32_t> IdsOf(const std::string& text) const;

  /// Held answers go on.
  void Release();
  /// So long between two steps, each of which says one token of every answer; 0 (the default): none.
  void SetStep(std::chrono::microseconds step);
  /// All requests so far, in order of submission.
  std::vector<GenerationRequest> requests() const;
  /// Answers that are not over.
  int64_t running() const;
  int64_t cancelled() const;
  /// The tiers of its statistics.
  void SetTiers(std::vector<KvTierStatistics> tiers);
  /// Submissions fail with this from now on.
  void FailSubmissions(const Status& status);
  /// The engine is not well from now on; submissions fail, too.
  void FailForGood(const Status& health);

  const EngineOptions& options() const override { return options_; }
  std::string warning() const override { return ""; }
  Status health() const override;
  Result<std::unique_ptr<GenerationStream>> Submit(GenerationRequest request) override;
  Status Tokenize(const std::string& text, bool special, std::vector<int32_t>* ids) const override;
  std::string Detokenize(std::span<const int32_t> ids) const override { return tokenizer_->Decode(ids, true); }
  int32_t bos_token_id() const override { return 0; }
  std::vector<PlannedMemory> memory_plan() const override { return {}; }
  EngineStatistics statistics() const override;
  void ClearPrefixCache() override {}
  void WaitIdle() override;

 private:
  class Stream;
  struct Job;

  static bool Held(const Job& job);
  void Loop();
  /// One token of a job; whether it is over.
  bool Step(Job& job);

  const Tokenizer* tokenizer_;
  Script script_;
  EngineOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<GenerationRequest> requests_;
  Status submit_status_;
  Status health_;
  std::chrono::microseconds step_{0};
  int64_t generated_ = 0;
  int64_t finished_ = 0;
  int64_t cancelled_ = 0;
  std::vector<KvTierStatistics> tiers_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace deepinfer::testing

#endif  // DEEPINFER_TESTS_SERVER_FAKE_ENGINE_H_
