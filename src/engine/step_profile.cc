#include "engine/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace deepinfer {
namespace {

constexpr double kFlat = 1.02;
constexpr double kShortest = 1e-9;  // what a clock that did not move stands for
constexpr double kDraftShare = 1.0 / 3;
constexpr size_t kLeastPoints = 2;  // without two there is no slope

// Appends a point per count while `deadline` is out of reach.
Status MeasureCurve(const std::function<Status(int64_t)>& run, const std::vector<int64_t>& counts, int repeats,
                    const std::function<double()>& clock, double deadline, std::vector<CostPoint>* points) {
  for (const int64_t count : counts) {
    if (points->size() >= kLeastPoints) {
      const CostPoint& last = points->back();
      const double growth = static_cast<double>(count) / static_cast<double>(last.count);
      // A point with fewer repeats would be slower than it is and bend the slope beyond it.
      if (clock() + repeats * growth * last.seconds > deadline) break;
    }
    double fastest = std::numeric_limits<double>::infinity();
    for (int repeat = 0; repeat < repeats; ++repeat) {
      const double begin = clock();
      DEEPINFER_RETURN_IF_ERROR(run(count));
      const double seconds = clock() - begin;
      if (!(seconds >= 0)) return Status::Internal("the clock of the step profile runs backwards");
      fastest = std::min(fastest, std::max(seconds, kShortest));
    }
    points->push_back({.count = count, .seconds = fastest});
  }
  return Status::Ok();
}

void NoteMissing(std::string_view what, const std::vector<int64_t>& counts, size_t measured, double budget,
                 std::string* note) {
  if (measured == counts.size()) return;
  if (!note->empty()) *note += "; ";
  *note += fmt::format("{} beyond {} are extrapolated up to {}: measuring them does not fit the budget of {} s", what,
                       counts[measured - 1], counts.back(), budget);
}

void AppendTable(std::string_view what, const CostCurve& curve, std::string* text) {
  for (const CostPoint& point : curve.points()) {
    *text += fmt::format("{:>10} {:>6}  {:12.3f} ms\n", what, point.count, point.seconds * 1e3);
  }
}

}  // namespace

Result<CostCurve> CostCurve::Create(std::span<const CostPoint> points) {
  if (points.empty()) return Status::InvalidArgument("a cost curve needs at least one point");
  int64_t before = 0;
  for (const CostPoint& point : points) {
    if (point.count <= before || !std::isfinite(point.seconds) || point.seconds <= 0) {
      return Status::InvalidArgument(
          fmt::format("cost curve: counts must ascend from 1 and seconds be positive, found {} s at {} after {}",
                      point.seconds, point.count, before));
    }
    before = point.count;
  }
  CostCurve curve;
  curve.points_.assign(points.begin(), points.end());
  for (size_t i = curve.points_.size() - 1; i > 0; --i) {
    curve.points_[i - 1].seconds = std::min(curve.points_[i - 1].seconds, curve.points_[i].seconds);
  }
  // A lone point says nothing of the slope: in proportion, which is the most that it can be.
  const CostPoint& last = curve.points_.back();
  CostPoint from;
  if (curve.points_.size() > 1) {
    from = curve.points_.front();
    for (const CostPoint& point : curve.points_) {
      if (2 * point.count <= last.count) from = point;
    }
  }
  curve.slope_ = (last.seconds - from.seconds) / static_cast<double>(last.count - from.count);
  return curve;
}

double CostCurve::Seconds(int64_t count) const {
  if (count <= 0 || points_.empty()) return 0;
  if (count <= points_.front().count) return points_.front().seconds;
  const CostPoint& last = points_.back();
  if (count >= last.count) return last.seconds + slope_ * static_cast<double>(count - last.count);
  const auto above = std::upper_bound(points_.begin(), points_.end(), count,
                                      [](int64_t value, const CostPoint& point) { return value < point.count; });
  const CostPoint& low = *(above - 1);
  const double share = static_cast<double>(count - low.count) / static_cast<double>(above->count - low.count);
  return std::min(low.seconds + share * (above->seconds - low.seconds), above->seconds);
}

Result<StepProfile> StepProfile::FromPoints(std::span<const CostPoint> step, std::span<const CostPoint> draft) {
  DEEPINFER_ASSIGN_OR_RETURN(CostCurve step_curve, CostCurve::Create(step));
  CostCurve draft_curve;
  if (!draft.empty()) {
    DEEPINFER_ASSIGN_OR_RETURN(draft_curve, CostCurve::Create(draft));
  }
  return StepProfile(std::move(step_curve), std::move(draft_curve));
}

bool StepProfile::IsFlat() const {
  const std::span<const CostPoint> points = step_.points();
  return points.size() > 1 && points.back().seconds <= kFlat * points.front().seconds;
}

std::string StepProfile::ToText() const {
  if (empty()) return "no step profile\n";
  std::string text;
  AppendTable("rows", step_, &text);
  AppendTable("sequences", draft_, &text);
  if (!note_.empty()) text += note_ + "\n";
  return text;
}

std::vector<int64_t> ProfileCounts(int64_t most) {
  std::vector<int64_t> counts;
  for (int64_t power = 1; power < most; power *= 2) {
    counts.push_back(power);
    if (power >= 2 && power / 2 * 3 < most) counts.push_back(power / 2 * 3);
  }
  counts.push_back(most);
  return counts;
}

Result<StepProfile> MeasureStepProfile(const std::function<Status(int64_t rows)>& run_step,
                                       const std::function<Status(int64_t sequences)>& run_draft,
                                       const std::function<double()>& clock, const StepProfileOptions& options) {
  if (options.max_rows < 1 || options.max_sequences < 1 || options.repeats < 1 || !(options.budget_seconds >= 0)) {
    return Status::InvalidArgument("step profile: rows, sequences and repeats must be at least 1, the budget 0 s");
  }
  // The first run brings weights into memory; it is neither a point nor part of the budget.
  DEEPINFER_RETURN_IF_ERROR(run_step(1));
  if (run_draft) DEEPINFER_RETURN_IF_ERROR(run_draft(1));
  const double begin = clock();

  std::string note;
  CostCurve draft_curve;
  if (run_draft) {
    const std::vector<int64_t> counts = ProfileCounts(options.max_sequences);
    std::vector<CostPoint> points;
    DEEPINFER_RETURN_IF_ERROR(
        MeasureCurve(run_draft, counts, options.repeats, clock, begin + kDraftShare * options.budget_seconds, &points));
    NoteMissing("drafts of sequences", counts, points.size(), kDraftShare * options.budget_seconds, &note);
    DEEPINFER_ASSIGN_OR_RETURN(draft_curve, CostCurve::Create(points));
  }
  const std::vector<int64_t> counts = ProfileCounts(options.max_rows);
  std::vector<CostPoint> points;
  DEEPINFER_RETURN_IF_ERROR(
      MeasureCurve(run_step, counts, options.repeats, clock, begin + options.budget_seconds, &points));
  NoteMissing("rows", counts, points.size(), options.budget_seconds, &note);
  DEEPINFER_ASSIGN_OR_RETURN(CostCurve step_curve, CostCurve::Create(points));
  StepProfile profile(std::move(step_curve), std::move(draft_curve));
  profile.set_note(std::move(note));
  return profile;
}

}  // namespace deepinfer
