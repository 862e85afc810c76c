// DeviceThread: runs step plans in order on a thread of its own, at most two of them ahead of what was read.
//
// On the CPU the "device" is this thread and the pool of the Ops; on a GPU it is the thread that launches.
// Thread-safety: one thread launches and waits. Ownership: executor, plans and results are the caller's.
#ifndef DEEPINFER_ENGINE_DEVICE_THREAD_H_
#define DEEPINFER_ENGINE_DEVICE_THREAD_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/step_executor.h"

namespace deepinfer {

class DeviceThread {
 public:
  static constexpr int kMostInFlight = 2;

  explicit DeviceThread(StepExecutor& executor);
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  /// The plan to fill for the next Launch(); fewer than kMostInFlight steps are in flight.
  StepPlan* next_plan() { return &steps_[static_cast<size_t>(launched_ % kMostInFlight)].plan; }

  /// Runs next_plan() after those before it.
  void Launch();
  /// Waits for the oldest step that was not read yet; its result stays until the launch after next.
  const StepResult& WaitOldest();
  int in_flight() const { return static_cast<int>(launched_ - read_); }

  /// Runs on the device thread between two steps, before each that is launched afterwards.
  void Post(std::function<void()> task);

 private:
  struct Step {
    StepPlan plan;
    StepResult result;
  };
  void Loop();

  StepExecutor& executor_;
  Step steps_[kMostInFlight];
  int64_t launched_ = 0;  // by the host
  int64_t read_ = 0;      // by the host
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t posted_ = 0;  // under mutex_
  int64_t done_ = 0;
  bool stop_ = false;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_DEVICE_THREAD_H_
