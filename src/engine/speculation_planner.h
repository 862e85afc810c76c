// SpeculationPlanner: whether a step drafts, and how many drafts of each sequence it verifies.
//
// For R sequences with survivals a[r][j] (probability that drafts 0..j of r are all right), D drafted sequences and P
// other rows in the step, verifying K drafts in all is expected to yield
//
//   Theta(K) = (R + sum of the K largest a) / (DraftSeconds(D) + StepSeconds(R + K + P))     tokens per second
//
// and the K of the largest Theta is taken: all K are tried, because costs have cliffs. Drafts rank by (a descending, r
// ascending, j ascending); since a never rises along a sequence, what is admitted of it is a prefix.
//
// Which entry for which verification rule (spec serving.md 3.2, 3.3):
//  * coupling (promise 2): the text does not depend on the plan, so PlanVerification may use the current survivals.
//  * rejection: a draft's admission must not depend on its own draw. PlanCapacity from survivals two steps old, then
//    AdmitTop by the current ones, is sound; PlanVerification is biased and must not be used.
//
// Without a profile nothing is trimmed and every step drafts; warning() says so. All choices are functions of the calls
// made so far, never of time. Thread-safety: one thread. Ownership: scratch only, the profile outlives the planner. No
// call allocates within the reserved sizes.
#ifndef DEEPINFER_ENGINE_SPECULATION_PLANNER_H_
#define DEEPINFER_ENGINE_SPECULATION_PLANNER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/step_profile.h"

namespace deepinfer {

struct SpeculationPlannerOptions {
  double switch_on_gain = 0.03;  ///< drafting begins when it promises this share more tokens per second
  double switch_off_gain = 0;    ///< and ends when it promises less than this
  double flat_tolerance = 0.02;  ///< all drafts are verified, unranked, when that lengthens the step by at most this
  double probe_share = 0.01;     ///< of the time, spent on drafting while it does not pay
};

/// The drafts of one step. Rows of a sequence that decodes without drafts have limit 0.
struct SpeculationBatch {
  std::span<const float> survival = {};  // [R, b], calibrated; rising or NaN entries are lowered
  std::span<const int32_t> limits = {};  // [R] most drafts of a sequence (tokens left, grammar); empty: b
  int64_t other_rows = 0;                ///< prefill and replay rows of the same step
};

struct DraftDecision {
  bool draft = true;
  bool probe = false;  ///< drafts although it does not pay, to keep the estimates alive: verify up to the limits
  double gain = 0;     ///< expected tokens per second with drafting / without - 1
};

class SpeculationPlanner {
 public:
  /// `profile` may be null or empty.
  SpeculationPlanner(const StepProfile* profile, int64_t block_size, const SpeculationPlannerOptions& options = {});

  /// Before the first call and when the batch may grow.
  void Reserve(int64_t max_sequences);

  /// False when every draft is verified because the costs are unknown or flat.
  bool trims() const { return trims_; }
  /// Why not, for the log and /metrics; empty when trims().
  const std::string& warning() const { return warning_; }

  /// Before drafting: `batch.survival` is what the sequences are expected to have, moving averages of earlier blocks.
  /// One decision for the whole batch, with hysteresis; call it once per step. An empty batch changes nothing.
  DraftDecision DecideDrafting(const SpeculationBatch& batch);

  /// After drafting, coupling rule: lengths [R] of the best Theta. Returns their sum.
  int64_t PlanVerification(const SpeculationBatch& batch, std::span<int32_t> lengths);

  /// Rejection rule, first half: how many drafts to verify in all, from survivals that know nothing of this step's
  /// draws.
  int64_t PlanCapacity(const SpeculationBatch& batch);

  /// Rejection rule, second half: the `capacity` highest ranked drafts. Returns how many were admitted. `limits` must
  /// not depend on this step's draws either.
  int64_t AdmitTop(const SpeculationBatch& batch, int64_t capacity, std::span<int32_t> lengths);

  /// Up to the limits, whatever the costs: what a probe does under either rule. Returns the sum.
  int64_t VerifyAll(const SpeculationBatch& batch, std::span<int32_t> lengths) const;

 private:
  struct Candidate {
    float survival;
    int32_t sequence;
    int32_t position;
  };
  struct Choice {
    int64_t drafts = 0;
    double tokens_per_second = 0;
  };

  int64_t Sequences(const SpeculationBatch& batch) const;
  int64_t Limit(const SpeculationBatch& batch, int64_t sequence) const;
  int64_t DraftedSequences(const SpeculationBatch& batch) const;
  int64_t AllDrafts(const SpeculationBatch& batch) const;
  /// Fills candidates_, unordered.
  void Gather(const SpeculationBatch& batch);
  /// Orders candidates_ and scans Theta.
  Choice BestChoice(const SpeculationBatch& batch);
  /// The first `drafts` candidates, counted by sequence.
  int64_t CountFirst(int64_t drafts, std::span<int32_t> lengths) const;
  /// Whether the costs give no ground to rank at all.
  bool VerifiesAll(const SpeculationBatch& batch) const;

  const StepProfile* profile_;
  int64_t block_size_;
  SpeculationPlannerOptions options_;
  bool trims_ = false;
  std::string warning_;
  bool drafting_ = true;
  double probe_allowance_ = 0;  // seconds that probes may spend
  std::vector<Candidate> candidates_;
};

/// average += weight * (sample - average), entry by entry: the caller's estimate of a sequence or of all of them.
void UpdateSurvivalAverage(std::span<float> average, std::span<const float> survival, float weight = 0.2F);

}  // namespace deepinfer

#endif  // DEEPINFER_ENGINE_SPECULATION_PLANNER_H_
