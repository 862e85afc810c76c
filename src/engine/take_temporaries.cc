#include "engine/take_temporaries.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/rehearsal.h"

namespace deepinfer {

Status TakeTemporaries(Model& model, Ops& ops, const EnginePlan& plan) {
  const int64_t rows = std::min(model.options().max_rows_per_step, plan.options.max_model_len);
  const auto run = [&]() -> Status {
    DEEPINFER_ASSIGN_OR_RETURN(Rehearsal rehearsal, Rehearsal::Create(model, ops, rows));
    DEEPINFER_RETURN_IF_ERROR(rehearsal.Run(rows, LogitsRows::kLast).status());
    DEEPINFER_RETURN_IF_ERROR(ops.Finish());
    DEEPINFER_RETURN_IF_ERROR(
        rehearsal.Run(std::min(rows, model.options().max_logits_rows), LogitsRows::kAll).status());
    // Few rows have branches, whose temporaries are their own (Ops::BeginBeside).
    DEEPINFER_RETURN_IF_ERROR(ops.Finish());
    DEEPINFER_RETURN_IF_ERROR(rehearsal.Run(std::min(rows, Ops::kMostRowsBeside), LogitsRows::kLast).status());
    // The sequence's memory goes, so nothing may be under way in it.
    return ops.Finish();
  };
  const Status status = run();
  if (status.ok()) return status;
  std::string text = fmt::format("device: a step of {} rows cannot be computed ({})", rows, status.message());
  if (status.code() == StatusCode::kResourceExhausted) {
    text += "; lower kv_memory, max_num_batched_tokens, max_num_seqs or gpu_layers";
  }
  return Status(status.code(), std::move(text));
}

}  // namespace deepinfer
