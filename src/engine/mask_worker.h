// MaskWorker: makes the grammar masks of a step while the device computes it.
//
// The forward pass does not wait for masks, the choice of tokens does (spec serving.md section 10.6). The thread begins
// with the first constrained request.
// Thread-safety: one thread, the device's, calls; constraints and drafts are the worker's from Begin() to Wait().
// Ownership: refers to what is added.
#ifndef DEEPINFER_ENGINE_MASK_WORKER_H_
#define DEEPINFER_ENGINE_MASK_WORKER_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/slot_constraint.h"

namespace deepinfer {

class MaskWorker {
 public:
  MaskWorker() = default;
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  /// Memory for the rows of this many slots, so that steps allocate nothing for them.
  void Reserve(size_t slots) { work_.reserve(slots); }

  void Add(SlotConstraint* constraint, std::span<const int32_t> drafts) { work_.push_back({constraint, drafts}); }
  void Begin();
  /// Until every mask that was added is made; forgets what was added.
  void Wait();

 private:
  struct Work {
    SlotConstraint* constraint;
    std::span<const int32_t> drafts;
  };
  void Loop();

  std::vector<Work> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;  // under mutex_
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_MASK_WORKER_H_
