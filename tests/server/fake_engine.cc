#include "fake_engine.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "text/prompt_segments.h"

namespace deepinfer::testing {

struct FakeEngine::Job {
  GenerationRequest request;
  FakeAnswer answer;
  int choice = 0;
  std::shared_ptr<StreamState> stream;
  std::unique_ptr<OutputWriter> writer;
  size_t said = 0;
  double submitted_seconds = NowSeconds();
};

class FakeEngine::Stream final : public GenerationStream {
 public:
  Stream(FakeEngine* engine, std::shared_ptr<StreamState> state) : engine_(engine), state_(std::move(state)) {}
  ~Stream() override { Cancel(); }

  bool Next(GenerationDelta* delta) override { return state_->Next(delta); }
  bool NextFor(GenerationDelta* delta, int milliseconds, bool* timed_out) override {
    return state_->NextFor(delta, milliseconds, timed_out);
  }
  void Cancel() override {
    state_->Cancel();
    engine_->changed_.notify_all();
  }
  void CancelChoice(int index) override {
    state_->CancelChoice(index);
    engine_->changed_.notify_all();
  }
  const Generation& Wait() override { return state_->Wait(); }

 private:
  FakeEngine* engine_;
  std::shared_ptr<StreamState> state_;
};

FakeEngine::FakeEngine(const Tokenizer* tokenizer, Script script, int64_t max_model_len)
    : tokenizer_(tokenizer), script_(std::move(script)) {
  options_.max_model_len = max_model_len;
  thread_ = std::thread([this] { Loop(); });
  // So that its processor time can be told from the server's (bench/server_bench.cc).
  pthread_setname_np(thread_.native_handle(), "fake-engine");
}

FakeEngine::~FakeEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::vector<int32_t> FakeEngine::IdsOf(const std::string& text) const {
  std::vector<int32_t> ids;
  (void)tokenizer_->EncodeWithSpecial(text, &ids);
  ids.push_back(*tokenizer_->IdOfAddedToken(special_token::kEndOfSentence));
  return ids;
}

void FakeEngine::Release() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& job : jobs_) job->answer.hold = false;
  }
  changed_.notify_all();
}

std::vector<GenerationRequest> FakeEngine::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void FakeEngine::SetStep(std::chrono::microseconds step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

int64_t FakeEngine::running() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(jobs_);
}

int64_t FakeEngine::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

void FakeEngine::FailSubmissions(const Status& status) {
  const std::lock_guard lock(mutex_);
  submit_status_ = status;
}

void FakeEngine::FailForGood(const Status& health) {
  const std::lock_guard lock(mutex_);
  health_ = submit_status_ = health;
}

Status FakeEngine::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

void FakeEngine::SetTiers(std::vector<KvTierStatistics> tiers) {
  const std::lock_guard lock(mutex_);
  tiers_ = std::move(tiers);
}

Result<std::unique_ptr<GenerationStream>> FakeEngine::Submit(GenerationRequest request) {
  DEEPINFER_RETURN_IF_ERROR(request.sampling.Validate());
  const auto state = std::make_shared<StreamState>(request.sampling.n, request.on_news);
  const FakeAnswer answer = script_(request);
  state->Update([&](Generation* generation) {
    generation->prompt_tokens = std::ssize(request.prompt);
    generation->cached_tokens = answer.cached_tokens;
    generation->cached_tokens_by_tier = answer.cached_tokens_by_tier;
    generation->queue_ms = 1;
  });
  const std::lock_guard lock(mutex_);
  if (!submit_status_.ok()) return submit_status_;
  for (int i = 0; i < request.sampling.n; ++i) {
    auto job = std::make_unique<Job>();
    job->request = request;
    job->answer = answer;
    job->choice = i;
    job->stream = state;
    job->writer = std::make_unique<OutputWriter>(request, *tokenizer_);
    jobs_.push_back(std::move(job));
  }
  requests_.push_back(std::move(request));
  changed_.notify_all();
  return std::unique_ptr<GenerationStream>(std::make_unique<Stream>(this, state));
}

Status FakeEngine::Tokenize(const std::string& text, bool special, std::vector<int32_t>* ids) const {
  return special ? tokenizer_->EncodeWithSpecial(text, ids) : tokenizer_->Encode(text, ids);
}

EngineStatistics FakeEngine::statistics() const {
  const std::lock_guard lock(mutex_);
  EngineStatistics statistics;
  statistics.running = std::ssize(jobs_);
  statistics.generated_tokens = generated_;
  statistics.finished = finished_;
  statistics.cancelled = cancelled_;
  statistics.kv_blocks = statistics.kv_blocks_free = 100;
  statistics.kv_tiers = tiers_;
  return statistics;
}

void FakeEngine::WaitIdle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return jobs_.empty(); });
}

bool FakeEngine::Held(const Job& job) { return job.answer.hold && job.said >= job.answer.hold_after; }

bool FakeEngine::Step(Job& job) {
  const auto finish = [&](FinishReason reason, const Status& status) {
    StreamState::News rest;
    job.writer->Finish(&rest.reasoning, &rest.content);
    job.stream->Append(job.choice, rest);
    job.stream->Update(
        [&](Generation* generation) { generation->total_ms = 1e3 * (NowSeconds() - job.submitted_seconds); });
    job.stream->Finish(job.choice, reason, job.writer->stop_sequence(), -1, status);
    ++(reason == FinishReason::kCancelled ? cancelled_ : finished_);
    return true;
  };
  if (job.stream->cancelled(job.choice)) return finish(FinishReason::kCancelled, Status::Ok());
  if (Held(job)) return false;
  const SamplingParams& sampling = job.request.sampling;
  if (job.said == job.answer.ids.size()) {
    if (!job.answer.status.ok()) return finish(FinishReason::kError, job.answer.status);
    return finish(job.answer.reason, Status::Ok());
  }
  const int32_t id = job.answer.ids[job.said++];
  const bool ends =
      job.said == job.answer.ids.size() && job.answer.reason == FinishReason::kStop && tokenizer_->IsSpecial(id);
  StreamState::News news;
  news.ids = {&id, 1};
  const bool more = ends || job.writer->Add(id, &news.reasoning, &news.content);
  std::vector<PositionLogprobs> logprobs;
  if (sampling.logprobs >= 0) {
    PositionLogprobs& one = logprobs.emplace_back();
    one.chosen = {id, -0.5};
    for (int k = 0; k < sampling.logprobs; ++k) one.top.push_back({id + k, -0.5 - k});
  }
  news.logprobs = logprobs;
  ++generated_;
  job.stream->Append(job.choice, news);
  if (!more) return finish(FinishReason::kStopSequence, Status::Ok());
  if (std::ranges::count(sampling.stop_token_ids, id) > 0) return finish(FinishReason::kStop, Status::Ok());
  if (static_cast<int64_t>(job.said) == sampling.max_tokens) return finish(FinishReason::kLength, Status::Ok());
  return false;
}

void FakeEngine::Loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    bool progress = false;
    for (size_t i = 0; i < jobs_.size();) {
      progress |= !Held(*jobs_[i]) || jobs_[i]->stream->cancelled(jobs_[i]->choice);
      if (Step(*jobs_[i])) {
        jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    if (jobs_.empty()) idle_.notify_all();
    if (progress) {
      // Submissions and readers come in between.
      if (step_.count() > 0) {
        // The time that a step of the model takes.
        const auto until = std::chrono::steady_clock::now() + step_;
        changed_.wait_until(lock, until, [&] { return stopping_; });
      } else {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
      }
      continue;
    }
    // Cancel takes no lock, so that it can be called from a callback: its notification may be missed.
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
  for (const auto& job : jobs_) {
    job->stream->Finish(job->choice, FinishReason::kCancelled, "", -1, Status::Ok());
  }
}

}  // namespace deepinfer::testing
