// StepProfile: seconds of a step by the rows it verifies, and of drafting by the sequences drafted.
//
// Measured once before the first request; the speculation planner divides expected tokens by it (docs/dspark.md).
// Invariants: (1) curves never fall; (2) linear between points, linear beyond the last one with the slope of the last
// octave; (3) 0 rows cost 0, fewer than the first point cost what it costs.
// Thread-safety: a value. Ownership: its points. Look-ups do not allocate. Source: spec serving.md 3.2.
#ifndef DEEPINFER_ENGINE_STEP_PROFILE_H_
#define DEEPINFER_ENGINE_STEP_PROFILE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "deepinfer/status.h"

namespace deepinfer {

struct CostPoint {
  int64_t count = 0;   ///< rows of a step or sequences of a draft, >= 1
  double seconds = 0;  ///< > 0
};

/// Seconds as a function of a count; invariants 1 to 3.
class CostCurve {
 public:
  CostCurve() = default;

  /// `points`: counts ascending, at least one, everything finite and positive; else kInvalidArgument. A measured time
  /// is the true one plus noise that is never negative, and n rows can be padded to more: so a point that costs more
  /// than a later one takes the later one's seconds.
  static Result<CostCurve> Create(std::span<const CostPoint> points);

  bool empty() const { return points_.empty(); }
  double Seconds(int64_t count) const;
  std::span<const CostPoint> points() const { return points_; }

 private:
  std::vector<CostPoint> points_;
  double slope_ = 0;  // seconds per count beyond the last point
};

class StepProfile {
 public:
  /// An empty profile: nothing is known, costs are 0.
  StepProfile() = default;
  StepProfile(CostCurve step, CostCurve draft) : step_(std::move(step)), draft_(std::move(draft)) {}

  /// From points, for tests and for profiles that come from elsewhere. `draft` may be empty: drafting is free.
  static Result<StepProfile> FromPoints(std::span<const CostPoint> step, std::span<const CostPoint> draft);

  bool empty() const { return step_.empty(); }

  /// Whether rows cost nothing at all up to the last point: within 2 % of the first. Then trimming has no ground.
  bool IsFlat() const;

  /// As measured at the start: choices do not depend on the load of the machine.
  double StepSeconds(int64_t rows) const { return step_.Seconds(rows); }
  double DraftSeconds(int64_t sequences) const { return draft_.Seconds(sequences); }

  const CostCurve& step() const { return step_; }
  const CostCurve& draft() const { return draft_; }

  /// What the measurement could not do, in words; empty when it did all.
  const std::string& note() const { return note_; }
  void set_note(std::string note) { note_ = std::move(note); }

  /// A table for people: count, milliseconds, and the note.
  std::string ToText() const;

 private:
  CostCurve step_;
  CostCurve draft_;
  std::string note_;
};

struct StepProfileOptions {
  int64_t max_rows = 64;       ///< of one step
  int64_t max_sequences = 16;  ///< drafted at once
  int repeats = 3;             ///< runs of a point; the fastest counts
  double budget_seconds = 5;   ///< for everything; drafting takes at most a third
};

/// 1, 2, 3, 4, 6, 8, 12, 16, 24, ... up to and including `most` (>= 1).
std::vector<int64_t> ProfileCounts(int64_t most);

/// Runs `run_step(rows)` and `run_draft(sequences)` and takes the time by `clock` (monotonic, seconds). The first two
/// counts are always measured; later ones while the budget lasts, the rest is extrapolated and noted. `run_draft` may
/// be null: drafting is free. Errors of the callables are returned as they are.
Result<StepProfile> MeasureStepProfile(const std::function<Status(int64_t rows)>& run_step,
                                       const std::function<Status(int64_t sequences)>& run_draft,
                                       const std::function<double()>& clock, const StepProfileOptions& options);

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_STEP_PROFILE_H_
