// Scheduler: who computes what in the next step. One rule, no phases: running requests first, each with as many rows as
// it can use, then waiting ones, until the step's budget is spent (spec serving.md 5; docs/engine.md).
//
// A budget counts cost units: a row through all layers costs 1, a row that ends below the decoder costs encoder_cost.
// Plans depend on the order of submissions, results and cancellations alone; by promise 1 they change no output.
//
// Thread-safety: the engine thread only. Ownership: requests; KvManager is the engine's.
#ifndef DEEPINFER_ENGINE_SCHEDULER_H_
#define DEEPINFER_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/kv_transfers.h"
#include "engine/request.h"
#include "engine/step_plan.h"

namespace deepinfer {

struct SchedulerOptions {
  int64_t max_num_seqs = 1;
  double step_cost = 0;     ///< units of one step
  double encoder_cost = 1;  ///< of a row below the decoder
  int64_t step_rows = 0;    ///< rows of one step
  int64_t logits_rows = 0;  ///< rows of one step with logits
  int32_t draft_length = 0;
  int32_t draft_block = 0;         ///< b
  double tpot_target_seconds = 0;  ///< 0: none
};

struct SchedulerCounts {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t finished = 0;
  int64_t cancelled = 0;
  int64_t preemptions = 0;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t replayed_tokens = 0;
  int64_t generated_tokens = 0;
  DraftCounts drafts;
};

class Scheduler {
 public:
  /// `transfers`: the tiers behind the pool, or nullptr.
  Scheduler(const SchedulerOptions& options, KvManager& kv, KvTransfers* transfers = nullptr);
  ~Scheduler();

  void Submit(std::shared_ptr<Request> request);

  /// Plans the next step; false when no request can use one now. The plan's steps are read in the order of planning.
  bool Plan(StepPlan* plan);

  /// Takes the results of the oldest plan that was not read yet.
  void Apply(const StepResult& result);

  /// Ends what was cancelled and is not in flight.
  void DropCancelled();

  /// Ends every request: the engine closes.
  void CancelAll();

  /// Tells the readers which answers have ended since the last call; what they ask for next finds counts() up to date.
  void TellEnded();

  bool idle() const { return running_.empty() && waiting_.empty(); }
  /// Blocks that running requests may need before long.
  int64_t reserve() const { return std::ssize(running_); }
  SchedulerCounts counts() const;
  /// Of cached_tokens: those that a tier behind the pool had, [tiers].
  const std::vector<int64_t>& cached_tokens_by_tier() const { return cached_by_tier_; }

  /// Called for every decode step of a sequence; `confidence` [b] of its drafts, empty when nothing is to be learned.
  std::function<void(std::span<const float> confidence, const SlotResult& slot)> on_drafts;

 private:
  struct Planned {
    std::shared_ptr<Request> request;
    int64_t rows = 0;
    int64_t tokens = 0;
  };
  struct Budget {
    double cost = 0;
    int64_t rows = 0;
    int64_t logits_rows = 0;
  };

  bool MustEnd(const Request& request) const { return request.finished || request.stream->cancelled(request.choice); }
  void PlanDecodes(StepPlan* plan, Budget* budget);
  void PlanPrefill(Request& request, StepPlan* plan, Budget* budget);
  void AdmitWaiting(StepPlan* plan, Budget* budget);
  bool Start(const std::shared_ptr<Request>& request, StepPlan* plan);
  std::vector<CachedTokens> CountByTier(const Request& request, int64_t cached);
  bool GrowOrPreempt(Request& request, int64_t tokens);
  void GrantBlocks(Request& request, StepPlan* plan);
  void Record(Request& request, int64_t rows, int64_t tokens);
  int64_t DecoderRows(const Request& request, int64_t first, int64_t count) const;
  double PrefillShare(double budget, bool decodes) const;

  void ApplySlot(const std::shared_ptr<Request>& shared, const SlotResult& slot, const StepResult& result);
  void Finish(const std::shared_ptr<Request>& request, FinishReason reason, const Status& status);
  void LeaveSlot(Request& request);
  void Sweep();

  SchedulerOptions options_;
  KvManager& kv_;
  KvTransfers* transfers_;
  std::vector<std::shared_ptr<Request>> running_;  // in the order of service
  std::vector<std::shared_ptr<Request>> waiting_;  // in the order of service
  std::vector<int32_t> free_slots_;
  std::vector<std::shared_ptr<Request>> by_slot_;
  std::deque<std::vector<Planned>> in_flight_;
  std::vector<Planned> planned_;
  struct Ended {
    std::shared_ptr<Request> request;
    FinishReason reason;
    Status status;
  };
  std::vector<Ended> ended_;
  std::vector<std::vector<Planned>> spare_;
  std::vector<int64_t> granted_;  // blocks that the device knows, by slot
  SchedulerCounts counts_;
  std::vector<int64_t> cached_by_tier_;
  double seconds_per_unit_ = 0;  // moving average of what steps took
  double planned_cost_ = 0;
  std::deque<double> costs_in_flight_;
};

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_SCHEDULER_H_
