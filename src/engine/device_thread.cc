#include "engine/device_thread.h"

#include <cassert>
#include <utility>

namespace deepinfer {

DeviceThread::DeviceThread(StepExecutor& executor) : executor_(executor), thread_([this] { Loop(); }) {}

DeviceThread::~DeviceThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DeviceThread::Launch() {
  assert(in_flight() < kMostInFlight);
  ++launched_;
  {
    const std::lock_guard lock(mutex_);
    posted_ = launched_;
  }
  changed_.notify_all();
}

const StepResult& DeviceThread::WaitOldest() {
  assert(in_flight() > 0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_ > read_; });
  return steps_[static_cast<size_t>(read_++ % kMostInFlight)].result;
}

void DeviceThread::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

void DeviceThread::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || posted_ > done_ || !tasks_.empty(); });
    // What was handed over before the step is done before it. What comes meanwhile waits for the next turn, or a fast
    // tier would hold steps up.
    const bool runs_step = posted_ > done_;
    for (size_t left = tasks_.size(); left > 0; --left) {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
    if (runs_step) {
      Step& step = steps_[static_cast<size_t>(done_ % kMostInFlight)];
      lock.unlock();
      executor_.Run(step.plan, &step.result);
      lock.lock();
      ++done_;
      changed_.notify_all();
    } else if (stop_ && posted_ == done_ && tasks_.empty()) {
      return;
    }
  }
}

}  // namespace deepinfer
