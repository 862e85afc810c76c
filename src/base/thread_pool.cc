#include "base/thread_pool.h"

#include <system_error>

namespace deepinfer {
namespace {

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int workers) {
  if (workers > static_cast<int>(std::thread::hardware_concurrency())) spins_ = 0;
  threads_.reserve(static_cast<size_t>(workers < 1 ? 0 : workers - 1));
  try {
    for (int worker = 1; worker < workers; ++worker) {
      threads_.emplace_back([this, worker] { WorkerLoop(worker); });
    }
  } catch (const std::system_error&) {
    // The system allows no more threads. Results do not depend on their number, so fewer do.
  }
  workers_ = static_cast<int>(threads_.size()) + 1;
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::RunErased(Function function, const void* context) {
  function_ = function;
  context_ = context;
  running_.store(workers_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1);  // publishes the section; sequentially consistent with the sleepers' check below
  if (sleepers_.load() > 0) {
    { std::lock_guard<std::mutex> lock(mutex_); }
    wake_.notify_all();
  }
  function(context, 0);
  for (int spin = 0; running_.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < spins_) {
      CpuRelax();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::WorkerLoop(int worker) {
  uint64_t seen = 0;
  for (;;) {
    int spin = 0;
    while (generation_.load(std::memory_order_acquire) == seen) {
      if (++spin < spins_) {
        CpuRelax();
        continue;
      }
      std::unique_lock<std::mutex> lock(mutex_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return generation_.load() != seen; });
      sleepers_.fetch_sub(1);
    }
    ++seen;
    if (stop_.load()) return;
    function_(context_, worker);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace deepinfer
