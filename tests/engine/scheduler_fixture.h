// A scheduler without a model: the test plays the device and answers plans as StepExecutor would, one or two steps
// late.
#ifndef DEEPINFER_TESTS_ENGINE_SCHEDULER_FIXTURE_H_
#define DEEPINFER_TESTS_ENGINE_SCHEDULER_FIXTURE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/scheduler.h"

namespace deepinfer::test {

/// Chooses tokens by a rule and checks that what a plan says is what a device could do.
class FakeDevice {
 public:
  StepResult Run(const StepPlan& plan);

  /// The token that answer `serial` has at `index`, 0 the first one behind the prompt.
  std::function<int32_t(uint64_t serial, int64_t index)> token = [](uint64_t serial, int64_t index) {
    return static_cast<int32_t>(100 + (serial * 131 + static_cast<uint64_t>(index) * 7) % 2000);
  };
  int64_t accepted = 0;        ///< drafts of a decode step that stand, if so many are planned
  double seconds_per_row = 0;  ///< the time of a step; 0: none is told

 private:
  struct Slot {
    uint64_t serial = 0;
    std::shared_ptr<const RequestInput> input;
    int64_t length = 0;
    int64_t outputs = 0;
    int64_t blocks = 0;
    bool finished = true;
  };
  void Emit(Slot* slot, StepResult* result, SlotResult* slot_result) const;

  std::map<int32_t, Slot> slots_;
};

/// What a test asks for; answers end by length.
struct Ask {
  int64_t prompt = 10;
  int64_t answer = 4;
  int priority = 0;
  int32_t text = 0;  ///< equal ones have equal prompts, as far as they go; 0: of this request alone
  std::vector<std::string> stops = {};
};

class SchedulerBench {
 public:
  SchedulerBench(const SchedulerOptions& scheduler, const KvManagerOptions& kv, const ReplaySettings& replay);

  std::shared_ptr<Request> Submit(const Ask& ask);
  /// Another choice of the same prompt.
  std::shared_ptr<Request> SubmitChoice(const std::shared_ptr<Request>& leader);

  /// Plans and launches a step as the engine's loop does; nothing to plan: an empty plan that is not launched.
  const StepPlan& Plan();
  /// The device runs the oldest plan that was not read, and its result is applied.
  void Read();
  /// Plan and Read.
  const StepPlan& Step();
  /// Until nothing is left, with so many plans in flight at most.
  void RunToTheEnd(int depth);

  const StepPlan& plan() const { return plan_; }  ///< the last one
  int64_t in_flight() const { return std::ssize(launched_); }
  /// Every block and snapshot is free once the prefix cache is cleared.
  void ExpectNothingHeld();

  FakeDevice device;
  std::unique_ptr<KvManager> kv;
  std::unique_ptr<Scheduler> scheduler;

 private:
  ReplaySettings replay_;
  uint64_t arrivals_ = 0;
  StepPlan plan_;
  std::deque<StepPlan> launched_;
};

/// Of item `index`; the test fails when there is none.
PlanItem ItemAt(const StepPlan& plan, size_t index);
/// The rows of every item, 0: a decode.
std::vector<int64_t> RowsOf(const StepPlan& plan);
/// The serials of the requests that start.
std::vector<uint64_t> StartsOf(const StepPlan& plan);
/// What became of the request's choice.
Choice ChoiceOf(const Request& request);
/// Prompt and all tokens that `device` has for an answer of `count` tokens.
std::vector<int32_t> ExpectedIds(const FakeDevice& device, const Request& request, int64_t count);

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_ENGINE_SCHEDULER_FIXTURE_H_
