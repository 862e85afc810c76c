#include "engine/mask_worker.h"

namespace deepinfer {

MaskWorker::~MaskWorker() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MaskWorker::Begin() {
  if (work_.empty()) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  {
    const std::lock_guard lock(mutex_);
    busy_ = true;
  }
  changed_.notify_all();
}

void MaskWorker::Wait() {
  if (work_.empty()) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !busy_; });
  }
  work_.clear();
}

void MaskWorker::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || busy_; });
    if (stop_) return;
    lock.unlock();
    for (const Work& work : work_) work.constraint->FillMasks(work.drafts);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace deepinfer
