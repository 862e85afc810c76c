#include "engine/measure_profile.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/device_memory.h"
#include "ops/sampling.h"

namespace deepinfer {
namespace {

/// For one profile; a large model's later points are extrapolated.
constexpr double kBudgetSeconds = 2;

}  // namespace

Result<StepProfile> MeasureProfile(Model& model, Ops& ops, const EnginePlan& plan) {
  const std::shared_ptr<const SequenceLayout> layout = model.layout();
  StepProfileOptions options;
  options.max_sequences = plan.options.max_num_seqs;
  options.max_rows =
      std::min({plan.options.max_num_seqs * (1 + plan.options.draft_length), model.options().max_rows_per_step,
                model.options().max_logits_rows, plan.options.max_model_len});
  options.budget_seconds = kBudgetSeconds;

  const int64_t blocks = (options.max_rows + SequenceState::kPageTokens - 1) / SequenceState::kPageTokens;
  Result<DeviceMemory> memory = ops.Allocate(layout->PieceBytes() + blocks * layout->BlockBytes());
  if (!memory.ok()) return Status::ResourceExhausted("no memory to profile steps");
  DEEPINFER_ASSIGN_OR_RETURN(const std::unique_ptr<SequenceState> state,
                             SequenceState::CreateLent(layout, options.max_rows, memory->data(), ops));
  const auto begin = [&] {
    state->Clear();
    for (int64_t i = 0; i < blocks; ++i) {
      state->AttachBlock(memory->data() + layout->PieceBytes() + i * layout->BlockBytes());
    }
  };
  // Ids that spread over the experts.
  std::vector<int32_t> ids(static_cast<size_t>(options.max_rows));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((i * 2654435761U + 12345) % static_cast<uint64_t>(model.config().vocab_size));
  }
  std::vector<TokenRule> rules(ids.size());
  for (TokenRule& rule : rules) rule.temperature = 0;
  std::vector<TokenChoice> choices(ids.size());

  const auto run_step = [&](int64_t rows) -> Status {
    begin();
    const auto count = static_cast<size_t>(rows);
    const BatchItem item{state.get(), std::span(ids).first(count), LogitsRows::kAll};
    const Result<ForwardResult> result = model.Forward({{&item, 1}});
    if (!result.ok()) return result.status();
    ops.ChooseTokens(result->logits, std::span(rules).first(count), std::span(choices).first(count));
    const DraftContext context{state.get(), 0, static_cast<int32_t>(rows), 0};
    DEEPINFER_RETURN_IF_ERROR(model.ExtendDrafts(result->taps, {&context, 1}));
    return ops.Finish();
  };
  DEEPINFER_RETURN_IF_ERROR(run_step(std::min<int64_t>(options.max_rows, 8)));
  const auto run_draft = [&](int64_t sequences) -> Status {
    DraftItem item{state.get(), ids[0], {}};
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
