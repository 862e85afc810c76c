// StreamState: what the engine thread writes of a request and a GenerationStream reads.
//
// Thread-safety: all members from any thread. Ownership: shared by the engine and the stream.
#ifndef DEEPINFER_ENGINE_STREAM_STATE_H_
#define DEEPINFER_ENGINE_STREAM_STATE_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "deepinfer/generation.h"

namespace deepinfer {

class StreamState {
 public:
  /// `on_news`: as GenerationRequest::on_news; may be empty.
  explicit StreamState(int choices, std::function<void()> on_news = {});

  /// What a step added to a choice.
  struct News {
    std::span<const int32_t> ids;
    std::span<const PositionLogprobs> logprobs;
    std::string reasoning;
    std::string content;
  };
  void Append(int choice, const News& news);
  void Finish(int choice, FinishReason reason, const std::string& stop_sequence, int32_t stop_token_id,
              const Status& status);
  /// Changes the figures of the request under the lock.
  void Update(const std::function<void(Generation*)>& change);

  // The reader.
  bool Next(GenerationDelta* delta);
  bool NextFor(GenerationDelta* delta, int milliseconds, bool* timed_out);
  const Generation& Wait();

  void Cancel();
  void CancelChoice(int choice) { cancelled_[static_cast<size_t>(choice)].store(true, std::memory_order_relaxed); }
  bool cancelled(int choice) const { return cancelled_[static_cast<size_t>(choice)].load(std::memory_order_relaxed); }

 private:
  struct Position {  // of the reader in a choice
    size_t reasoning = 0;
    size_t content = 0;
    size_t ids = 0;
    size_t logprobs = 0;
    bool finished = false;
    bool dirty = false;
  };

  /// Under the lock: the first choice with news, if any.
  bool TakeNews(GenerationDelta* delta);

  std::function<void()> on_news_;
  std::mutex mutex_;
  std::condition_variable news_;
  Generation generation_;
  std::vector<Position> read_;
  int unfinished_ = 0;
  std::vector<std::atomic<bool>> cancelled_;  // [choices]
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_STREAM_STATE_H_
