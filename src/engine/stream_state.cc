#include "engine/stream_state.h"

#include <chrono>

namespace deepinfer {

StreamState::StreamState(int choices, std::function<void()> on_news)
    : on_news_(std::move(on_news)),
      read_(static_cast<size_t>(choices)),
      unfinished_(choices),
      cancelled_(static_cast<size_t>(choices)) {
  generation_.choices.resize(static_cast<size_t>(choices));
}

void StreamState::Append(int choice, const News& news) {
  std::unique_lock lock(mutex_);
  Choice& to = generation_.choices[static_cast<size_t>(choice)];
  to.ids.insert(to.ids.end(), news.ids.begin(), news.ids.end());
  to.logprobs.insert(to.logprobs.end(), news.logprobs.begin(), news.logprobs.end());
  to.reasoning += news.reasoning;
  to.content += news.content;
  read_[static_cast<size_t>(choice)].dirty = true;
  news_.notify_all();
  lock.unlock();
  if (on_news_) on_news_();
}

void StreamState::Finish(int choice, FinishReason reason, const std::string& stop_sequence, int32_t stop_token_id,
                         const Status& status) {
  std::unique_lock lock(mutex_);
  Choice& to = generation_.choices[static_cast<size_t>(choice)];
  if (to.finished) return;
  to.finished = true;
  to.finish_reason = reason;
  to.stop_sequence = stop_sequence;
  to.stop_token_id = stop_token_id;
  to.status = status;
  --unfinished_;
  read_[static_cast<size_t>(choice)].dirty = true;
  news_.notify_all();
  lock.unlock();
  if (on_news_) on_news_();
}

void StreamState::Update(const std::function<void(Generation*)>& change) {
  const std::lock_guard lock(mutex_);
  change(&generation_);
}

void StreamState::Cancel() {
  for (std::atomic<bool>& choice : cancelled_) choice.store(true, std::memory_order_relaxed);
}

bool StreamState::TakeNews(GenerationDelta* delta) {
  for (size_t i = 0; i < read_.size(); ++i) {
    Position& at = read_[i];
    if (!at.dirty) continue;
    const Choice& choice = generation_.choices[i];
    delta->index = static_cast<int>(i);
    delta->reasoning = choice.reasoning.substr(at.reasoning);
    delta->content = choice.content.substr(at.content);
    delta->ids.assign(choice.ids.begin() + static_cast<std::ptrdiff_t>(at.ids), choice.ids.end());
    delta->logprobs.assign(choice.logprobs.begin() + static_cast<std::ptrdiff_t>(at.logprobs), choice.logprobs.end());
    delta->cached_tokens = generation_.cached_tokens;
    delta->cached_tokens_by_tier = generation_.cached_tokens_by_tier;
    delta->finished = choice.finished;
    if (choice.finished) {
      delta->finish_reason = choice.finish_reason;
      delta->stop_sequence = choice.stop_sequence;
      delta->stop_token_id = choice.stop_token_id;
      delta->status = choice.status;
    }
    at = {choice.reasoning.size(), choice.content.size(), choice.ids.size(),
          choice.logprobs.size(),  choice.finished,       false};
    return true;
  }
  return false;
}

bool StreamState::Next(GenerationDelta* delta) {
  std::unique_lock lock(mutex_);
  while (!TakeNews(delta)) {
    if (unfinished_ == 0) return false;
    news_.wait(lock);
  }
  return true;
}

bool StreamState::NextFor(GenerationDelta* delta, int milliseconds, bool* timed_out) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  *timed_out = false;
  std::unique_lock lock(mutex_);
  while (!TakeNews(delta)) {
    if (unfinished_ == 0) return false;
    if (*timed_out) return true;
    // A wait is a system call and a change of threads even when its time is over.
    *timed_out = milliseconds <= 0 || news_.wait_until(lock, deadline) == std::cv_status::timeout;
  }
  *timed_out = false;
  return true;
}

const Generation& StreamState::Wait() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [this] { return unfinished_ == 0; });
  return generation_;
}

}  // namespace deepinfer
