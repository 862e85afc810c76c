#include "ops/weight_stream.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/memory_advice.h"
#include "base/thread_pool.h"

namespace deepinfer {
namespace {

constexpr int64_t kPieceAlignment = 64;

int64_t EndOf(const WeightPiece& piece) { return piece.offset + piece.load.bytes; }

// Has the system read what a batch needs, in few requests. A gap as wide as this is read along.
void ReadAhead(const WeightBatch& batch) {
  constexpr int64_t kGap = 64 << 10;
  const uint8_t* begin = nullptr;
  const uint8_t* end = nullptr;
  for (const WeightPiece& piece : batch) {
    const uint8_t* from = piece.load.from;
    if (begin == nullptr || from < end || from > end + kGap) {
      if (begin != nullptr) AdviseWillNeed({begin, end});
      begin = from;
    }
    end = from + piece.load.bytes;
  }
  if (begin != nullptr) AdviseWillNeed({begin, end});
}

// Share `worker` of `workers` of a batch's bytes, into the buffer or to host memory.
void Fill(const WeightBatch& batch, uint8_t* buffer, int worker, int workers) {
  const StaticRange share = SplitRange(EndOf(batch.back()), worker, workers, kPieceAlignment);
  for (const WeightPiece& piece : batch) {
    const int64_t begin = std::max(share.begin, piece.offset);
    const int64_t end = std::min(share.end, EndOf(piece));
    if (begin >= end) continue;
    uint8_t* to = piece.load.to_host ? piece.load.to + (begin - piece.offset) : buffer + begin;
    std::memcpy(to, piece.load.from + (begin - piece.offset), static_cast<size_t>(end - begin));
  }
}

// Which buffers hold a batch that was not sent yet, for the two threads of a run.
class Turns {
 public:
  void MarkFilled(int buffer) { Set(buffer, true); }
  void MarkFree(int buffer) { Set(buffer, false); }
  /// False: the run has stopped.
  bool WaitFree(int buffer) { return Wait(buffer, false); }
  bool WaitFilled(int buffer) { return Wait(buffer, true); }
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }

 private:
  void Set(int buffer, bool filled) {
    {
      const std::lock_guard lock(mutex_);
      filled_[static_cast<size_t>(buffer)] = filled;
    }
    changed_.notify_all();
  }
  bool Wait(int buffer, bool filled) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || filled_[static_cast<size_t>(buffer)] == filled; });
    return !stopped_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<bool, WeightStream::kBuffers> filled_{};
  bool stopped_ = false;
};

}  // namespace

std::vector<WeightBatch> CutIntoBatches(std::span<const WeightLoad> loads, int64_t buffer_bytes) {
  buffer_bytes -= buffer_bytes % kPieceAlignment;
  std::vector<WeightBatch> batches;
  int64_t used = buffer_bytes;
  for (WeightLoad load : loads) {
    while (load.bytes > 0) {
      if (used >= buffer_bytes) {
        batches.emplace_back();
        used = 0;
      }
      WeightLoad part = load;
      part.bytes = std::min(load.bytes, buffer_bytes - used);
      batches.back().push_back({part, used});
      used += (part.bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
      load.from += part.bytes;
      load.to += part.bytes;
      load.bytes -= part.bytes;
    }
  }
  return batches;
}

Status WeightStream::Run(std::span<const WeightLoad> loads, WeightCarrier& carrier, const LoadProgress& progress) {
  const std::vector<WeightBatch> batches = CutIntoBatches(loads, buffer_bytes_);
  int64_t total = 0;
  for (const WeightLoad& load : loads) total += load.bytes;
  Turns turns;
  std::thread reader([&] {
    ThreadPool pool(threads_);
    if (!batches.empty()) ReadAhead(batches.front());
    for (size_t i = 0; i < batches.size(); ++i) {
      if (i + 1 < batches.size()) ReadAhead(batches[i + 1]);
      const int buffer = static_cast<int>(i) % kBuffers;
      if (!turns.WaitFree(buffer)) return;
      uint8_t* memory = buffers_[static_cast<size_t>(buffer)];
      pool.Run([&](int worker) { Fill(batches[i], memory, worker, pool.workers()); });
      turns.MarkFilled(buffer);
    }
  });
  Status status;
  int64_t done = 0;
  for (size_t i = 0; i < batches.size() && status.ok(); ++i) {
    const int buffer = static_cast<int>(i) % kBuffers;
    turns.WaitFilled(buffer);
    for (const WeightPiece& piece : batches[i]) done += piece.load.bytes;
    status = carrier.Send(buffer, batches[i]);
    // The other buffer went before this one, so the reader gets it back while this one crosses.
    if (status.ok() && i > 0) {
      const int other = (buffer + 1) % kBuffers;
      status = carrier.Wait(other);
      turns.MarkFree(other);
    }
    if (progress && status.ok()) progress(done, total);
  }
  if (!status.ok()) turns.Stop();
  reader.join();
  for (int buffer = 0; buffer < kBuffers; ++buffer) {
    const Status last = carrier.Wait(buffer);
    if (status.ok()) status = last;
  }
  return status;
}

}  // namespace deepinfer
