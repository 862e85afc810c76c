// A fixed pool that runs one function on every worker: the only parallelism inside an op.
//
// Work is split statically by the caller from (worker, workers), never stolen, so that results cannot depend on timing
// (promise 1). Thread-safety: Run() may be called by one thread at a time; it does not nest. Ownership: the pool owns
// its threads and joins them on destruction. The calling thread is worker 0.
#ifndef DEEPINFER_BASE_THREAD_POOL_H_
#define DEEPINFER_BASE_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace deepinfer {

/// Most threads that options accept.
inline constexpr int kMostThreads = 1024;

class ThreadPool {
 public:
  /// `workers` >= 1 counts the calling thread; the pool has fewer when the system refuses to start that many.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const { return workers_; }

  /// Calls `body(worker)` once for every worker in 0..workers()-1 and returns when all have returned. `body` must not
  /// throw. Does not allocate.
  template <typename Body>
  void Run(const Body& body) {
    if (workers_ == 1) {
      body(0);
      return;
    }
    RunErased([](const void* context, int worker) { (*static_cast<const Body*>(context))(worker); }, &body);
  }

 private:
  using Function = void (*)(const void* context, int worker);
  void RunErased(Function function, const void* context);
  void WorkerLoop(int worker);

  int workers_ = 1;  // fixed once constructed
  // A step runs hundreds of short parallel sections; a worker spins this long before it sleeps.
  static constexpr int kSpins = 4000;
  int spins_ = kSpins;  // 0 with more workers than processors: spinning would keep others from working

  Function function_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<uint64_t> generation_{0};  // one more for every section
  std::atomic<int> running_{0};          // workers still inside the section
  std::atomic<bool> stop_{false};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> threads_;
};

/// The half-open range of worker `worker` when `count` items are split into `workers` runs of whole `grain`s.
struct StaticRange {
  int64_t begin;
  int64_t end;
};
inline StaticRange SplitRange(int64_t count, int worker, int workers, int64_t grain = 1) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t begin = grains * worker / workers * grain;
  const int64_t end = grains * (worker + 1) / workers * grain;
  return {begin < count ? begin : count, end < count ? end : count};
}

/// Calls `body(begin, end)` for a static partition of 0..count-1.
template <typename Body>
void ParallelRange(ThreadPool& pool, int64_t count, int64_t grain, const Body& body) {
  if (count <= grain) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  pool.Run([&](int worker) {
    const StaticRange range = SplitRange(count, worker, pool.workers(), grain);
    if (range.begin < range.end) body(range.begin, range.end);
  });
}

}  // namespace deepinfer

#endif  // DEEPINFER_BASE_THREAD_POOL_H_
