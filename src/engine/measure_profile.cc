#include "engine/measure_profile.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "engine/rehearsal.h"

namespace deepinfer {
namespace {

/// For one profile; a large model's later points are extrapolated.
constexpr double kBudgetSeconds = 2;

}  // namespace

Result<StepProfile> MeasureProfile(Model& model, Ops& ops, const EnginePlan& plan) {
  StepProfileOptions options;
  options.max_sequences = plan.options.max_num_seqs;
  options.max_rows =
      std::min({plan.options.max_num_seqs * (1 + plan.options.draft_length), model.options().max_rows_per_step,
                model.options().max_logits_rows, plan.options.max_model_len});
  options.budget_seconds = kBudgetSeconds;

  DEEPINFER_ASSIGN_OR_RETURN(Rehearsal rehearsal, Rehearsal::Create(model, ops, options.max_rows));
  const auto run_step = [&](int64_t rows) -> Status {
    DEEPINFER_ASSIGN_OR_RETURN(const ForwardResult result, rehearsal.Run(rows, LogitsRows::kAll));
    const DraftContext context{&rehearsal.state(), 0, static_cast<int32_t>(rows), 0};
    DEEPINFER_RETURN_IF_ERROR(model.ExtendDrafts(result.taps, {&context, 1}));
    return ops.Finish();
  };
  DEEPINFER_RETURN_IF_ERROR(run_step(std::min<int64_t>(options.max_rows, 8)));
  const auto run_draft = [&](int64_t sequences) -> Status {
    DraftItem item{&rehearsal.state(), rehearsal.id(0), {}};
    item.rule.temperature = 0;
    const std::vector<DraftItem> items(static_cast<size_t>(sequences), item);
    return model.DraftBlocks(items, plan.options.draft_length).status();
  };
  Result<StepProfile> profile = MeasureStepProfile(run_step, run_draft, NowSeconds, options);
  // The memory goes, so nothing may be under way in it.
  DEEPINFER_RETURN_IF_ERROR(ops.Finish());
  return profile;
}

}  // namespace deepinfer
