// GoldenCheck: runs prompts of the golden set through a model and compares every recorded tensor.
//
// Two correct F32 implementations agree to a few 1e-7 until one value rounds to the other neighbour of a number format
// or another row or expert is picked ("flip"); after that a row differs by up to some percent. So logits are judged by
// the share of calm rows, the mean and the worst row over all prompts; decisions only where the recorded margin is
// clear. Limits: docs/model.md, "Golden tests".
#ifndef DEEPINFER_TESTS_MODEL_GOLDEN_CHECK_H_
#define DEEPINFER_TESTS_MODEL_GOLDEN_CHECK_H_

#include <string>
#include <vector>

#include "golden_file.h"
#include "model_fixture.h"

namespace deepinfer::test {

struct GoldenLimits {
  double calm_share = 0;       ///< of all stored rows: relative L2 distance within 1e-5
  double mean = 0;             ///< of all stored rows
  double worst = 0;            ///< of each row
  float greedy_margin = 0;     ///< steps with at least this margin agree
  float expert_margin = 0;     ///< picks with at least this margin agree
  float index_margin = 0;      ///< selections with more than this margin agree
  double index_share = 0;      ///< of the recorded rows are selected in any case
  float draft_logit = 0;       ///< absolute, a row not calm
  float draft_confidence = 0;  ///< absolute, a row not calm
  float draft_margin = 0;      ///< drafts with more than this margin agree
};

/// The limits for "tiny", "tiny2" or "nano" in mode "f32act" or "fp8act".
GoldenLimits LimitsFor(const std::string& model, const std::string& mode);

class GoldenCheck {
 public:
  GoldenCheck(LoadedModel& model, const GoldenLimits& limits) : model_(model), limits_(limits) {}

  /// Feeds one prompt in a single chunk and its greedy continuation, and compares; failures name the prompt.
  void Run(const GoldenFile& golden, const std::string& name);

  /// Compares the figures that are over all prompts and prints them.
  void Finish(const std::string& title) const;

 private:
  void CheckLogits(const GoldenFile& golden, const std::vector<std::vector<float>>& logits);
  void CheckStreams(const GoldenFile& golden, const struct StepRecord& record) const;
  void CheckExperts(const GoldenFile& golden, const struct StepRecord& record) const;
  void CheckSelections(const GoldenFile& golden, const struct StepRecord& record) const;
  void CheckDraft(const GoldenFile& golden, const Draft& draft) const;
  void CheckGreedy(const GoldenFile& golden, SequenceState& sequence, const std::vector<float>& last);

  LoadedModel& model_;
  const GoldenLimits limits_;
  std::vector<double> distances_;  // of all stored logits rows so far
  bool calm_ = false;              // the last row of the current prompt is calm, here and in the reference
  bool all_calm_ = false;          // all stored rows of the current prompt are
  int greedy_steps_ = 0;           // compared
};

}  // namespace deepinfer::test

#endif  // DEEPINFER_TESTS_MODEL_GOLDEN_CHECK_H_
