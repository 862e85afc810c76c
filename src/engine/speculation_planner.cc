#include "engine/speculation_planner.h"

#include <algorithm>
#include <cassert>

namespace deepinfer {
namespace {

// The ranking of the header: a total order, so that the first K are one well-defined set.
struct RanksBefore {
  template <typename Candidate>
  bool operator()(const Candidate& a, const Candidate& b) const {
    if (a.survival != b.survival) return a.survival > b.survival;
    if (a.sequence != b.sequence) return a.sequence < b.sequence;
    return a.position < b.position;
  }
};

}  // namespace

SpeculationPlanner::SpeculationPlanner(const StepProfile* profile, int64_t block_size,
                                       const SpeculationPlannerOptions& options)
    : profile_(profile != nullptr && !profile->empty() ? profile : nullptr),
      block_size_(block_size),
      options_(options) {
  assert(block_size >= 1);
  if (profile_ == nullptr) {
    warning_ = "speculation: no step profile, so every step drafts and every draft is verified";
  } else if (profile_->IsFlat()) {
    warning_ = "speculation: the step profile is flat, so every draft is verified";
  } else {
    trims_ = true;
  }
}

void SpeculationPlanner::Reserve(int64_t max_sequences) {
  candidates_.reserve(static_cast<size_t>(max_sequences * block_size_));
}

DraftDecision SpeculationPlanner::DecideDrafting(const SpeculationBatch& batch) {
  const int64_t sequences = Sequences(batch);
  const int64_t all = AllDrafts(batch);
  if (all == 0) return {.draft = false};
  if (profile_ == nullptr) return {};

  const double plain_seconds = profile_->StepSeconds(sequences + batch.other_rows);
  const double plain_rate = static_cast<double>(sequences) / plain_seconds;
  Gather(batch);
  DraftDecision decision;
  decision.gain = BestChoice(batch).tokens_per_second / plain_rate - 1;
  drafting_ = drafting_ ? decision.gain >= options_.switch_off_gain : decision.gain > options_.switch_on_gain;
  decision.draft = drafting_;
  if (drafting_) {
    probe_allowance_ = 0;
    return decision;
  }
  const double probe_seconds = profile_->DraftSeconds(DraftedSequences(batch)) +
                               profile_->StepSeconds(sequences + all + batch.other_rows) - plain_seconds;
  probe_allowance_ += options_.probe_share * plain_seconds;
  if (probe_allowance_ >= probe_seconds) {
    probe_allowance_ -= probe_seconds;
    decision.draft = decision.probe = true;
  }
  return decision;
}

int64_t SpeculationPlanner::PlanVerification(const SpeculationBatch& batch, std::span<int32_t> lengths) {
  if (VerifiesAll(batch)) return VerifyAll(batch, lengths);
  assert(static_cast<int64_t>(lengths.size()) == Sequences(batch));
  Gather(batch);
  const int64_t drafts = BestChoice(batch).drafts;
  return CountFirst(drafts, lengths);
}

int64_t SpeculationPlanner::PlanCapacity(const SpeculationBatch& batch) {
  if (VerifiesAll(batch)) return AllDrafts(batch);
  Gather(batch);
  return BestChoice(batch).drafts;
}

int64_t SpeculationPlanner::AdmitTop(const SpeculationBatch& batch, int64_t capacity, std::span<int32_t> lengths) {
  assert(static_cast<int64_t>(lengths.size()) == Sequences(batch));
  Gather(batch);
  const int64_t admitted = std::clamp<int64_t>(capacity, 0, static_cast<int64_t>(candidates_.size()));
  if (admitted < static_cast<int64_t>(candidates_.size())) {
    std::nth_element(candidates_.begin(), candidates_.begin() + admitted, candidates_.end(), RanksBefore());
  }
  return CountFirst(admitted, lengths);
}

int64_t SpeculationPlanner::VerifyAll(const SpeculationBatch& batch, std::span<int32_t> lengths) const {
  assert(static_cast<int64_t>(lengths.size()) == Sequences(batch));
  for (size_t r = 0; r < lengths.size(); ++r) lengths[r] = static_cast<int32_t>(Limit(batch, static_cast<int64_t>(r)));
  return AllDrafts(batch);
}

int64_t SpeculationPlanner::Sequences(const SpeculationBatch& batch) const {
  const int64_t sequences = static_cast<int64_t>(batch.survival.size()) / block_size_;
  assert(sequences * block_size_ == static_cast<int64_t>(batch.survival.size()));
  assert(batch.limits.empty() || static_cast<int64_t>(batch.limits.size()) == sequences);
  return sequences;
}

int64_t SpeculationPlanner::Limit(const SpeculationBatch& batch, int64_t sequence) const {
  if (batch.limits.empty()) return block_size_;
  return std::clamp<int64_t>(batch.limits[static_cast<size_t>(sequence)], 0, block_size_);
}

int64_t SpeculationPlanner::DraftedSequences(const SpeculationBatch& batch) const {
  int64_t drafted = 0;
  for (int64_t r = 0; r < Sequences(batch); ++r) drafted += Limit(batch, r) > 0 ? 1 : 0;
  return drafted;
}

int64_t SpeculationPlanner::AllDrafts(const SpeculationBatch& batch) const {
  int64_t all = 0;
  for (int64_t r = 0; r < Sequences(batch); ++r) all += Limit(batch, r);
  return all;
}

void SpeculationPlanner::Gather(const SpeculationBatch& batch) {
  candidates_.clear();
  for (int64_t r = 0; r < Sequences(batch); ++r) {
    float survival = 1;
    for (int64_t j = 0; j < Limit(batch, r); ++j) {
      const float given = batch.survival[static_cast<size_t>(r * block_size_ + j)];
      survival = given >= 0 ? std::min(survival, given) : 0;
      candidates_.push_back(
          {.survival = survival, .sequence = static_cast<int32_t>(r), .position = static_cast<int32_t>(j)});
    }
  }
}

SpeculationPlanner::Choice SpeculationPlanner::BestChoice(const SpeculationBatch& batch) {
  std::sort(candidates_.begin(), candidates_.end(), RanksBefore());
  const int64_t sequences = Sequences(batch);
  const double draft_seconds = profile_->DraftSeconds(DraftedSequences(batch));
  double tokens = static_cast<double>(sequences);
  Choice best;
  for (int64_t drafts = 0; drafts <= static_cast<int64_t>(candidates_.size()); ++drafts) {
    if (drafts > 0) tokens += candidates_[static_cast<size_t>(drafts - 1)].survival;
    const double seconds = draft_seconds + profile_->StepSeconds(sequences + drafts + batch.other_rows);
    const double rate = tokens / seconds;
    if (rate > best.tokens_per_second) best = {.drafts = drafts, .tokens_per_second = rate};
  }
  return best;
}

int64_t SpeculationPlanner::CountFirst(int64_t drafts, std::span<int32_t> lengths) const {
  std::fill(lengths.begin(), lengths.end(), 0);
  for (int64_t i = 0; i < drafts; ++i) ++lengths[static_cast<size_t>(candidates_[static_cast<size_t>(i)].sequence)];
  return drafts;
}

bool SpeculationPlanner::VerifiesAll(const SpeculationBatch& batch) const {
  if (!trims_) return true;
  const int64_t plain_rows = Sequences(batch) + batch.other_rows;
  return profile_->StepSeconds(plain_rows + AllDrafts(batch)) <=
         (1 + options_.flat_tolerance) * profile_->StepSeconds(plain_rows);
}

void UpdateSurvivalAverage(std::span<float> average, std::span<const float> survival, float weight) {
  assert(average.size() == survival.size());
  for (size_t k = 0; k < average.size(); ++k) average[k] += weight * (survival[k] - average[k]);
}

}  // namespace deepinfer
